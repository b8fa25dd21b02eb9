"""What is kept of a training to compare it with its continuation: a state at the save, and what each step did."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from muster.train.checkpoint.rng import rng_state
from muster.train.preflight.nests import digest, tensors

RATES = ("lr", "initial_lr")  # what a schedule changes in an optimizer's groups


@dataclass(frozen=True, slots=True)
class State:
    """Digests by name, at the save or after the load. None: the training shows no such thing."""

    weights: dict[str, str] | None = None
    optimizer: dict[str, str] | None = None
    schedule: dict[str, str] | None = None


@dataclass(frozen=True, slots=True)
class StepTrace:
    """One step: its metrics, the learning rates that it used, its batch, and the generators after it."""

    metrics: dict[str, float]
    rates: list[float] | None = None
    batch: str | None = None
    generators: str | None = None


@dataclass(frozen=True, slots=True)
class Trace:
    """A training of one process. `saved` is the state at the save, or after the load."""

    steps: list[StepTrace]
    saved: State
    generators: str = ""  # at the save, or after the load
    notes: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Parts:
    """The objects of a training that can be looked at."""

    models: list[nn.Module]
    optimizers: list[Optimizer]
    schedules: list[Any]

    @classmethod
    def found_in(cls, holder: Any) -> Parts:
        """The attributes of an object, and what is in its lists and dictionaries."""
        values: list[Any] = []
        for each in vars(holder).values() if hasattr(holder, "__dict__") else ():
            values += list(each.values()) if isinstance(each, dict) else each if isinstance(each, list) else [each]
        models = [each for each in values if isinstance(each, nn.Module)]
        optimizers = [each for each in values if isinstance(each, Optimizer)]
        schedules = [each for each in values if isinstance(each, torch.optim.lr_scheduler.LRScheduler)]
        return cls(models, optimizers, schedules)

    def state(self) -> State:
        return State(
            weights=_by_name([dict(each.state_dict()) for each in self.models]) if self.models else None,
            optimizer=_by_name([optimizer_state(each) for each in self.optimizers]) if self.optimizers else None,
            schedule=_by_name([_plain(each.state_dict()) for each in self.schedules]) if self.schedules else None,
        )

    def rates(self) -> list[float] | None:
        if not self.optimizers:
            return None
        return [float(group["lr"]) for each in self.optimizers for group in each.param_groups if "lr" in group]


def optimizer_state(optimizer: Optimizer) -> dict[str, Any]:
    """Its tensors, and its settings but for the learning rate, by parameter and group."""
    whole = optimizer.state_dict()
    states = {f"{key} of parameter {index}": each for index, one in whole["state"].items() for key, each in one.items()}
    groups = {
        f"{key} of group {index}": each
        for index, group in enumerate(whole["param_groups"])
        for key, each in group.items()
        if key != "params" and key not in RATES
    }
    return {**states, **groups}


def generators() -> str:
    """A digest of Python's, NumPy's and torch's generators."""
    return digest(rng_state())


def metrics_of(given: Any) -> dict[str, float]:
    """Numbers by name from what a step returned: a loss, or a mapping with one."""
    named = given if isinstance(given, Mapping) else {"loss": given}
    found = {}
    for name, value in named.items():
        if isinstance(value, Tensor):
            value = value.detach().float().sum().item()
        if isinstance(value, int | float):
            found[str(name)] = float(value)
    return found


def batch_digest(holder: Any) -> str | None:
    """Of the last batch, if the training keeps it as `batch`."""
    batch = getattr(holder, "batch", None)
    return digest(batch) if any(True for _ in tensors(batch)) else None


def _by_name(parts: list[dict[str, Any]]) -> dict[str, str]:
    several = len(parts) > 1
    return {
        f"{index}.{name}" if several else name: digest(value)
        for index, part in enumerate(parts)
        for name, value in part.items()
    }


def _plain(state: Mapping[str, Any]) -> dict[str, Any]:
    """Without functions, whose text names a place in memory."""
    return {name: value for name, value in state.items() if not callable(value) and name != "lr_lambdas"}
