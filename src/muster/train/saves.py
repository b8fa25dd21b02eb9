"""When to save: by steps, by seconds, or automatically from measured costs and failures."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Final

from muster import runtime
from muster.train.checkpoint import Choice, Saving, choose, failures_per_second
from muster.train.config import Checkpoints, Every

FIRST_SECONDS: Final = 60.0  # seconds before the first save of `every: auto`, which measures the cost


@dataclass(slots=True)
class Cadence:
    """Decides when a save is due: by the step on every rank, by the clock on the first rank only."""

    every: Every
    failures: float  # failures per second, of the whole run
    chosen: str = ""  # the interval of `auto`, and its reason
    seen: Saving | None = None  # the last save whose cost was measured
    _saved: float = field(default_factory=time.monotonic)
    _seconds: float | None = None

    def due_at(self, step: int) -> bool:
        """Whether a save is due after this step; the same on every rank."""
        return self.every.steps is not None and step % self.every.steps == 0

    def due_now(self) -> bool:
        """Whether a save is due by this rank's clock."""
        if self.every.steps is not None:
            return False
        seconds = self.every.seconds or self._seconds or FIRST_SECONDS
        return time.monotonic() - self._saved >= seconds

    def started(self) -> None:
        """A save begins: restarts the clock."""
        self._saved = time.monotonic()

    def measured(self, saving: Saving) -> str | None:
        """Takes the cost of a finished save. For `auto`, returns the new interval if it has changed notably."""
        self.seen = saving
        if self.every.steps or self.every.seconds or saving.error is not None:
            return None
        choice: Choice = choose(saving.stall_seconds, saving.seconds, saving.bytes, self.failures)
        before, self._seconds = self._seconds, choice.seconds
        if before is not None and abs(choice.seconds - before) < 0.25 * before:
            return None
        self.chosen = choice.why
        return choice.why


def cadence(settings: Checkpoints, world: int) -> Cadence:
    """The cadence from the configuration, else from the job file, else `auto`."""
    asked = runtime.checkpoint_every()
    every = settings.every or (Every(seconds=asked) if asked else Every())
    daily = settings.failures_per_day
    return Cadence(every, daily / 86400 if daily else failures_per_second(world))
