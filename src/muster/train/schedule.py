"""The learning rate over a run: a linear warm-up, then a cosine, a line, or a constant with a decay at the end."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from muster.train.settings import bounded


@dataclass(frozen=True, slots=True)
class Schedule:
    """The factor of the learning rate at each step; a pure function of the step, without state."""

    kind: Literal["cosine", "linear", "constant"] = "cosine"
    warmup: int = bounded(0, low=0)  # steps until the full learning rate
    floor: float = bounded(0.1, low=0, high=1)  # final factor
    decay: int = bounded(0, low=0)  # for `constant`: final steps with a linear decay to the floor
    steps: int | None = bounded(None, low=1)  # step at which the floor is reached; default: the run's last

    def factor(self, step: int, total: int) -> float:
        """The factor of step 0, 1, ... of `total`. The floor is reached after the last step: no step has factor 0."""
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
        """A problem of the schedule with `total` steps; None if there is none."""
        end = self.steps or total
        if self.warmup >= end:
            return f"warmup {self.warmup} leaves none of the {end} steps for the rest of the schedule"
        if self.kind == "constant" and self.warmup + self.decay > end:
            return f"warmup {self.warmup} + decay {self.decay} = {self.warmup + self.decay} is past the {end} steps"
        if self.kind != "constant" and self.decay:
            return f"decay {self.decay} is of the constant schedule; {self.kind} falls by itself"
        return None
