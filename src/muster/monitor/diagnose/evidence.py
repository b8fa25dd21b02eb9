"""What is known of a run when it is diagnosed: times, figures of devices and processes, samples of stacks, curves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite, sqrt
from typing import Final

from muster.monitor.diagnose.samples import Samples

LOOP: Final = ("training", "data", "saving", "evaluating", "done_again")  # classes of time after the start
LOOP_LEAST: Final = 3.0  # seconds of the loop before shares of it mean anything
LOOKS_LEAST: Final = 5  # samples of stacks
VALUE: Final = 20  # characters
_Z: Final = 1.64  # 95 %, one-sided


@dataclass(frozen=True, slots=True)
class RankFigures:
    """Means of the last minutes of one rank; None where nothing was heard."""

    rank: int
    cpu: float | None = None  # cores in use, of all its processes
    device_use: float | None = None  # 0..1
    memory_share: float | None = None  # 0..1, of its fullest device
    throttled: float | None = None  # share of the samples in which heat or a power brake held the clock down
    temperature: float | None = None  # C
    clock: float | None = None  # MHz
    clock_best: float | None = None  # MHz, the highest that was seen


@dataclass(frozen=True, slots=True)
class Series:
    """Points of one metric of the newest attempt, in the order of steps."""

    name: str
    steps: Sequence[int] = ()
    values: Sequence[float] = ()


@dataclass(frozen=True, slots=True)
class Save:
    step: int
    time: float
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class SlowRanks:
    """The verdict of `monitor.straggler`, as its event has it."""

    ranks: Sequence[int]
    lost: float  # share of the gang's time
    sure: bool  # by reported waits, and not by CPU time alone
    message: str


@dataclass(frozen=True, slots=True)
class Evidence:
    job: str = "JOB"
    running: bool = False
    world: int = 1  # ranks
    times: Mapping[str, float] = field(default_factory=dict)  # seconds by class of the ledger, of the newest attempt
    stated: frozenset[str] = frozenset()  # phases that the program states; the others are in no class of their own
    samples: Samples = field(default_factory=Samples)
    ranks: Sequence[RankFigures] = ()
    cpus: float | None = None  # asked for, per node
    ranks_per_node: int = 1
    accelerators: int = 0  # per node
    accelerator: str = ""  # its name
    params: Mapping[str, str] = field(default_factory=dict)
    step_seconds: float | None = None  # median
    wait_seconds: float | None = None  # of a step, for other ranks: median
    losses: Series | None = None
    norms: Series | None = None
    rate: Series | None = None  # learning rate
    changes: Sequence[tuple[int, str]] = ()  # step → what changed there: an attempt that began, a parameter
    saves: Sequence[Save] = ()  # of the newest attempt
    slow: SlowRanks | None = None
    hung: str = ""  # what the verdict said; "" if it does not hang
    node_findings: Sequence[str] = ()

    def param(self, names: Sequence[str]) -> tuple[str, str] | None:
        """The first of these parameters that the run has, and its value, if it is short enough for a sentence."""
        found = next(((name, self.params[name]) for name in names if name in self.params), None)
        return found if found is not None and len(found[1]) <= VALUE else None

    @property
    def loop(self) -> float:
        """Seconds since training began."""
        return sum(seconds for kind in LOOP if isfinite(seconds := self.times.get(kind, 0.0)))

    def share(self, kind: str) -> float | None:
        """The share of the loop's time in a class; None if the program does not state it, or the loop is too short."""
        seconds = self.times.get(kind, 0.0)
        if kind not in self.stated or not isfinite(seconds) or self.loop < LOOP_LEAST:
            return None
        return seconds / self.loop

    @property
    def sampled(self) -> bool:
        return self.samples.looks >= LOOKS_LEAST

    @property
    def device_use(self) -> float | None:
        return mean(one.device_use for one in self.ranks)

    @property
    def has_devices(self) -> bool:
        return self.accelerators > 0 or self.device_use is not None

    @property
    def told(self) -> bool:
        """Whether enough is known to call the run healthy."""
        return self.sampled or self.share("data") is not None


def mean(values: Iterable[float | None]) -> float | None:
    """The mean of those that are finite numbers; None if there are none."""
    kept = [value for value in values if value is not None and isfinite(value)]
    return sum(kept) / len(kept) if kept else None


def bounds(share: float, looks: int) -> tuple[float, float]:
    """The least and the most that a share seen in so many looks may be (Wilson's interval, 90 %)."""
    if looks <= 0 or not isfinite(share):
        return 0.0, 1.0
    about = _Z * _Z / looks
    middle = (share + about / 2) / (1 + about)
    away = _Z * sqrt(max(0.0, share * (1 - share) / looks + about / (4 * looks))) / (1 + about)
    return max(0.0, middle - away), min(1.0, middle + away)
