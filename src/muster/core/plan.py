"""What a scheduling round decided, made from one version of the state.

Gangs to start, each with its seats; gangs to stop so that others can start; and the seats that are kept for those
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
class Yield:
    """A running gang that is asked to save, and is queued again with its place kept."""

    job: str
    reason: Reason
    grace: float  # seconds


@dataclass(frozen=True, slots=True)
class Claim:
    """The seats that a queued job waits for, kept from everyone else; none lets go of them."""

    job: str
    seats: tuple[Seat, ...] = ()


@dataclass(frozen=True, slots=True)
class Plan:
    version: int
    starts: tuple[Start, ...] = ()
    wake_at: float | None = field(default=None)  # when time alone could change the answer
    yields: tuple[Yield, ...] = ()
    claims: tuple[Claim, ...] = ()
