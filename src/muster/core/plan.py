"""What a scheduling round decided: gangs to start, each with its seats, made from one version of the state."""

from __future__ import annotations

from dataclasses import dataclass, field

from muster.core.job import Seat


@dataclass(frozen=True, slots=True)
class Start:
    job: str
    seats: tuple[Seat, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    version: int
    starts: tuple[Start, ...] = ()
    wake_at: float | None = field(default=None)  # when time alone could change the answer
