"""The resources that a run used and their cost: accelerator-hours by pool, at the pool's current price.

A gang holds its seats from the time they are planned until its attempt has ended, whether it trains or not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from muster.core.job import Attempt
from muster.core.resources import WHOLE
from muster.core.seat import Seat

_HOUR: Final = 3600.0


@dataclass(frozen=True, slots=True)
class Cost:
    node_hours: float
    accelerator_hours: float  # parts of an accelerator count as fractions
    amount: float  # in the currency of the prices
    startup: float  # seconds from the plan to the start of the first rank, over all attempts


def cost_of(attempts: Sequence[Attempt], price: Callable[[str], float], now: float) -> Cost:
    """`price`: of a pool, per accelerator and hour; per node and hour if the seats have no accelerators."""
    nodes = accelerators = amount = startup = 0.0
    for attempt in attempts:
        end = attempt.ended_at if attempt.ended_at is not None else now
        hours = max(end - attempt.planned_at, 0.0) / _HOUR
        held = sum(_accelerators(worker.seat) for worker in attempt.workers)
        nodes += hours * len(attempt.workers)
        accelerators += hours * held
        amount += hours * (held or len(attempt.workers)) * price(attempt.pool)
        startup += max((attempt.running_at if attempt.running_at is not None else end) - attempt.planned_at, 0.0)
    return Cost(nodes, accelerators, amount, startup)


def _accelerators(seat: Seat) -> float:
    return len(seat.devices) * seat.share / WHOLE
