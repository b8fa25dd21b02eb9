"""Finds data-parallel replicas whose weights differ: a silent fault of a device, a link or the program.

Every replica applies the same updates, so its weights have the same bits. A checksum of each tensor is compared over
the replicas in one small reduction; reading the weights once is all that it costs.

    from muster.train import check_replicas

    if step % 500 == 0:
        check_replicas(model)  # every rank calls it; raises ReplicasDiffer, which names the tensors and the ranks

Weights that are sharded (FSDP) have no replica in the group of their shards: give the group over which they are
replicated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from muster.train.errors import ReplicasDiffer

_INTEGERS: Final = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}  # by bytes of an element
_NAMED: Final = 5  # tensors that an error names


def check_replicas(model: nn.Module | Iterable[nn.Module], group: dist.ProcessGroup | None = None) -> None:
    """Compares the weights over `group`, by default all ranks. Raises ReplicasDiffer on every rank of it."""
    if not dist.is_initialized() or dist.get_world_size(group) < 2:
        return
    parts = [model] if isinstance(model, nn.Module) else list(model)
    named = [pair for part in parts for pair in part.named_parameters()]
    if not named:
        return
    sums = torch.stack([checksum(tensor) for _, tensor in named])  # int64[tensors, 2]
    # The largest of a sum and of its opposite: if all replicas agree, one is the opposite of the other.
    both = torch.stack((sums, -sums))
    dist.all_reduce(both, op=dist.ReduceOp.MAX, group=group)
    if bool((both[0] != -both[1]).any()):
        raise ReplicasDiffer(_told([name for name, _ in named], sums, group))


def checksum(tensor: Tensor) -> Tensor:
    """int64[2] on the tensor's device: the sum of its bits as integers, and that of every other element."""
    local = tensor.to_local() if isinstance(tensor, DTensor) else tensor
    flat = local.detach().contiguous().flatten()
    if flat.is_complex():
        flat = torch.view_as_real(flat).flatten()
    bits = flat.view(_INTEGERS[flat.element_size()])
    return torch.stack((bits.sum(dtype=torch.int64), bits[::2].sum(dtype=torch.int64)))


def _told(names: list[str], sums: Tensor, group: dist.ProcessGroup | None) -> str:
    """Which tensors differ, and which ranks are unlike the others."""
    world = dist.get_world_size(group)
    everyone = [torch.empty_like(sums) for _ in range(world)]
    dist.all_gather(everyone, sums, group=group)
    ranks = dist.get_process_group_ranks(group) if group is not None else list(range(world))
    rows = [[tuple(row) for row in one.tolist()] for one in everyone]
    odd: Counter[int] = Counter()
    wrong = []
    for index, name in enumerate(names):
        values = [row[index] for row in rows]
        usual, count = Counter(values).most_common(1)[0]
        if count < world:
            wrong.append(name)
            odd.update(rank for rank, value in zip(ranks, values, strict=True) if value != usual)
    some = ", ".join(wrong[:_NAMED]) + (f" and {len(wrong) - _NAMED} more" if len(wrong) > _NAMED else "")
    alone = 2 * max(odd.values()) > len(wrong) and 2 * len(odd) < world
    who = f"rank {', '.join(map(str, sorted(odd)))} is unlike the others" if alone else f"ranks {ranks} do not agree"
    return f"The replicas' weights differ in {len(wrong)} of {len(names)} tensors ({some}): {who}."
