"""The interface of a task: a model, a loss and data, as a class with five methods.

    class Sines:                                              # task: my_module:Sines
        unit = "points"                                       # the name of an item in reports

        @dataclass(frozen=True)
        class Settings:                                       # the section `model` of the configuration
            width: int = 32

        def __init__(self, settings: Settings, config: Config) -> None: ...
        def build(self) -> nn.Module: ...                     # with initial weights: the seed is set
        def data(self, split) -> Data | None: ...             # "train" or "evaluate"
        def inputs(self, batch) -> tuple[Tensor, ...]: ...    # the arguments of the model's forward
        def loss(self, output, batch) -> Tensor: ...          # SUM over the items of the batch
        def items(self, arrays) -> int: ...                   # their number; from NumPy arrays, on the host

The loop divides the sum over all ranks and micro-batches by the number of all items, so a step's gradient is that of
the mean over the global batch, in any layout. A model that implements `models.parts.Divisible` supports tensor and
pipeline parallelism; any other module supports DDP and FSDP.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, runtime_checkable

from torch import Tensor, nn

from muster.data.collate import Arrays, Collate
from muster.data.dataset import Dataset
from muster.data.loader import Decode
from muster.train.errors import Problem
from muster.train.settings import nearest, read

if TYPE_CHECKING:
    from muster.train.config import Config

Split = Literal["train", "evaluate"]
Tensors = dict[str, Tensor]

TASKS: Final = {
    "language": "muster.train.tasks.language:Language",
    "classify": "muster.train.tasks.classify:Classify",
}


@dataclass(frozen=True, slots=True)
class Supply:
    """Samples by number, with a weight and a name, which is part of the shuffle's key and of the ledger."""

    name: str
    samples: Dataset
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Data:
    """The data for training or evaluation. `decode` changes each sample, such as a JPEG to pixels (see its type);
    `collate` converts the samples of a micro-batch to arrays."""

    supplies: Sequence[Supply]
    collate: Collate
    decode: Decode | None = None


@runtime_checkable
class Task(Protocol):
    """See the module. `unit` is the name of an item: tokens, images."""

    unit: str

    def build(self) -> nn.Module: ...

    def data(self, split: Split) -> Data | None: ...

    def inputs(self, batch: Tensors) -> tuple[Tensor, ...]: ...

    def loss(self, output: Any, batch: Tensors) -> Tensor: ...

    def items(self, arrays: Arrays) -> int: ...


@runtime_checkable
class Initialises(Protocol):
    """A task that fills its model's initial weights itself. The model is built on the meta device and divided first, so
    no process holds more than its own part. The weights must not depend on the layout."""

    def initialise(self, part: nn.Module, seed: int) -> None: ...


@runtime_checkable
class FillsParameters(Initialises, Protocol):
    """One whose `initialise` does no more than to set parameters, so that a part that is restored from a checkpoint can
    do without it: `fills_parameters_only = True`."""

    fills_parameters_only: bool


@runtime_checkable
class Counts(Protocol):
    """A task that knows its model's FLOPs per item, forward and backward: then MFU is reported."""

    def flops(self) -> float: ...


@runtime_checkable
class Measures(Protocol):
    """A task with additional evaluation metrics: named scalars, each a sum over the items of a batch."""

    measures: Sequence[str]  # the names

    def measure(self, output: Any, batch: Tensors) -> Mapping[str, Tensor]: ...


def make(config: Config, problems: list[Problem]) -> Task | None:
    """The task that a configuration names; None if there is none: then `problems` has the reasons."""
    found = _find(config.task, problems)
    if found is None:
        return None
    settings: Any = config.model
    kind = getattr(found, "Settings", None)
    if kind is not None:
        settings = read(kind, config.model, problems, "model")
        if settings is None:
            return None
    missing = [name for name in ("unit", "build", "data", "inputs", "loss", "items") if not hasattr(found, name)]
    if missing:
        expected = f"a class with {', '.join(missing)}"
        problems.append(Problem("task", f"{config.task!r} without {', '.join(missing)}", expected))
        return None
    made: Task = found(settings, config)
    return made


def _find(name: str, problems: list[Problem]) -> Any:
    module, _, attribute = TASKS.get(name, name).partition(":")
    if not attribute:
        expected = f"one of {', '.join(TASKS)}, or package.module:Class"
        problems.append(Problem("task", repr(name), expected, nearest(name, TASKS)))
        return None
    here = str(Path.cwd())
    if here not in sys.path:  # so that `torchrun -m` and `python -m` both find a module in the configuration's folder
        sys.path.insert(0, here)
    try:
        return getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        if error.name is None or not module.startswith(error.name):
            raise  # the module exists, but not what it imports
        problems.append(Problem("task", repr(name), f"a module that can be imported from {here}", str(error)))
    except AttributeError:
        problems.append(Problem("task", repr(name), f"a class of the module {module}", f"It has no {attribute!r}."))
    return None
