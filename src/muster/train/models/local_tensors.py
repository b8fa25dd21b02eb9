"""Tensor-parallel styles whose modules compute on local tensors, with every communication as an explicit operation.

The parameters are DTensors, for checkpoints, gradient norms and FSDP. A module takes their local tensors for the time of
its forward. So a forward has no DTensor in it, which the compiler does not take in every case, and whose dispatch costs
time in every operation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, Final, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ParallelStyle

_OPS: Final = torch.ops._c10d_functional  # the compiler knows them
_PARTIAL: Final = "_partial_gradients"  # of a module: whether the gradients of its copies are sums over parts of tokens


class LocalStyle(ParallelStyle):
    """Parameters become DTensors with `placements` by name, and others copies. Inputs and outputs are plain tensors.

    With `sequence`, inputs are parts of the sequence, so that the gradients of copies are partial sums.
    """

    def __init__(self, *, sequence: bool = False) -> None:
        self.sequence = sequence

    def placement(self, name: str) -> Placement:
        return Replicate()

    def forward(self, module: nn.Module, peers: Peers) -> Callable[..., Tensor]:
        """What the module computes on local tensors."""
        return module.forward

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        for name, parameter in module.named_parameters(recurse=False):
            split = distribute_tensor(
                parameter.detach(), device_mesh, [self.placement(name)], src_data_rank=self.src_data_rank
            )
            module.register_parameter(name, nn.Parameter(split, requires_grad=parameter.requires_grad))
        setattr(module, _PARTIAL, self.sequence)
        peers = Peers(
            device_mesh.get_group().group_name, device_mesh.size(), device_mesh.get_local_rank(), self.sequence
        )
        module.forward = on_local(module, self.forward(module, peers))
        return module


class Replicated(LocalStyle):
    """Each rank has a copy of the parameters."""


class Columns(LocalStyle):
    """A linear layer of which each rank has a part of the outputs. Its input is whole: see `Entered`."""

    def placement(self, name: str) -> Placement:
        return Shard(0)


class Rows(LocalStyle):
    """A linear layer of which each rank has a part of the inputs; its outputs are summed over the ranks."""

    def placement(self, name: str) -> Placement:
        return Shard(1) if name == "weight" else Replicate()

    def forward(self, module: nn.Module, peers: Peers) -> Callable[..., Tensor]:
        def run(x: Tensor) -> Tensor:
            x = _Left.apply(F.linear(x, module.weight), *peers)
            return x if module.bias is None else x + module.bias.to(x.dtype)

        return run


class Entered(LocalStyle):
    """A module whose input is read by several `Columns`: it is gathered once, and so is its gradient summed."""

    def forward(self, module: nn.Module, peers: Peers) -> Callable[..., Tensor]:
        forward = module.forward

        def run(x: Tensor) -> Tensor:
            return forward(_Entered.apply(x, *peers))

        return run


class Table(LocalStyle):
    """An embedding of which each rank has a part of the rows; its outputs are summed over the ranks."""

    def placement(self, name: str) -> Placement:
        return Shard(0)

    def forward(self, module: nn.Module, peers: Peers) -> Callable[..., Tensor]:
        first = peers.first(module.num_embeddings)

        def run(numbers: Tensor) -> Tensor:
            local = numbers - first
            others = (local < 0) | (local >= module.weight.shape[0])
            rows = F.embedding(local.masked_fill(others, 0), module.weight)
            return _Left.apply(rows.masked_fill(others.unsqueeze(-1), 0), *peers)

        return run


class Output(LocalStyle):
    """A linear layer on the stream of which each rank has a part of the outputs; those of all ranks are gathered."""

    def placement(self, name: str) -> Placement:
        return Shard(0)

    def forward(self, module: nn.Module, peers: Peers) -> Callable[..., Tensor]:
        forward = module.forward

        def run(x: Tensor) -> Tensor:
            return _Widened.apply(forward(_Entered.apply(x, *peers)), module.out_features, *peers)

        return run


class Peers(NamedTuple):
    """The ranks that a module is split over, and this one's number among them."""

    group: str
    size: int
    rank: int
    sequence: bool  # the stream outside is split over its sequence, else each rank has all of it

    def most(self, whole: int) -> int:
        """The largest part of so many rows; only the last parts are smaller."""
        return -(-whole // self.size)

    def first(self, whole: int) -> int:
        return self.most(whole) * self.rank


class _Entered(torch.autograd.Function):
    """From the stream into a part that is split over the ranks."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, *peers: Any) -> Tensor:
        ctx.peers = Peers(*peers)
        return _gathered(x, ctx.peers)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return _summed(grad, ctx.peers), *[None] * len(ctx.peers)


class _Left(torch.autograd.Function):
    """From a part that is split over the ranks back to the stream: the opposite of `_Entered`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, *peers: Any) -> Tensor:
        ctx.peers = Peers(*peers)
        return _summed(x, ctx.peers)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return _gathered(grad, ctx.peers), *[None] * len(ctx.peers)


