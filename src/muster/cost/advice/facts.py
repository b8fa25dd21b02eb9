"""What advice is made from: runs with what they cost and used, pools with their prices and demand; and its shape."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from muster.core.money import format_amount
from muster.core.prices import Prices
from muster.core.resources import WHOLE
from muster.cost.estimate import SpotRisk

MONTH: Final = 30.0  # days
MONTH_HOURS: Final = 730.0  # the mean, as clouds count
URGENT: Final = 51  # priorities from this on are not made to wait
Confidence = Literal["measured", "estimated", "untested"]


@dataclass(frozen=True, slots=True)
class RunFact:
    """A run in one pool, within the time that is looked at. None: not known."""

    run: str
    project: str
    name: str  # without the number at its end: the runs of one template share it
    pool: str
    amount: int  # millionths, whoever pays
    begin: float
    hours: float  # for which it held its nodes
    kind: str = "train"
    phase: str = "succeeded"
    code: str = ""  # the version of its code
    nodes: int = 1
    accelerators: int = 0  # on each node
    accelerator: str = ""
    share: int = WHOLE  # thousandths of each accelerator
    priority: int = 50
    deadline: bool = False
    use_spot: bool = False
    off_peak: bool = False
    parent: str = ""
    device_use: float | None = None  # mean, 0 to 1
    memory_share: float | None = None  # the highest, 0 to 1
    device_memory: int | None = None  # bytes of one device
    idle_share: float | None = None  # of the time, with all devices idle
    save_every: float | None = None  # seconds between two saves
    save_seconds: float | None = None  # that a save takes
    score: float | None = None  # of its evaluation; lower is better

    @property
    def waits(self) -> bool:
        """Whether it may wait, or be interrupted."""
        return self.priority < URGENT and not self.deadline and self.kind != "session"

    @property
    def end(self) -> float:
        return self.begin + self.hours * 3600


@dataclass(frozen=True, slots=True)
class PoolFact:
    name: str
    accelerator: str = ""
    device_memory: int | None = None
    per_hour: int | None = None  # millionths for an accelerator now; None: no price
    price: str = ""  # the kind of price
    spot: bool = False
    slices: int = 1  # equal parts in which an accelerator may be shared
    quiet: bool = False  # whether the policy has quiet hours of it
    demand: tuple[tuple[float, float], ...] = ()  # accelerators in use, and for how many hours


@dataclass(frozen=True, slots=True)
class SweepFact:
    run: str
    project: str
    running: bool
    array: bool = False


@dataclass(frozen=True, slots=True)
class AdviceFacts:
    """`whole`: all projects are seen, and the demand of the pools with them."""

    now: float
    days: float  # that the facts cover
    prices: Prices
    runs: tuple[RunFact, ...] = ()
    pools: Mapping[str, PoolFact] = field(default_factory=dict)
    risks: Mapping[str, SpotRisk] = field(default_factory=dict)
    sweeps: tuple[SweepFact, ...] = ()
    failures: int = 0  # of machines and workers, and preemptions
    node_hours: float = 0.0  # in which they happened
    whole: bool = True
    reserve_price: int | None = None  # millionths for an hour of an accelerator that is reserved for a year
    buy_price: int | None = None  # millionths for an accelerator with its share of the machine

    def monthly(self, amount: float) -> int:
        return round(amount * MONTH / max(self.days, 1.0))

    def money(self, amount: float) -> str:
        return format_amount(
            round(amount / 10_000) * 10_000 if abs(amount) >= 1_000_000 else round(amount), self.currency
        )

    @property
    def during(self) -> str:
        days = round(self.days)
        return "in 1 day" if days == 1 else f"in {days} days"

    @property
    def currency(self) -> str:
        return self.prices.book.currency


@dataclass(frozen=True, slots=True)
class Advice:
    """`saves`: millionths a month. `arithmetic`: how that was computed, in words with the numbers.

    `confidence`: measured where others did the same, estimated from what was seen, untested where nobody has tried.
    """

    kind: str
    subject: str
    project: str  # "": the whole platform
    saves: int
    arithmetic: str
    command: str
    evidence: tuple[str, ...] = ()
    confidence: Confidence = "estimated"


Judge = Callable[[AdviceFacts], Iterable[Advice]]
_SHOWN: Final = 5  # runs that are named as evidence


def grouped(runs: Iterable[RunFact], *names: str) -> Iterator[list[RunFact]]:
    """Runs that are equal in these fields, the newest last."""
    groups: dict[tuple[object, ...], list[RunFact]] = {}
    for one in sorted(runs, key=lambda one: one.begin):
        groups.setdefault(tuple(getattr(one, name) for name in names), []).append(one)
    yield from groups.values()


def newest(runs: Iterable[RunFact]) -> tuple[str, ...]:
    """The ids of the newest of these runs, as evidence."""
    return tuple(dict.fromkeys(one.run for one in sorted(runs, key=lambda one: -one.begin)))[:_SHOWN]


def mean_use(runs: Iterable[RunFact]) -> float | None:
    """Of the devices, weighted by time; None if it is not known of any run."""
    known = [(one.device_use, one.hours) for one in runs if one.device_use is not None and one.hours > 0]
    hours = sum(time for _, time in known)
    return sum(use * time for use, time in known) / hours if hours else None


def runs_text(runs: Iterable[RunFact]) -> str:
    number = len({one.run for one in runs})
    return "1 run" if number == 1 else f"{number} runs"
