"""The cost of restarts of a run: repeated steps, lost seconds, and the share of time that made progress.

A restart costs the time from the last step of the old attempt until the new attempt has finished that step again. It
includes waiting, starting, loading and repeating. Goodput is the rest of the time from the start of the first rank to
the end.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from muster.core.job import Attempt
from muster.core.reasons import Reason


@dataclass(frozen=True, slots=True)
class Trail:
    """The steps that an attempt finished, and their times, in ascending order of steps.

    Enough are the first, the last, and the first that is not before the last step of the attempt before.
    """

    steps: Sequence[int]
    times: Sequence[float]


@dataclass(frozen=True, slots=True)
class Restart:
    attempt: int
    at_step: int | None  # step of the checkpoint that it continued from
    time: float
    reason: Reason | None
    seconds_lost: float
    steps_repeated: int


@dataclass(frozen=True, slots=True)
class Summary:
    attempts: int
    steps: int | None
    steps_repeated: int
    seconds_total: float
    seconds_training: float
    seconds_lost: float
    goodput: float | None
    restarts: tuple[Restart, ...]


def summarise(attempts: Sequence[Attempt], trails: Mapping[int, Trail], end: float) -> Summary:
    """`end`: when the run ended, or now."""
    restarts = tuple(
        _restart(before, after, trails.get(before.number), trails.get(after.number), end)
        for before, after in pairwise(attempts)
    )
    begun = next((a.running_at for a in attempts if a.running_at is not None), None)
    total = max(end - begun, 0.0) if begun is not None else 0.0
    lost = min(sum(r.seconds_lost for r in restarts), total)
    last = [trail.steps[-1] for trail in trails.values() if trail.steps]
    return Summary(
        attempts=len(attempts),
        steps=max(last, default=None),
        steps_repeated=sum(r.steps_repeated for r in restarts),
        seconds_total=total,
        seconds_training=total - lost,
        seconds_lost=lost,
        goodput=(total - lost) / total if total else None,
        restarts=restarts,
    )


def _restart(before: Attempt, after: Attempt, old: Trail | None, new: Trail | None, end: float) -> Restart:
    ended = before.ended_at if before.ended_at is not None else end
    if old is None or not old.steps:
        lost, repeated = (after.running_at or end) - ended, 0
    else:
        reached, caught_up = old.steps[-1], end
        repeated = 0
        if new is not None and new.steps:
            repeated = max(reached - new.steps[0] + 1, 0)
            index = bisect_left(new.steps, reached)
            caught_up = new.times[index] if index < len(new.steps) else end
            if not repeated:
                caught_up = new.times[0]
        lost = caught_up - old.times[-1]
    return Restart(after.number, after.from_step, after.planned_at, before.reason, max(lost, 0.0), repeated)
