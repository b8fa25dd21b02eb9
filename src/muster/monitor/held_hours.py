"""The time that a run held nodes and accelerators, and how long its starts took.

A gang holds its seats from the time they are planned until its attempt has ended, whether it trains or not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from muster.core.job import Attempt
from muster.core.resources import WHOLE
from muster.core.seat import Seat

_HOUR: Final = 3600.0


@dataclass(frozen=True, slots=True)
class HeldHours:
    node_hours: float
    accelerator_hours: float  # parts of an accelerator count as fractions
    startup: float  # seconds from the plan to the start of the first rank, over all attempts


def held_hours(attempts: Sequence[Attempt], now: float) -> HeldHours:
    nodes = accelerators = startup = 0.0
    for attempt in attempts:
        end = attempt.ended_at if attempt.ended_at is not None else now
        hours = max(end - attempt.planned_at, 0.0) / _HOUR
        held = sum(_accelerators(worker.seat) for worker in attempt.workers)
        nodes += hours * len(attempt.workers)
        accelerators += hours * held
        startup += max((attempt.running_at if attempt.running_at is not None else end) - attempt.planned_at, 0.0)
    return HeldHours(nodes, accelerators, startup)


def _accelerators(seat: Seat) -> float:
    return len(seat.devices) * seat.share / WHOLE