class _Widened(torch.autograd.Function):
    """From parts of the last dimension to all `whole` of it, on every rank, whose gradients are then equal."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, whole: int, *peers: Any) -> Tensor:
        ctx.peers, ctx.whole = Peers(*peers), whole
        even = F.pad(x, (0, ctx.peers.most(whole) - x.shape[-1]))
        return torch.cat(_all(even, ctx.peers), -1)[..., :whole]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        first = ctx.peers.first(ctx.whole)
        return grad[..., first : first + ctx.peers.most(ctx.whole)], None, *[None] * len(ctx.peers)


def _gathered(x: Tensor, peers: Peers) -> Tensor:
    """`x [..., seq, dim]` of all ranks along the sequence, or as it is where each rank has all of it."""
    return torch.cat(_all(x, peers), -2) if peers.sequence else x.view_as(x)


def _summed(x: Tensor, peers: Peers) -> Tensor:
    """`x [..., seq, dim]` summed over the ranks: this rank's part of the sequence, or all of it."""
    if not peers.sequence:
        return _OPS.wait_tensor(_OPS.all_reduce(x.contiguous(), "sum", peers.group))
    parts = torch.cat(x.chunk(peers.size, -2))
    return _OPS.wait_tensor(_OPS.reduce_scatter_tensor(parts, "sum", peers.size, peers.group))


def _all(x: Tensor, peers: Peers) -> tuple[Tensor, ...]:
    """Those of all ranks, which have the same shape."""
    return _OPS.wait_tensor(_OPS.all_gather_into_tensor(x.contiguous(), peers.size, peers.group)).chunk(peers.size)


def on_local(module: nn.Module, forward: Callable[..., Any]) -> Callable[..., Any]:
    """`forward`, in which the parameters of the module and of its submodules are their local tensors."""
    owners = list(module.modules())

    @wraps(forward)
    def run(*args: Any, **kwargs: Any) -> Any:
        if not any(isinstance(each, DTensor) for owner in owners for each in owner._parameters.values()):
            return forward(*args, **kwargs)
        with _local(owners):
            return forward(*args, **kwargs)

    return run


@contextmanager
def _local(owners: list[nn.Module]) -> Iterator[None]:
    kept = [(owner, dict(owner._parameters)) for owner in owners]
    try:
        for owner, parameters in kept:
            owner._parameters.update({name: _of(owner, each) for name, each in parameters.items()})
        yield
    finally:
        for owner, parameters in kept:
            owner._parameters.update(parameters)


def _of(owner: nn.Module, parameter: Any) -> Any:
    if not isinstance(parameter, DTensor):
        return parameter
    grads = [Partial() if each.is_replicate() else each for each in parameter.placements]
    return parameter.to_local(grad_placements=grads if getattr(owner, _PARTIAL, False) else None)
