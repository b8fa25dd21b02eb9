"""What a run will cost: its likely run time at the prices of these hours, and what interruptions add to it."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, expm1, inf
from typing import Final, Literal, NamedTuple

from muster.core.history import History, groups_of
from muster.core.prices import SECOND, Prices, Quantity, amount
from muster.core.spec import JobSpec
from muster.core.windows import opens

HOUR: Final = 3600.0
RESTART: Final = 300.0  # seconds that a gang needs to start again after an interruption
SEEN: Final = 10.0  # node-hours of a spot pool from which on its history says something
ENDS: Final = 2.0  # weight of finished jobs of a name and size from which on their run time is used
_MOST: Final = 50.0  # interruptions of one run; with more the run hardly ever ends


class RunTime(NamedTuple):
    """Seconds that a job runs; `p90` is None if nothing limits it."""

    p50: float
    p90: float | None
    source: Literal["learnt", "max_duration", "assumed"]


@dataclass(frozen=True, slots=True)
class SpotRisk:
    """How often the nodes of a spot pool were taken away: interruptions, and the node-hours in which they happened."""

    interruptions: int = 0
    hours: float = 0.0

    @property
    def known(self) -> bool:
        return self.hours >= SEEN

    @property
    def rate(self) -> float:
        """Interruptions of a node in an hour."""
        return self.interruptions / self.hours if self.hours else 0.0

    def chance(self, nodes: int, seconds: float) -> float:
        """The probability that a gang is interrupted at least once."""
        return 1 - exp(-self.rate * nodes * seconds / HOUR)


def run_time(history: History, user: str, spec: JobSpec, assumed: float) -> RunTime:
    """From how long such jobs ran; else from `max_duration`; else `assumed` seconds."""
    most = inf if spec.max_duration is None else spec.max_duration
    if history.known:
        groups = groups_of(user, spec)
        p50, p90 = (min(history.quantile(groups, share), most) for share in (0.5, 0.9))
        return RunTime(p50, p90, "learnt")
    if spec.max_duration is not None:
        return RunTime(min(assumed, most), most, "max_duration")
    return RunTime(assumed, None, "assumed")


def at_size(history: History, user: str, spec: JobSpec, nodes: int) -> RunTime | None:
    """The run time on so many nodes; None if no job of this name has run on as many."""
    there = spec.model_copy(update={"num_nodes": nodes, "min_nodes": None})
    groups = groups_of(user, there)
    table = history.groups.get(groups[-1])
    if table is None or not history.known or sum(table.ended) < ENDS * 0.9:
        return None
    return run_time(history, user, there, 0.0)


def cost_between(prices: Prices, pool: str, held: Quantity, start: float, seconds: float) -> int | None:
    """Millionths for so many seconds from `start` on; None if a part of them has no price."""
    begin = round(start * SECOND)
    total = 0
    for span in prices.spans(pool, held, begin, begin + round(seconds * SECOND)):
        if span.nanos is None:
            return None
        total += amount(span.nanos, span.end - span.begin)
    return total


def with_interruptions(risk: SpotRisk, nodes: int, seconds: float, save_every: float | None) -> float:
    """The expected seconds until so many seconds of work are done, with the work that is done again.

    With saves, an interruption costs half an interval and the restart. Without any, all work since the start is lost.
    """
    rate = risk.rate * nodes / HOUR
    if not rate:
        return seconds
    if save_every is not None and save_every < seconds:
        lost = rate * (save_every / 2 + RESTART)
        return min(seconds / (1 - lost) if lost < 1 else inf, seconds * _MOST)
    return min(expm1(min(rate * seconds, _MOST)) * (1 / rate + RESTART), seconds * _MOST)


def quiet_start(prices: Prices, pool: str, start: float) -> float | None:
    """When the next hours with a lower price begin; None if there are none, or `start` is in them already."""
    price = prices.at(pool, start)
    if price is None or not price.off_peak or price.off_peak_share >= 1000:
        return None
    at = opens(price.off_peak, start)
    return at if at > start and prices.at(pool, at) == price else None
