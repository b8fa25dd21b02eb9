"""Tensor-parallel styles whose modules compute on local tensors, with each communication as an explicit operation.

Parameters are DTensors, which checkpoints, gradient norms and FSDP rely on; a module takes their local tensors for the
time of its forward. PyTorch's own styles compute on DTensors instead: these fail in compiled blocks, and cost the host
time in every operation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, Final, NamedTuple, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Placement, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ParallelStyle

_OPS: Final = torch.ops._c10d_functional  # traced by the compiler, under these names in every version
_SUMMED: Final = "_gradients_are_summed"  # of a module whose copies of parameters each see a part of the sequence

Forward = Callable[..., Tensor]


class LocalStyle(ParallelStyle):
    """A style for a module whose inputs and outputs are plain tensors. `weight` and `bias` are placed as it says.

    `sequence`: the stream outside of the products is split over the sequence, else each rank has all of it.
    """

    weight: Placement = Replicate()
    bias: Placement = Replicate()

    def __init__(self, *, sequence: bool = False) -> None:
        super().__init__()
        self.sequence = sequence

    def local_forward(self, module: nn.Module, ranks: Ranks) -> Forward:
        """What the module computes while its parameters are local."""
        return module.forward

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        for name, parameter in module.named_parameters(recurse=False):
            placement = self.bias if name == "bias" else self.weight
            parts = distribute_tensor(parameter.detach(), device_mesh, [placement], src_data_rank=self.src_data_rank)
            module.register_parameter(name, nn.Parameter(parts, requires_grad=parameter.requires_grad))
        setattr(module, _SUMMED, self.sequence)
        group = device_mesh.get_group().group_name
        ranks = Ranks(group, device_mesh.size(), device_mesh.get_local_rank(), self.sequence)
        module.forward = on_local(module, self.local_forward(module, ranks))
        return module


class Replicated(LocalStyle):
    """A module that each rank has a copy of."""


class Columns(LocalStyle):
    """A linear layer of which each rank computes a part of the outputs, from the input that `Entered` gave."""

    weight = bias = Shard(0)


class Rows(LocalStyle):
    """A linear layer of which each rank has a part of the inputs. The products are summed over the ranks."""

    weight = Shard(1)

    def local_forward(self, module: nn.Module, ranks: Ranks) -> Forward:
        def run(x: Tensor) -> Tensor:
            x = _left(F.linear(x, module.weight), ranks)  # type: ignore[arg-type]
            return x if module.bias is None else x + module.bias.to(x.dtype)  # type: ignore[operator]

        return run


class Entered(LocalStyle):
    """A module whose input several `Columns` read: it is gathered once for them all, and its gradient summed once."""

    def local_forward(self, module: nn.Module, ranks: Ranks) -> Forward:
        forward: Forward = module.forward
        return lambda x: forward(_entered(x, ranks))


class Table(LocalStyle):
    """An embedding of which each rank has a part of the rows. Others' rows count as zeros in the sum over the ranks."""

    weight = Shard(0)

    def local_forward(self, module: nn.Module, ranks: Ranks) -> Forward:
        assert isinstance(module, nn.Embedding)
        first = ranks.first(module.num_embeddings)

        def run(numbers: Tensor) -> Tensor:
            own = numbers - first
            others = (own < 0) | (own >= module.weight.shape[0])
            rows = F.embedding(own.masked_fill(others, 0), module.weight)
            return _left(rows.masked_fill(others.unsqueeze(-1), 0), ranks)

        return run


class Output(LocalStyle):
    """A linear layer on the stream of which each rank computes a part of the outputs. All ranks get those of all."""

    weight = bias = Shard(0)

    def local_forward(self, module: nn.Module, ranks: Ranks) -> Forward:
        assert isinstance(module, nn.Linear)
        forward: Forward = module.forward
        return lambda x: _joined(forward(_entered(x, ranks)), module.out_features, ranks)


