"""What is known of running programs from the points that they report: device use, step times, evaluations, data waits.

It is kept in memory, a bounded amount for each run. After a restart of the server it fills again with new points.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import fsum
from statistics import median
from typing import Any, Final, NamedTuple

RUNS_MAX: Final = 20_000  # the run whose attempt began longest ago is dropped for another
DEVICES_MAX: Final = 4096  # devices of a run
WINDOW: Final = 60.0  # seconds over which device figures are averaged
MINUTES: Final = 240  # minutes of step times that are the run's own past
OWN_LEAST: Final = 10  # minutes before a run is compared with itself
OWN_PART: Final = 4  # its own step time is the lower quartile of its minutes
PHASE_GAP: Final = 600.0  # seconds that one report of phases may stand for

LOWER_IS_BETTER: Final = frozenset({
    "val_loss", "val/loss", "eval_loss", "eval/loss", "valid_loss", "validation_loss", "validation/loss", "test_loss",
})  # fmt: skip
HIGHER_IS_BETTER: Final = frozenset({
    "val_acc", "val/acc", "val_accuracy", "val/accuracy", "eval_acc", "eval_accuracy", "eval/accuracy",
    "validation_accuracy",
})  # fmt: skip
DEVICE_FIGURES: Final = frozenset({"gpu", "gpu_memory_share", "gpu_throttled"})  # those that signals read
_DEVICE: Final = "system/gpu"
_SYSTEM: Final = "system/"
_FIRST_RANK: Final = 0


class MachineFigures(NamedTuple):
    """The last sample of a node, as far as signals read it."""

    disk: float | None = None  # the used part of its fullest file system
    lost: float | None = None  # packets in a minute: errors and drops


@dataclass(slots=True)
class Averaged:
    """The values of the last `WINDOW` seconds."""

    values: deque[tuple[float, float]] = field(default_factory=deque)  # time, value

    def take(self, time: float, value: float) -> None:
        self.values.append((time, value))
        while self.values[0][0] < time - WINDOW:
            self.values.popleft()

    def mean(self) -> float:
        return fsum([value for _, value in self.values]) / len(self.values)

    @property
    def last(self) -> float:
        """When it was heard last."""
        return self.values[-1][0]


@dataclass(slots=True)
class StepTimes:
    """Seconds of a step: the medians of its minutes, in the order of time."""

    metric: str = ""  # whose points mark the steps
    minutes: deque[float] = field(default_factory=lambda: deque(maxlen=MINUTES))
    _current: list[float] = field(default_factory=list)
    _began: float = 0.0
    _last: tuple[int, float] | None = None  # step, time

    def take(self, steps: Sequence[int], times: Sequence[float]) -> None:
        for step, time in zip(steps, times, strict=True):
            last, self._last = self._last, (step, time)
            if last is None or step <= last[0] or time < last[1]:
                continue
            if not self._current:
                self._began = last[1]
            self._current.append((time - last[1]) / (step - last[0]))
            if time - self._began >= WINDOW:
                self.minutes.append(median(self._current))
                self._current = []

    def ratio(self) -> tuple[float, float, float] | None:
        """The last minute against the run's own past, with both in seconds; None while too little is known."""
        if len(self.minutes) <= OWN_LEAST:
            return None
        *past, now = self.minutes
        own = sorted(past)[len(past) // OWN_PART]
        return (now / own, now, own) if own > 0 else None


@dataclass(slots=True)
class Evaluations:
    """How many evaluations have passed since a metric was at its best."""

    metric: str
    best: float | None = None
    best_step: int = 0
    since: int = 0
    best_at: float = 0.0  # by the server's clock

    def take(self, steps: Sequence[int], values: Sequence[float], now: float) -> None:
        sign = -1.0 if self.metric in HIGHER_IS_BETTER else 1.0
        for step, value in zip(steps, values, strict=True):
            if self.best is None or sign * value < sign * self.best:
                self.best, self.best_step, self.since, self.best_at = value, step, 0, now
            else:  # a value that is not a number is no improvement either
                self.since += 1


@dataclass(slots=True)
class Phases:
    """How the ranks of a run spent their time: seconds by phase, of the present minute and of the one before."""

    shares: Mapping[str, float] = field(default_factory=dict)
    _sums: dict[str, float] = field(default_factory=dict)
    _last: dict[int, tuple[float, str]] = field(default_factory=dict)  # rank → time and phase of its last report
    _began: float | None = None

    def take(self, rank: int, time: float, name: str, spent: Mapping[str, Any]) -> None:
        before, self._last[rank] = self._last.get(rank), (time, name)
        if self._began is None:
            self._began = time
        if before is None:
            return
        known = {str(part): min(float(value), PHASE_GAP) for part, value in spent.items() if _is_seconds(value)}
        rest = min(time - before[0], PHASE_GAP) - sum(known.values())
        known[before[1]] = known.get(before[1], 0.0) + max(0.0, rest)
        for part, seconds in known.items():
            self._sums[part] = self._sums.get(part, 0.0) + seconds
        if time - self._began >= WINDOW and (total := sum(self._sums.values())) > 0:
            self.shares = {part: seconds / total for part, seconds in self._sums.items()}
            self._sums, self._began = {}, time


@dataclass(slots=True)
class RunFigures:
    """One attempt of a run."""

    attempt: int
    fresh: float = WINDOW  # seconds after which a device's figures say nothing any more
    devices: dict[tuple[int, str], dict[str, Averaged]] = field(default_factory=dict)  # (rank, place) → name → values
    steps: StepTimes = field(default_factory=StepTimes)
    evaluations: dict[str, Evaluations] = field(default_factory=dict)
    phases: Phases = field(default_factory=Phases)

    def take(
        self, rank: int, name: str, steps: Sequence[int], times: Sequence[float], values: Sequence[float], now: float
    ) -> None:
        if name.startswith(_DEVICE):
            plain, _, place = name[len(_SYSTEM) :].partition(".")
            if plain in DEVICE_FIGURES:
                self._take_device((rank, place), plain, values, now)
        elif rank == _FIRST_RANK and not name.startswith(_SYSTEM):
            if name in LOWER_IS_BETTER or name in HIGHER_IS_BETTER:
                self.evaluations.setdefault(name, Evaluations(name)).take(steps, values, now)
            elif self.steps.metric in ("", name):
                self.steps.metric = name
                self.steps.take(steps, times)

    def _take_device(self, which: tuple[int, str], name: str, values: Sequence[float], now: float) -> None:
        figures = self.devices.get(which)
        if figures is None:
            if len(self.devices) >= DEVICES_MAX:
                return
            figures = self.devices[which] = {}
        averaged = figures.get(name)
        if averaged is None:
            averaged = figures[name] = Averaged()
        for value in values:  # by the server's clock: a node's may be wrong
            averaged.take(now, value)

    def device(self, name: str, now: float) -> list[tuple[tuple[int, str], float]]:
        """One figure of every device that was heard lately."""
        return [
            (which, figures[name].mean())
            for which, figures in self.devices.items()
            if name in figures and now - figures[name].last <= self.fresh
        ]


class Figures:
    """All runs. Not safe for several threads. `fresh`: seconds for which a device's figures count."""

    def __init__(self, fresh: float = WINDOW) -> None:
        self._fresh = fresh
        self._runs: OrderedDict[str, RunFigures] = OrderedDict()

    def take(
        self,
        run: str,
        attempt: int,
        rank: int,
        name: str,
        columns: tuple[Sequence[int], Sequence[float], Sequence[float]],
        now: float,
    ) -> None:
        """Takes points of one metric: steps, times and values."""
        figures = self._runs.get(run)
        if figures is None or figures.attempt != attempt:
            figures = self._run(run, attempt)
        if figures is not None:
            figures.take(rank, name, *columns, now)

    def take_phases(self, run: str, attempt: int, docs: Iterable[tuple[int, Mapping[str, Any]]]) -> None:
        """Takes documents of ranks, and uses those that tell a phase."""
        figures = self._run(run, attempt)
        for rank, doc in docs:
            time, spent = doc.get("time"), doc.get("spent")
            if figures is not None and doc.get("type") == "phase" and isinstance(time, int | float):
                figures.phases.take(rank, float(time), str(doc.get("name")), spent if isinstance(spent, dict) else {})

    def of(self, run: str, attempt: int) -> RunFigures | None:
        found = self._runs.get(run)
        return found if found is not None and found.attempt == attempt else None

    def _run(self, run: str, attempt: int) -> RunFigures | None:
        """The figures of an attempt. A new one begins with what is known of evaluations; None for an older one."""
        known = self._runs.get(run)
        if known is not None and known.attempt > attempt:
            return None
        if known is None or known.attempt < attempt:
            known = RunFigures(attempt, self._fresh, evaluations=known.evaluations if known is not None else {})
            self._runs[run] = known
        self._runs.move_to_end(run)
        if len(self._runs) > RUNS_MAX:
            self._runs.popitem(last=False)
        return known


def _is_seconds(value: Any) -> bool:
    """A program may have put anything there."""
    return isinstance(value, int | float) and 0 <= value < 2**33
