"""The state of a divided model and its optimizer under the full names of parameters, the same keys in every layout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.optim import Optimizer

from muster.train.errors import CheckpointMismatch
from muster.train.optim import ready
from muster.train.parallel.prepared import Prepared, bare


def state_dicts(prepared: Prepared, optimizer: Optimizer | None = None) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The live tensors of model and optimizer: changing one in place changes the model.

    Keys are full names of parameters and saved buffers, and `<parameter>.<state>` for the optimizer, whose state is
    created if needed. Values are plain tensors or DTensors. Each pipeline stage has its own keys.
    """
    prepared.reshard()
    model: dict[str, Tensor] = {name: parameter.detach() for name, parameter in prepared.named_parameters()}
    for part in map(bare, prepared.parts):
        saved = part.state_dict(keep_vars=True)
        model.update({name: buffer for name, buffer in part.named_buffers() if name in saved})
    if optimizer is None:
        return model, {}
    ready(optimizer)
    optim = {
        f"{name}.{key}": value
        for name, parameter in prepared.named_parameters()
        for key, value in optimizer.state.get(parameter, {}).items()
    }
    return model, optim


def load_state_dicts(
    prepared: Prepared, optimizer: Optimizer | None, model: Mapping[str, Any], optim: Mapping[str, Any] | None = None
) -> None:
    """Loads state dicts in place. A value may be full (a plain tensor) or have the placement of its target.

    Keys of other stages are ignored. Raises `CheckpointMismatch` for keys that are missing or differ in shape.
    """
    mine, states = state_dicts(prepared, optimizer)
    _load(mine, model, "model")
    if optimizer is not None and optim is not None:
        _load(states, optim, "optimizer")


@torch.no_grad()
def _load(into: Mapping[str, Tensor], given: Mapping[str, Any], what: str) -> None:
    missing = [name for name in into if name not in given]
    shapes = [
        f"{name} is {list(given[name].shape)}, expected {list(value.shape)}"
        for name, value in into.items()
        if name in given and given[name].shape != value.shape
    ]
    if missing or shapes:
        found = [f"missing {', '.join(missing[:5])} ({len(missing)} in all)"] if missing else []
        raise CheckpointMismatch(f"The {what}'s state is of another model: {'; '.join(found + shapes[:5])}.")
    for name, value in into.items():
        source = given[name]
        if isinstance(value, DTensor) and not isinstance(source, DTensor):
            source = distribute_tensor(source.to(value.device), value.device_mesh, value.placements, src_data_rank=None)
        if source is not value:
            value.copy_(source)
