"""How far a replay is, and what it says so far: the figures that are shown while it goes on."""

from __future__ import annotations

from dataclasses import dataclass

from muster.sim.model import JobResult


@dataclass(frozen=True, slots=True)
class Partial:
    """A replay at one moment. Means are of the jobs that have finished, among which short ones come first."""

    share: float  # of the jobs: finished or refused
    finished: int
    waiting: int
    running: int
    completion: float | None  # mean so far, in seconds
    queueing: float | None


class Tally:
    """Sums over the jobs that have finished; the clock of a replay runs `zero` seconds ahead of its trace."""

    def __init__(self, zero: float) -> None:
        self._zero = zero
        self.finished = 0
        self._completion = 0.0
        self._queueing = 0.0

    def add(self, job: JobResult) -> None:
        self.finished += 1
        self._completion += job.completion - self._zero
        self._queueing += job.queueing - self._zero

    def partial(self, share: float, waiting: int, running: int) -> Partial:
        done = self.finished
        means = (self._completion / done, self._queueing / done) if done else (None, None)
        return Partial(share, done, waiting, running, *means)
