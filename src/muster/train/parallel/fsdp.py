"""Fully sharded data parallel: each block's weights in shards over `fsdp`, with replicas over `dp`.

With tensor parallelism `dp` alone is done here too, with shards of one process: DDP knows no DTensors.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import CPUOffloadPolicy, OffloadPolicy, fully_shard

from muster.train.mesh import Mesh
from muster.train.parallel.settings import ParallelSettings
from muster.train.precision import Precision


def shard(
    module: nn.Module, blocks: list[nn.Module], mesh: Mesh, settings: ParallelSettings, precision: Precision, last: bool
) -> None:
    """Shards each block as a group and the rest as one more, in place. `last`: the module gives the model's output."""
    pipelined = mesh.size("pp") > 1
    offload: OffloadPolicy = OffloadPolicy()
    if settings.offload:
        offload = CPUOffloadPolicy(pin_memory=torch.cuda.is_available())
    common: dict[str, Any] = {
        "mesh": mesh.sub("dp", "fsdp") if mesh.size("dp") > 1 else mesh.sub("fsdp"),
        "offload_policy": offload,
        # A pipeline's micro-batches come one after another: weights that were freed would be gathered for each.
        "reshard_after_forward": settings.reshard and not pipelined and mesh.size("fsdp") > 1,
    }
    if mesh.size("tp") > 1:
        module.forward = _owned(module.forward)
    for block in blocks:
        fully_shard(block, mp_policy=precision.policy(last=False), **common)
    common["reshard_after_forward"] = False  # the ends are needed at once when the backward pass begins
    fully_shard(module, mp_policy=precision.policy(last=last), **common)


class _Own(torch.autograd.Function):
    """The same memory as a tensor that is no view.

    FSDP hangs the start of its backward pass on a module's output. What tensor parallelism gives is a view of a
    DTensor, and an in-place operation on a view (in a user's loss) would drop that hook without a word.
    """

    @staticmethod
    def forward(ctx: Any, output: Tensor) -> Tensor:
        return output.detach()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad


def _owned(forward: Callable[..., Tensor]) -> Callable[..., Tensor]:
    @wraps(forward)
    def run(*args: Any) -> Tensor:
        return _Own.apply(forward(*args))  # type: ignore[no-untyped-call, no-any-return]

    return run
