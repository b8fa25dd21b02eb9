"""A user's own task, measured without a device: its model is run forward on fake tensors: no arithmetic.

Operations are counted by torch's own counter, activations by what autograd asks to keep for the backward pass.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from muster.planner.setups import Traced
from muster.planner.shapes import PlanError
from muster.train.config import Config, read_config
from muster.train.errors import ConfigError, Problem
from muster.train.models.parts import divisible
from muster.train.plan import build
from muster.train.task import Task, make

_SAMPLES = (2, 4)  # two sizes, so that what does not grow with the batch is left out


def trace(config: Config) -> Traced:
    """The model of the configuration's task, for one sample. Its data is opened: one sample shows the sizes."""
    problems: list[Problem] = []
    task = make(config, problems)
    if task is None:
        raise PlanError(str(ConfigError(problems)))
    data = task.data("train")
    if data is None or not data.supplies:
        raise PlanError("The task has no data to train on, of which a sample shows the sizes: name data.sources.")
    sample = data.supplies[0].samples.read(0)
    fake = FakeTensorMode(allow_non_fake_inputs=True)
    with fake:
        model = build(task, config.seed, problems)
    if model is None:
        raise PlanError(str(ConfigError(problems)))
    if any(each.is_meta for each in model.parameters()):
        with fake:
            model = model.to_empty(device="cpu")
    runs = [_run(task, model, fake, data.collate([sample] * count), config) for count in _SAMPLES]
    grown = {name: (runs[1][name] - runs[0][name]) / (_SAMPLES[1] - _SAMPLES[0]) for name in runs[0]}
    blocks = [sum(each.numel() for each in child.parameters()) for child in _blocks(model)]
    return Traced(
        parameters=sum(each.numel() for each in model.parameters()),
        largest_block=max(blocks, default=0),
        saved=grown["saved"],
        transient=grown["largest"],
        flops=3 * grown["flops"],
        moved=grown["moved"],
        kernels=int(runs[0]["kernels"]),
        unit=task.unit,
    )


def trace_mapping(raw: Mapping[str, Any]) -> Traced:
    """The same, from a configuration's mapping."""
    try:
        return trace(read_config(raw))
    except ConfigError as error:
        raise PlanError(str(error)) from error


class _Moved(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Adds up the bytes of every result, and counts the operations that have one."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.bytes, self.kernels = 0.0, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, Tensor) and not any(result is each or _views(result, each) for each in args):
            self.bytes += result.numel() * result.element_size()
            self.kernels += 1
        return result


def _views(result: Tensor, other: Any) -> bool:
    return isinstance(other, Tensor) and result._base is not None and result._base is other


def _run(task: Task, model: nn.Module, fake: FakeTensorMode, arrays: Any, config: Config) -> dict[str, float]:
    """One forward pass: operations, and bytes that are kept, each storage once and without the weights."""
    own = {each.untyped_storage()._cdata for each in (*model.parameters(), *model.buffers())}
    kept: dict[int, tuple[int, Any]] = {}  # the storage itself is held, so that its number is not given again

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in own:
            kept[storage._cdata] = (storage.nbytes(), storage)
        return tensor

    types = {name: torch.from_numpy(each).dtype for name, each in _named(arrays)}
    with fake:
        batch = {name: torch.empty(each.shape, dtype=types[name]) for name, each in _named(arrays)}
        with (
            FlopCounterMode(display=False) as counter,
            _Moved() as moved,
            torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor),
            config.precision.autocast(torch.device("cpu")),
        ):
            task.loss(model(*task.inputs(batch)), batch)
    sizes = [size for size, _ in kept.values()]
    return {
        "flops": float(counter.get_total_flops()),
        "saved": float(math.fsum(sizes)),
        "largest": float(max(sizes, default=0)),
        "moved": moved.bytes,
        "kernels": float(moved.kernels),
    }


def _named(arrays: Any) -> list[tuple[str, Any]]:
    return list(cast(Mapping[str, Any], arrays).items())


def _blocks(model: nn.Module) -> list[nn.Module]:
    known = divisible(model)
    if known is not None:
        return list(known.blocks.values())
    found = getattr(model, "blocks", None)
    return list(found.children()) if isinstance(found, nn.Module) else list(model.children())
