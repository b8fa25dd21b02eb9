"""The learning rate over a run: a linear warm-up, then a cosine, a line, or a constant with a decay at the end."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from muster.train.settings import bounded


@dataclass(frozen=True, slots=True)
class Schedule:
    """What multiplies the optimizer's learning rate at each step; a pure function of the step, so it has no state."""

    kind: Literal["cosine", "linear", "constant"] = "cosine"
    warmup: int = bounded(0, low=0)  # steps until the full rate
    floor: float = bounded(0.1, low=0, high=1)  # share of the full rate that is left at the end
    decay: int = bounded(0, low=0)  # of `constant`: how many steps at the end fall in a line to the floor
    steps: int | None = bounded(None, low=1)  # where the floor is reached; the run's steps when not given

    def factor(self, step: int, total: int) -> float:
        """Of step 0, 1, ... of a run of `total`. The floor is reached after the last, so none is wasted at zero."""
        end = self.steps or total
        if step < self.warmup:
            return (step + 1) / self.warmup
        if self.kind == "constant":
            left = max(0, end - step)
            return 1.0 if left >= self.decay else self.floor + (1 - self.floor) * left / self.decay
        done = min(1.0, (step - self.warmup) / (end - self.warmup))
        fallen = (1 - math.cos(math.pi * done)) / 2 if self.kind == "cosine" else done
        return 1 - (1 - self.floor) * fallen

    def wrong(self, total: int) -> str | None:
        """What does not fit a run of `total` steps; None when all does."""
        end = self.steps or total
        if self.warmup >= end:
            return f"warmup {self.warmup} leaves none of the {end} steps for the rest of the schedule"
        if self.kind == "constant" and self.warmup + self.decay > end:
            return f"warmup {self.warmup} + decay {self.decay} = {self.warmup + self.decay} is past the {end} steps"
        if self.kind != "constant" and self.decay:
            return f"decay {self.decay} is of the constant schedule; {self.kind} falls by itself"
        return None
