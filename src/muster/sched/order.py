"""The policy seam: in which order the queued jobs of a queue may start."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from muster.core.job import Job
from muster.core.state import Line, State


class Policy(Protocol):
    """Deterministic; nobody starves under a bounded load."""

    name: str

    def order(self, queued: Line, state: State, now: float) -> Iterator[Job]:
        """The jobs that may start now, best first. Lazily: a round looks no further than it needs to."""

    def passes(self, job: Job) -> bool:
        """Whether jobs behind `job` may start although it can't."""
