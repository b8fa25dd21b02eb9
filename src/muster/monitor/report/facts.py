"""What a report is made from: runs, held time, waits, failed attempts and the use of pools."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from muster.core.period import Period
from muster.core.reasons import REASONS
from muster.core.resources import WHOLE
from muster.monitor.rollup import Bucket
from muster.monitor.time_ledger import SECOND

HOUR: Final = 3600.0
UNIT_HOUR: Final = WHOLE * SECOND * HOUR
_NOON: Final = 43_200


class RunFact(NamedTuple):
    id: str
    project: str
    user: str
    name: str
    kind: str
    phase: str
    created_at: float
    ended_at: float | None
    parent: str | None
    attempts: int
    family: str = ""  # the tag `family`, or the experiment unless it is the project's own


class HeldFact(NamedTuple):
    """The time that an attempt held on a UTC day: microseconds by class, for each of its units (in thousandths)."""

    day: int
    run: str
    attempt: int
    project: str
    unit: str
    units: int
    nodes: int
    pool: str  # empty: not known
    hours: float  # unit-hours
    parts: Mapping[str, int]


class CostFact(NamedTuple):
    """What the cost ledger has of a run in the period: an amount in millionths, and hours without a price."""

    amount: int
    unpriced: float


class WaitFact(NamedTuple):
    started_at: float
    wait: float  # seconds
    work: str
    high: bool


class AttemptFact(NamedTuple):
    run: str
    number: int
    running_at: float | None
    ended_at: float | None
    outcome: str | None
    code: str  # of the reason; empty: none
    node: str  # the one that the reason names, or its first

    @property
    def failed(self) -> bool:
        return self.outcome == "failed" and self.ended_at is not None

    @property
    def category(self) -> str:
        return REASONS[self.code].category if self.code in REASONS else ""


class FailureFact(NamedTuple):
    """A failed attempt; `recovery`: seconds until the next one ran, None if none did."""

    ended_at: float
    category: str
    recovery: float | None


class UseFact(NamedTuple):
    """A day's bucket of a pool; the pool "" is all of them."""

    day: int
    pool: str
    bucket: Bucket


@dataclass(frozen=True, slots=True)
class Terms:
    """What is the same for all periods: what is covered, and targets."""

    now: float
    first: float  # the time of the first event that is recorded
    whole: bool  # all projects are covered, so that the use of the pools says something
    unit: str  # accelerator or cpu
    spot: Callable[[str], bool]
    targets: Mapping[tuple[str, bool], float]  # target waits by class of work and high priority


@dataclass(frozen=True, slots=True)
class Facts:
    """Of one period, or of several. `created` and `ended` are runs of the period, `runs` all that are known."""

    runs: Mapping[str, RunFact] = field(default_factory=dict)
    held: Sequence[HeldFact] = ()
    costs: Mapping[str, CostFact] = field(default_factory=dict)  # by run
    waits: Sequence[WaitFact] = ()
    attempts: Mapping[str, Sequence[AttemptFact]] = field(default_factory=dict)  # of runs that failed or started again
    use: Sequence[UseFact] = ()
    created: Sequence[RunFact] = ()
    ended: Sequence[RunFact] = ()
    failures: Sequence[FailureFact] = ()

    def experiment(self, run: str) -> RunFact | None:
        """The experiment that a run counts for: itself, or the run that it is a task of. None: it is none."""
        known = self.runs.get(run)
        if known is None or known.kind not in ("train", "sweep"):
            return None
        return self.runs.get(known.parent, known) if known.parent is not None else known


def within(facts: Facts, period: Period) -> Facts:
    """The facts of a period. Days count where the greater part of them is."""
    begin, end = period.begin, period.end
    first, last = begin - _NOON, end - _NOON
    runs = facts.runs.values()
    return replace(
        facts,
        held=[one for one in facts.held if first <= one.day < last],
        use=[one for one in facts.use if first <= one.day < last],
        waits=[one for one in facts.waits if begin <= one.started_at < end],
        created=[one for one in runs if begin <= one.created_at < end],
        ended=[one for one in runs if one.ended_at is not None and begin <= one.ended_at < end],
        failures=[one for one in _failures(facts.attempts) if begin <= one.ended_at < end],
    )


def _failures(attempts: Mapping[str, Sequence[AttemptFact]]) -> Iterator[FailureFact]:
    for tries in attempts.values():
        for number, one in enumerate(tries):
            if one.outcome != "failed" or one.ended_at is None:
                continue
            running = tries[number + 1].running_at if number + 1 < len(tries) else None
            recovery = max(0.0, running - one.ended_at) if running is not None else None
            yield FailureFact(one.ended_at, one.category, recovery)
