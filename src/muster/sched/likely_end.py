"""The likely end of a running gang, by the best evidence: its own progress, earlier runs, or what it declares."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Final, Literal

from muster.core.history import groups_of
from muster.core.state import State
from muster.sched.order import attained
from muster.sched.outlook import ends_at
from muster.sched.running_gangs import Running

Evidence = Literal["stopping", "progress", "history", "max_duration", "nothing"]
Ends = Mapping[str, float]  # job → when it ends by the progress that it reports, in seconds since 1970


@dataclass(frozen=True, slots=True)
class LikelyEnd:
    at: float
    evidence: Evidence

    def told(self, now: float) -> str:
        """`expected in about 75 s by its own progress`."""
        return _TOLD[self.evidence].format(minutes(self.at - now))


def likely_end(known: Running, state: State, now: float, ends: Ends) -> LikelyEnd:
    """Not later than the job's `max_duration` allows."""
    job, history = known.job, state.history
    by_rules = ends_at(known, state.rules, now)
    if job.stop is not None:
        return LikelyEnd(by_rules, "stopping")
    longest = job.spec.max_duration
    limit = inf if longest is None else known.since - job.ran + longest
    if job.id in ends:
        return LikelyEnd(max(min(ends[job.id], limit), now), "progress")
    if history.known:
        age = attained(job, now)
        total = history.quantile(groups_of(job.user, job.spec), 0.5, age)
        return LikelyEnd(max(min(now + total - age, limit), now), "history")
    return LikelyEnd(by_rules, "nothing" if longest is None else "max_duration")


def quick_end(known: Running, state: State, now: float, ends: Ends) -> float:
    """Roughly the same at a fraction of the cost, to choose among very many gangs."""
    return max(ends[known.job.id], now) if known.job.id in ends else ends_at(known, state.rules, now)


def minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


_TOLD: Final[dict[Evidence, str]] = {
    "stopping": "expected in about {}: it was told to stop",
    "progress": "expected in about {} by its own progress",
    "history": "expected in about {} by how long such jobs ran before",
    "max_duration": "in {} at the latest: that is its `max_duration`, and nothing else is known",
    "nothing": "it is not known when",
}
