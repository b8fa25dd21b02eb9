"""The content of a checkpoint, as the training loop provides it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from torch import Tensor

from muster.train.errors import CheckpointError

MODEL: Final = "model/"  # prefix of the model tensors' keys in a checkpoint
OPTIM: Final = "optim/"


@dataclass(slots=True)
class Snapshot:
    """The state of one rank at a step.

    A key of `model` is a parameter's full name and one of `optim` is `<parameter>.<state>`, the same in every layout; a
    value is a plain tensor (the same on every rank that has it) or a DTensor (each rank has its part). `optim` may also
    contain plain values. A rank has only the keys of its own pipeline stage.
    """

    model: dict[str, Tensor]
    optim: dict[str, Any] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)  # only this rank's: random number generators
    shared: dict[str, Any] = field(default_factory=dict)  # the same on all ranks: `step` must be in it

    @property
    def step(self) -> int:
        found = self.shared.get("step")
        if not isinstance(found, int) or found < 0:
            raise CheckpointError(f"snapshot: shared['step'] got {found!r}; expected a whole number, 0 or more.")
        return found

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """All tensors by their keys in a checkpoint."""
        for prefix, part in ((MODEL, self.model), (OPTIM, self.optim)):
            for name, value in part.items():
                if isinstance(value, Tensor):
                    yield prefix + name, value

    def values(self) -> dict[str, Any]:
        """Values in the state of model and optimizer that are not tensors."""
        parts = ((MODEL, self.model), (OPTIM, self.optim))
        return {p + name: value for p, part in parts for name, value in part.items() if not isinstance(value, Tensor)}
