"""What a user brings: a model, a loss and data, as a class with five methods.

    class Sines:                                              # task: my_module:Sines
        unit = "points"                                       # what an item is called in reports

        @dataclass(frozen=True)
        class Settings:                                       # the section `model` of the configuration
            width: int = 32

        def __init__(self, settings: Settings, config: Config) -> None: ...
        def build(self) -> nn.Module: ...                     # with first weights: the seed is set
        def data(self, split) -> Data | None: ...             # "train" or "evaluate"
        def inputs(self, batch) -> tuple[Tensor, ...]: ...    # what the model's forward is called with
        def loss(self, output, batch) -> Tensor: ...          # SUM over the items of the batch
        def items(self, arrays) -> int: ...                   # how many those are; NumPy arrays, on the host

The loop divides the sum of all ranks and micro-batches by the number of all items, so a step's gradient is that of the
mean over the global batch whatever the layout. A model that offers what `models.parts.Divisible` asks for can be
divided by tensor and pipeline parallelism; any other module by data parallelism and fully sharded.
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
    """Samples by number, with a name (it keys their shuffle and enters the ledger) and a weight in every batch."""

    name: str
    samples: Dataset
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Data:
    """What a task trains or is evaluated on; `collate` turns the samples of a micro-batch into arrays."""

    supplies: Sequence[Supply]
    collate: Collate


@runtime_checkable
class Task(Protocol):
    """See the module. `unit` is what an item is called: tokens, images."""

    unit: str

    def build(self) -> nn.Module: ...

    def data(self, split: Split) -> Data | None: ...

    def inputs(self, batch: Tensors) -> tuple[Tensor, ...]: ...

    def loss(self, output: Any, batch: Tensors) -> Tensor: ...

    def items(self, arrays: Arrays) -> int: ...


@runtime_checkable
class Initialises(Protocol):
    """A task that fills its model's first weights itself. Its model is then built on the meta device and divided first,
    so that no process ever holds more than its own part; the part's weights must not depend on how it was divided."""

    def initialise(self, part: nn.Module, seed: int) -> None: ...


@runtime_checkable
class Counts(Protocol):
    """A task that knows its model's FLOPs an item, forward and backward: then MFU is reported."""

    def flops(self) -> float: ...


@runtime_checkable
class Measures(Protocol):
    """A task whose evaluation gives more than the loss: scalars, each a sum over the items of a batch, by name."""

    measures: Sequence[str]  # the names

    def measure(self, output: Any, batch: Tensors) -> Mapping[str, Tensor]: ...


def make(config: Config, problems: list[Problem]) -> Task | None:
    """The task that a configuration names; None, with what is wrong added to `problems`, when there is none."""
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
    if here not in sys.path:  # `torchrun -m` and `python -m` find a module beside the configuration alike
        sys.path.insert(0, here)
    try:
        return getattr(importlib.import_module(module), attribute)
    except ModuleNotFoundError as error:
        if error.name is None or not module.startswith(error.name):
            raise  # the module is there; what it imports is not
        problems.append(Problem("task", repr(name), f"a module that can be imported from {here}", str(error)))
    except AttributeError:
        problems.append(Problem("task", repr(name), f"a class of the module {module}", f"It has no {attribute!r}."))
    return None
