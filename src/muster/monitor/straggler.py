"""Finds the rank or the node that a gang waits for in its steps. Pure functions of reported times.

In synchronous training all ranks take the same time for a step, so the slow one is the one that waits least for the
others. Each window of a few seconds has, for every rank, the share of its own work: what it did not wait. A rank is
slow in a window if its share is above the median of the gang by both a part of the step and a multiple of the spread.
A verdict needs most of the last windows. A program that is slow on all ranks alike has none.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median
from typing import Any, Final, Literal

WINDOW: Final = 10.0  # seconds
WINDOWS: Final = 5  # that are looked at
NEEDED: Final = 4  # of them in which a rank is slow, for a verdict
ENDED: Final = 1  # of them in which it may still be slow when the verdict ends
COVERED: Final = 0.3  # of a window that must be known of every rank
LOST: Final = 0.15  # of a step: how much more than the median rank a slow one works
Z: Final = 4.0  # times the spread of the ranks
SPREAD: Final = 0.02  # of a step: the least spread, for ranks that are nearly equal
# Two ranks have no median: the one waits for a plain part of the step, and the other hardly at all.
PAIR_LOST: Final = 0.3
PAIR_OWN: Final = 0.9
BUSY: Final = 0.8  # of a core: a rank that works, where only CPU time is known
WAITERS: Final = 0.5  # of a core: the median of ranks that wait
GAP: Final = 60.0  # seconds: the longest time between two reports that counts

Evidence = Literal["waiting", "cpu"]
OWN: Final = frozenset({"", "training", "data"})  # phases in which a rank works on steps
WAITING: Final = "waiting"


@dataclass(frozen=True, slots=True)
class Straggler:
    """The ranks that the others wait for. `slower`: how much longer they work in a step than the median rank does.
    `lost`: the part of the gang's time that the others wait for them."""

    ranks: tuple[int, ...]
    workers: tuple[int, ...]
    slower: float
    lost: float
    evidence: Evidence
    seen: int  # windows, of the last `WINDOWS`

    def to_doc(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


@dataclass(slots=True)
class RankTimes:
    """What one rank reported in the current window, in seconds."""

    worker: int
    own: float = 0.0
    waited: float = 0.0
    measured: bool = False  # it reports its waiting
    cpu: float = 0.0
    beats: float = 0.0  # that the CPU time is of
    _phase: tuple[float, str] | None = None  # the last report: its time and the phase from then on
    _pulse: tuple[float, float] | None = None  # the last pulse: the launcher's clock and the CPU time

    def report(self, time: float, name: str, spent: Mapping[str, Any]) -> None:
        """Takes a phase, with the seconds since the last one that were spent in others; see `runtime.phases`."""
        before, self._phase = self._phase, (time, name)
        known = {str(part): _seconds(value) for part, value in spent.items()}
        if name == WAITING or WAITING in known:
            self.measured = True
        if before is None:
            return
        known[before[1]] = known.get(before[1], 0.0) + max(0.0, min(time - before[0], GAP) - sum(known.values()))
        self.own += sum(known.get(part, 0.0) for part in OWN)
        self.waited += known.get(WAITING, 0.0)

    def beat(self, clock: float, cpu: float) -> None:
        before, self._pulse = self._pulse, (clock, cpu)
        if before is not None and 0 < clock - before[0] <= GAP and cpu >= before[1]:
            self.cpu += cpu - before[1]
            self.beats += clock - before[0]

    def clear(self) -> None:
        self.own = self.waited = self.cpu = self.beats = 0.0


@dataclass(frozen=True, slots=True)
class Window:
    """What a window showed: the slow ranks, each with its share of own work, and the median of the gang."""

    slow: Mapping[int, float]
    middle: float
    evidence: Evidence


@dataclass(slots=True)
class GangTimes:
    """The ranks of one attempt, and the last windows."""

    ranks: dict[int, RankTimes] = field(default_factory=dict)
    windows: deque[Window] = field(default_factory=lambda: deque(maxlen=WINDOWS))
    stepped: bool = False  # the program reported a step in this window
    _began: float | None = None

    def rank(self, rank: int, worker: int) -> RankTimes:
        return self.ranks.setdefault(rank, RankTimes(worker))

    def close(self, now: float, ranks: int) -> bool:
        """Ends the window if it is over, for a gang of so many ranks. Returns whether one more is known.

        A window in which too little is known of a rank says nothing, and neither does one without steps.
        """
        if self._began is None:
            self._began = now
        if now - self._began < WINDOW:
            return False
        self._began, found = now, None
        if len(self.ranks) >= ranks:
            found = _by_waiting(self.ranks) or (_by_cpu(self.ranks) if self.stepped else None)
        for one in self.ranks.values():
            one.clear()
        self.stepped = False
        if found is not None:
            self.windows.append(found)
        return found is not None

    def verdict(self) -> Straggler | None:
        """The ranks that were slow in most of the last windows."""
        slow = [rank for rank in sorted(self.ranks) if self._count(rank) >= NEEDED]
        if not slow:
            return None
        seen = [window for window in self.windows if all(rank in window.slow for rank in slow)] or list(self.windows)
        shares = [(fmean(window.slow.get(rank, window.middle) for rank in slow), window.middle) for window in seen]
        weak = any(window.evidence == "cpu" for window in seen)
        return Straggler(
            tuple(slow),
            tuple(sorted({self.ranks[rank].worker for rank in slow})),
            round(fmean(share / max(middle, 0.01) for share, middle in shares) - 1, 3),
            round(fmean(share - middle for share, middle in shares), 3),
            "cpu" if weak else "waiting",
            min(self._count(rank) for rank in slow),
        )

    def over(self, ranks: Sequence[int]) -> bool:
        """Whether these ranks are slow no longer."""
        return len(self.windows) == WINDOWS and all(self._count(rank) <= ENDED for rank in ranks)

    def _count(self, rank: int) -> int:
        return sum(rank in window.slow for window in self.windows)


def slow_ones(shares: Mapping[int, float]) -> set[int]:
    """Those whose share of own work stands out. By median and MAD, so that a few outliers don't hide each other."""
    if len(shares) < 2:
        return set()
    if len(shares) == 2:
        (low, _), (high, slow) = sorted((share, one) for one, share in shares.items())
        return {slow} if high >= PAIR_OWN and high - low >= PAIR_LOST else set()
    middle = median(shares.values())
    spread = max(SPREAD, 1.4826 * median(abs(share - middle) for share in shares.values()))
    return {one for one, share in shares.items() if share - middle >= max(LOST, Z * spread)}


def _by_waiting(ranks: Mapping[int, RankTimes]) -> Window | None:
    """By the waiting that the ranks measured themselves; None unless all of them did."""
    if not all(one.measured and one.own + one.waited >= COVERED * WINDOW for one in ranks.values()):
        return None
    shares = {rank: one.own / (one.own + one.waited) for rank, one in ranks.items()}
    slow = slow_ones(shares)
    by_worker: dict[int, list[float]] = {}
    for rank, one in ranks.items():
        by_worker.setdefault(one.worker, []).append(shares[rank])
    if not slow and len(by_worker) < len(ranks):  # a node whose ranks are all slow is as much as half of a small gang
        nodes = slow_ones({worker: median(several) for worker, several in by_worker.items()})
        slow = {rank for rank, one in ranks.items() if one.worker in nodes}
    middle = median(share for rank, share in shares.items() if rank not in slow)
    return Window({rank: shares[rank] for rank in slow}, middle, "waiting")


def _by_cpu(ranks: Mapping[int, RankTimes]) -> Window | None:
    """By CPU time, which is weak evidence: a rank that is busy while the others sleep. Some libraries wait busily."""
    if len(ranks) < 3 or not all(one.beats >= COVERED * WINDOW for one in ranks.values()):
        return None
    used = {rank: min(1.0, one.cpu / one.beats) for rank, one in ranks.items()}
    middle = median(used.values())
    slow = {rank for rank in slow_ones(used) if used[rank] >= BUSY} if middle <= WAITERS else set()
    return Window({rank: used[rank] for rank in slow}, middle, "cpu")


def _seconds(value: Any) -> float:
    """A duration that a program reported; it may have put anything there."""
    return float(min(value, GAP)) if isinstance(value, int | float) and value > 0 else 0.0
