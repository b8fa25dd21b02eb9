"""When to save: every so many steps, every so many seconds, or as measured costs and failures suggest."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Final

from muster import runtime
from muster.train.checkpoint import Choice, Saving, choose, failures_per_second
from muster.train.config import Checkpoints, Every

FIRST_SECONDS: Final = 60.0  # before the first save of `every: auto`, which measures what a save costs


@dataclass(slots=True)
class Cadence:
    """Says when a save is due. Steps are the same on every rank; of clocks it is the first rank's that counts."""

    every: Every
    failures: float  # a second, of the whole run
    chosen: str = ""  # what `auto` chose and why
    seen: Saving | None = None  # the last save whose cost was taken
    _saved: float = field(default_factory=time.monotonic)
    _seconds: float | None = None

    def due_at(self, step: int) -> bool:
        """After so many steps: every rank finds the same."""
        return self.every.steps is not None and step % self.every.steps == 0

    def due_now(self) -> bool:
        """By this rank's clock."""
        if self.every.steps is not None:
            return False
        seconds = self.every.seconds or self._seconds or FIRST_SECONDS
        return time.monotonic() - self._saved >= seconds

    def started(self) -> None:
        """A save begins: the clock starts anew."""
        self._saved = time.monotonic()

    def measured(self, saving: Saving) -> str | None:
        """Takes what a finished save cost; for `auto`, what is chosen from it when that has changed notably."""
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
    """By the configuration; where it says nothing by the job file, and else `auto`."""
    asked = runtime.checkpoint_every()
    every = settings.every or (Every(seconds=asked) if asked else Every())
    daily = settings.failures_per_day
    return Cadence(every, daily / 86400 if daily else failures_per_second(world))
