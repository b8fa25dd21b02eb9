"""The program under test: how its model, batches and loss are made, the same in every check."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from muster.train.checkpoint.rng import rng_state, set_rng_state
from muster.train.preflight.nests import cloned, tensors

SEED: Final = 20_231
LossFn = Callable[[Any, Any], Any]


class Unusable(Exception):
    """The program can't be looked at in this way; the message says what is wrong and what to do."""

    def __init__(self, what: str, hint: str = "") -> None:
        super().__init__(what)
        self.hint = hint


class Undecided(Unusable):
    """The same, where that does not show a mistake."""


class Steps(Protocol):
    """One step of training on micro-batches: gradients, their reduction, the optimizer's step."""

    def __call__(self, model: Any, optimizer: Any, batches: list[Any], /) -> Any: ...


@dataclass(frozen=True)
class Made:
    """What `build` gave."""

    model: nn.Module
    optimizers: list[Optimizer]
    schedules: list[Any]  # whatever else has a `step`
    raw: Any  # the optimizer or optimizers in the form in which `build` gave them

    def trainable(self) -> dict[str, nn.Parameter]:
        """The parameters with `requires_grad`, by name; a shared one once."""
        return {name: each for name, each in self.model.named_parameters() if each.requires_grad}

    def rates(self) -> list[float]:
        """The learning rates."""
        return [float(group["lr"]) for each in self.optimizers for group in each.param_groups if "lr" in group]


@dataclass(frozen=True)
class Program:
    """The functions of the hook. See `hook.check` for what each of them is given and returns."""

    build: Callable[[], Any]
    batch: Callable[[int], Any]
    loss: LossFn
    outputs: LossFn | None = None
    labels: Callable[[Any], Tensor] | None = None
    mask: Callable[[Any], Tensor] | None = None
    step: Steps | None = None
    causal: bool | None = None
    distributed: bool = False
    name: str = "a program"
    notes: tuple[str, ...] = ()
    lowers_to: float = 0.5  # what part of the loss on one batch is left when it is overfitted
    _kept: dict[int, Any] = field(default_factory=dict, repr=False)

    def make(self, seed: int = SEED) -> Made:
        """A new model and its optimizers, with seeded generators."""
        seed_all(seed)
        return _sorted_out(self.build())

    def take(self, number: int = 0) -> Any:
        """A copy of a batch. Each is asked for once, as a program may read on with every call."""
        if number not in self._kept:
            seed_all(SEED + number)
            found = self.batch(number)
            if not any(True for _ in tensors(found)):
                kind = type(found).__name__
                raise Unusable(
                    f"batch({number}) returned {kind} without a tensor",
                    "Return a tensor, or a dictionary, list, tuple or dataclass of tensors.",
                )
            self._kept[number] = cloned(found)
        return cloned(self._kept[number])

    def value(self, model: nn.Module, batch: Any, seed: int = SEED) -> Tensor:
        """The loss of a batch, with its graph: one number."""
        seed_all(seed)
        found = self.loss(model, batch)
        if not isinstance(found, Tensor):
            kind = type(found).__name__
            raise Unusable(f"loss returned {kind}", "Return the scalar tensor, before `.item()`.")
        if found.numel() != 1:
            raise Unusable(f"loss has the shape {list(found.shape)}", "Return one number: its mean or its sum.")
        return found.reshape(())

    def output(self, model: nn.Module, batch: Any, seed: int = SEED) -> Tensor:
        """The output that the loss is computed from, without a graph."""
        assert self.outputs is not None
        seed_all(seed)
        with torch.no_grad():
            found = self.outputs(model, batch)
        if not isinstance(found, Tensor):
            kind = type(found).__name__
            raise Unusable(f"outputs returned {kind}", "Return the tensor that the loss is computed from.")
        return found.detach()

    def train_on(self, made: Made, batches: list[Any]) -> float:
        """One step of training, by the program's own `step` if it gave one. Returns the loss, NaN if it is not told."""
        if self.step is not None:
            found = self.step(made.model, made.raw, batches)
            return float(found) if isinstance(found, Tensor | float | int) else float("nan")
        for each in made.optimizers:
            each.zero_grad(set_to_none=True)
        total = self.loss(made.model, batches[0])
        total.backward()
        for each in made.optimizers:
            each.step()
        for each in made.schedules:
            each.step()
        return float(total.detach())


def seed_all(seed: int) -> None:
    """Python's, NumPy's and torch's generators."""
    random.seed(seed)
    np.random.seed(seed & 0xFFFF_FFFF)
    torch.manual_seed(seed)


@contextmanager
def generators_kept() -> Iterator[None]:
    """The caller's generators are as before afterwards."""
    before, devices = rng_state(), torch.are_deterministic_algorithms_enabled()
    try:
        yield
    finally:
        set_rng_state(before)
        torch.use_deterministic_algorithms(devices)


def quiet(model: nn.Module) -> None:
    """Dropout off, and batch norm by its running statistics in training too: a sum over parts is that of the whole."""
    for module in model.modules():
        if isinstance(module, nn.modules.dropout._DropoutNd):
            module.p = 0.0
        elif isinstance(getattr(module, "dropout", None), float):
            setattr(module, "dropout", 0.0)  # noqa: B010 - of attention and recurrent layers; mypy knows no such name
        if isinstance(module, nn.modules.batchnorm._BatchNorm) and module.track_running_stats:
            module.eval()
            setattr(module, "train", _stays(module))  # noqa: B010 - on this object alone


def last_line(error: BaseException) -> str:
    """What an exception says, without the way there."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[-1] if lines else 'no message'}"


def _stays(module: nn.Module) -> Callable[..., nn.Module]:
    def train(mode: bool = True) -> nn.Module:
        return module

    return train


def _sorted_out(given: Any) -> Made:
    parts: Sequence[Any] = given if isinstance(given, tuple | list) else [given]
    if not parts or not isinstance(parts[0], nn.Module):
        kind = type(parts[0]).__name__ if parts else "nothing"
        raise Unusable(f"build returned {kind} first", "Return the model, or (model, optimizer).")
    raw = parts[1] if len(parts) > 1 else None
    flat: list[Any] = []
    for part in parts[1:]:
        flat += list(part.values()) if isinstance(part, dict) else part if isinstance(part, list | tuple) else [part]
    optimizers = [each for each in flat if isinstance(each, Optimizer)]
    others = [each for each in flat if not isinstance(each, Optimizer) and hasattr(each, "step")]
    return Made(parts[0], optimizers, others, raw)
