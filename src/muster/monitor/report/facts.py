"""What a report is made from: runs, held time, waits, failed attempts and the use of pools."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from muster.core.reasons import REASONS
from muster.core.resources import WHOLE
from muster.monitor.report.period import Period
from muster.monitor.rollup import Bucket
from muster.monitor.time_ledger import SECOND

HOUR: Final = 3600.0


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
    parts: Mapping[str, int]

    @property
    def hours(self) -> float:
        """Unit-hours."""
        return self.units * sum(self.parts.values()) / (WHOLE * SECOND * HOUR)


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


class UseFact(NamedTuple):
    """A day's bucket of a pool; the pool "" is all of them."""

    day: int
    pool: str
    bucket: Bucket


@dataclass(frozen=True, slots=True)
class Terms:
    """What is the same for all periods: what is covered, prices and targets."""

    now: float
    first: float  # the time of the first event that is recorded
    whole: bool  # all projects are covered, so that the use of the pools says something
    unit: str  # accelerator or cpu
    price: Callable[[str], float]  # of a pool, per accelerator and hour, or per node and hour if it has none; 0: none
    spot: Callable[[str], bool]
    targets: Mapping[tuple[str, bool], float]  # target waits by class of work and high priority


@dataclass(frozen=True, slots=True)
class Facts:
    """Of one period, or of several."""

    runs: Mapping[str, RunFact] = field(default_factory=dict)  # also of other periods
    held: Sequence[HeldFact] = ()
    waits: Sequence[WaitFact] = ()
    attempts: Mapping[str, Sequence[AttemptFact]] = field(default_factory=dict)  # of runs that failed or started again
    use: Sequence[UseFact] = ()
    created: Sequence[RunFact] = ()
    ended: Sequence[RunFact] = ()

    def experiment(self, run: str) -> RunFact | None:
        """The experiment that a run counts for: itself, or the run that it is a task of. None: it is none."""
        known = self.runs.get(run)
        if known is None or known.kind not in ("train", "sweep"):
            return None
        return self.runs.get(known.parent, known) if known.parent is not None else known


def split(facts: Facts, periods: Sequence[Period]) -> list[Facts]:
    """The facts of each period. Days count where the greater part of them is."""
    found = []
    for one in periods:
        begin, end = one.begin, one.end
        # By the day, so that a long list is compared with numbers alone.
        low, high = begin - 43_200, end - 43_200
        found.append(
            replace(
                facts,
                held=[each for each in facts.held if low <= each[0] < high],
                use=[each for each in facts.use if low <= each[0] < high],
                waits=[each for each in facts.waits if begin <= each[0] < end],
                created=[each for each in facts.runs.values() if begin <= each.created_at < end],
                ended=[
                    each for each in facts.runs.values() if each.ended_at is not None and begin <= each.ended_at < end
                ],
            )
        )
    return found


def unit_of(held: Sequence[HeldFact], use: Sequence[UseFact]) -> str:
    """What is counted: accelerators, or CPUs if there were none at any time."""
    there = any(one.bucket.high("there") for one in use)
    return "accelerator" if there or any(one.unit == "accelerator" for one in held) else "cpu"
