"""Fully sharded data parallelism (FSDP): each block's weights are sharded over `fsdp` and replicated over `dp`.

`dp` with tensor parallelism is also done here, with one shard, because DDP doesn't support DTensors.
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
    """Shards each block as a group, and the rest as one more, in place. `last`: the module has the model's output."""
    pipelined = mesh.size("pp") > 1
    offload: OffloadPolicy = OffloadPolicy()
    if settings.offload:
        offload = CPUOffloadPolicy(pin_memory=torch.cuda.is_available())
    common: dict[str, Any] = {
        "mesh": mesh.sub("dp", "fsdp") if mesh.size("dp") > 1 else mesh.sub("fsdp"),
        "offload_policy": offload,
        # A pipeline runs many micro-batches: freed weights would be gathered again for each.
        "reshard_after_forward": settings.reshard and not pipelined and mesh.size("fsdp") > 1,
    }
    if mesh.size("tp") > 1:
        module.forward = _owned(module.forward)
    for block in blocks:
        fully_shard(block, mp_policy=precision.policy(last=False), **common)
    common["reshard_after_forward"] = False  # the last parts are needed immediately in the backward pass
    fully_shard(module, mp_policy=precision.policy(last=last), **common)


class _Own(torch.autograd.Function):
    """Returns the same memory as a tensor that is not a view.

    FSDP starts its backward pass with a hook on a module's output. With PyTorch's tensor-parallel styles the output
    is a view of a DTensor, and an in-place operation on a view (in a user's loss) would silently remove the hook.
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