class Ranks(NamedTuple):
    """The ranks that a module is split over, and this one's number among them."""

    group: str
    size: int
    rank: int
    sequence: bool

    def part(self, whole: int) -> int:
        """The size of a part of `whole`. Only the last parts are smaller."""
        return -(-whole // self.size)

    def first(self, whole: int) -> int:
        """Where this rank's part begins."""
        return self.part(whole) * self.rank


class _Entered(torch.autograd.Function):
    """From the stream into what is split over the ranks."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, ranks: Ranks) -> Tensor:
        ctx.ranks = ranks
        return _gathered(x, ranks)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return _summed(grad, ctx.ranks), None


class _Left(torch.autograd.Function):
    """From what is split over the ranks back to the stream: the transpose of `_Entered`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, ranks: Ranks) -> Tensor:
        ctx.ranks = ranks
        return _summed(x, ranks)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return _gathered(grad, ctx.ranks), None


class _Joined(torch.autograd.Function):
    """From parts of the last dimension to all `whole` of it on every rank. What follows is the same on every rank, and
    so are its gradients: each takes its own part of them."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, whole: int, ranks: Ranks) -> Tensor:
        ctx.whole, ctx.ranks = whole, ranks
        even = F.pad(x, (0, ranks.part(whole) - x.shape[-1]))
        return torch.cat(_from_all(even, ranks), -1)[..., :whole]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        first = ctx.ranks.first(ctx.whole)
        return grad[..., first : first + ctx.ranks.part(ctx.whole)], None, None


def _entered(x: Tensor, ranks: Ranks) -> Tensor:
    return cast(Tensor, _Entered.apply(x, ranks))  # type: ignore[no-untyped-call]


def _left(x: Tensor, ranks: Ranks) -> Tensor:
    return cast(Tensor, _Left.apply(x, ranks))  # type: ignore[no-untyped-call]


def _joined(x: Tensor, whole: int, ranks: Ranks) -> Tensor:
    return cast(Tensor, _Joined.apply(x, whole, ranks))  # type: ignore[no-untyped-call]


def _gathered(x: Tensor, ranks: Ranks) -> Tensor:
    """`x [..., seq, dim]` of all ranks along the sequence; as it is where each rank has all of it."""
    return torch.cat(_from_all(x, ranks), -2) if ranks.sequence else x.view_as(x)


def _summed(x: Tensor, ranks: Ranks) -> Tensor:
    """`x [..., seq, dim]` summed over the ranks: this rank's part of the sequence, or all of it."""
    if not ranks.sequence:
        return cast(Tensor, _OPS.wait_tensor(_OPS.all_reduce(x.contiguous(), "sum", ranks.group)))
    parts = torch.cat(x.chunk(ranks.size, -2))
    return cast(Tensor, _OPS.wait_tensor(_OPS.reduce_scatter_tensor(parts, "sum", ranks.size, ranks.group)))


def _from_all(x: Tensor, ranks: Ranks) -> tuple[Tensor, ...]:
    """`x` of every rank, of one shape."""
    found: Tensor = _OPS.wait_tensor(_OPS.all_gather_into_tensor(x.contiguous(), ranks.size, ranks.group))
    return found.chunk(ranks.size)


def on_local(module: nn.Module, forward: Forward) -> Forward:
    """`forward`, during which the parameters of the module and of those in it are local tensors. Around a compiled
    forward, so that no DTensor is in what is compiled."""
    owners = list(module.modules())

    @wraps(forward)
    def run(*args: Any, **kwargs: Any) -> Tensor:
        if not any(isinstance(each, DTensor) for owner in owners for each in owner._parameters.values()):
            return forward(*args, **kwargs)  # one around this did it already
        with _local(owners):
            return forward(*args, **kwargs)

    return run


@contextmanager
def _local(owners: list[nn.Module]) -> Iterator[None]:
    kept = [(owner._parameters, dict(owner._parameters)) for owner in owners]
    try:
        for owner in owners:
            owner._parameters.update({name: _of(owner, each) for name, each in owner._parameters.items()})
        yield
    finally:
        for parameters, before in kept:
            parameters.update(before)


def _of(owner: nn.Module, parameter: Tensor | None) -> Any:
    if not isinstance(parameter, DTensor):
        return parameter
    if not getattr(owner, _SUMMED, False):
        return parameter.to_local()
    return parameter.to_local(grad_placements=[Partial() if p.is_replicate() else p for p in parameter.placements])
