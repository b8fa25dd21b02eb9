"""The result of a scheduling round, computed from one version of the state.

Gangs to start, each with its seats; gangs to stop so that others can start; and the seats that are reserved for those
others until they are free.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from muster.core.job import Seat
from muster.core.reasons import Reason


@dataclass(frozen=True, slots=True)
class Start:
    job: str
    seats: tuple[Seat, ...]


@dataclass(frozen=True, slots=True)
class Preempt:
    """A running gang that is asked to save a checkpoint and is then queued again with its position kept."""

    job: str
    reason: Reason
    grace: float  # seconds


@dataclass(frozen=True, slots=True)
class Claim:
    """The seats that a queued job waits for, reserved for it. No seats: the reservation is released."""

    job: str
    seats: tuple[Seat, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    version: int
    starts: tuple[Start, ...] = ()
    wake_at: float | None = field(default=None)  # when the result could change through time alone
    yields: tuple[Preempt, ...] = ()
    claims: tuple[Claim, ...] = ()
