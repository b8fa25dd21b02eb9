"""The write plan of a checkpoint: made once per layout by torch.distributed.checkpoint, used for every save.

A tensor that several ranks hold is written by the one with the fewest bytes to write. A rank's data is laid out as an
image of its files, so that the snapshot is copied directly into the buffers that are written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata
from torch.distributed.checkpoint.planner import SavePlan, WriteItem
from torch.distributed.tensor import DTensor

from muster.train.checkpoint.gang import SaveGroup
from muster.train.checkpoint.index import Chunk, Index, TensorIndexEntry, byte_size
from muster.train.errors import CheckpointError

ALIGN: Final = 64  # bytes: alignment of items, so that any dtype can be viewed in place

Signature = tuple[tuple[str, torch.dtype, tuple[int, ...], tuple[int, ...], str], ...]


@dataclass(frozen=True, slots=True)
class Item:
    """A part of a tensor that this rank writes, and its position in the rank's image."""

    key: str
    dtype: torch.dtype
    shape: tuple[int, ...]  # of the whole tensor
    offsets: tuple[int, ...]  # in the whole tensor
    sizes: tuple[int, ...]
    row: int  # where it begins in the rank's own tensor, which may be divided by rows
    at: int  # bytes from the begin of the image
    bytes: int


@dataclass(frozen=True, slots=True)
class Part:
    """One file of the image."""

    file: str
    begin: int  # bytes from the begin of the image
    end: int


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of one rank."""

    items: list[Item]
    parts: list[Part]
    size: int  # bytes of the image
    index: bytes | None = None  # on rank 0: index.json of the whole checkpoint


def signature(tensors: dict[str, Tensor]) -> Signature:
    """A key of the tensors' layout: a plan can be reused only for tensors with the same signature."""
    found = []
    for key, value in tensors.items():
        held = local(value)
        if held.device.type == "meta":
            raise CheckpointError(f"{key} is on the meta device and has no values. Materialise the model first.")
        layout = str(value.placements) if isinstance(value, DTensor) else ""
        found.append((key, value.dtype, tuple(value.shape), tuple(held.shape), layout))
    return tuple(found)


def local(value: Tensor) -> Tensor:
    """The local part of a tensor."""
    return value.to_local() if isinstance(value, DTensor) else value


def make_plan(tensors: dict[str, Tensor], gang: SaveGroup, file_bytes: Callable[[int], int]) -> Plan:
    """All ranks call it together. Raises on all ranks if the parts don't cover the whole tensors. `file_bytes` says how
    large files should be, given the bytes of a rank."""
    planner = DefaultSavePlanner(flatten_state_dict=False, flatten_sharded_tensors=False)

    def mine() -> SavePlan:
        planner.set_up_planner(tensors, is_coordinator=gang.rank == 0)
        return planner.create_local_plan()

    def share(plans: list[SavePlan]) -> list[Plan]:
        _check_alike(plans)
        divided, _ = planner.create_global_plan(plans)
        laid = [_lay_out(plan.items, rank, file_bytes) for rank, plan in enumerate(divided)]
        index = _index(laid)
        return [Plan(each.items, each.parts, each.size, index if rank == 0 else None) for rank, each in enumerate(laid)]

    return gang.divide(mine, share)


def _check_alike(plans: list[SavePlan]) -> None:
    """Checks that each key is one tensor: a part that two ranks hold must have the same kind on both."""
    seen: dict[str, tuple[int, tuple[int, ...], torch.dtype]] = {}
    for rank, plan in enumerate(plans):
        for item in plan.items:
            assert item.tensor_data is not None
            shape, dtype = tuple(item.tensor_data.size), item.tensor_data.properties.dtype
            first, other, kind = seen.setdefault(item.index.fqn, (rank, shape, dtype))
            if (other, kind) != (shape, dtype):
                raise CheckpointError(
                    f"{item.index.fqn} is {kind} {list(other)} on rank {first}, {dtype} {list(shape)} on rank {rank}. "
                    "Give parts of one tensor as DTensors, and different tensors different names."
                )


def _lay_out(items: list[WriteItem], rank: int, file_bytes: Callable[[int], int]) -> Plan:
    most = file_bytes(sum(byte_size(_chunk(item).sizes, _dtype(item)) for item in items))
    placed: list[Item] = []
    at = 0
    for item in items:
        assert item.tensor_data is not None
        chunk, dtype, shape = _chunk(item), _dtype(item), tuple(item.tensor_data.size)
        for row, offsets, sizes in _pieces(tuple(chunk.offsets), tuple(chunk.sizes), dtype, most):
            size = byte_size(sizes, dtype)
            placed.append(Item(item.index.fqn, dtype, shape, offsets, sizes, row, at, size))
            at += -(-size // ALIGN) * ALIGN
    return Plan(placed, _split(placed, at, rank, most), at)


def _pieces(
    offsets: tuple[int, ...], sizes: tuple[int, ...], dtype: torch.dtype, most: int
) -> Iterator[tuple[int, tuple[int, ...], tuple[int, ...]]]:
    """Divides a part by rows, if it is larger than `most` bytes: first row, offsets and sizes of each piece."""
    if byte_size(sizes, dtype) <= most:
        yield 0, offsets, sizes
        return
    step = max(1, most // byte_size(sizes[1:], dtype))
    for row in range(0, sizes[0], step):
        yield row, (offsets[0] + row, *offsets[1:]), (min(step, sizes[0] - row), *sizes[1:])


def _chunk(item: WriteItem) -> ChunkStorageMetadata:
    assert item.tensor_data is not None
    assert item.tensor_data.chunk is not None
    return item.tensor_data.chunk


def _dtype(item: WriteItem) -> torch.dtype:
    assert item.tensor_data is not None
    return item.tensor_data.properties.dtype


def _split(items: list[Item], size: int, rank: int, most: int) -> list[Part]:
    """Splits the image into files of about the same size; each begins with an item."""
    count = max(1, -(-size // most))
    begins = [0]
    for item in items:
        if len(begins) < count and item.at >= size * len(begins) // count and item.at > begins[-1]:
            begins.append(item.at)
    ends = [*begins[1:], size]
    return [Part(f"rank-{rank:05d}-{n}.bin", b, e) for n, (b, e) in enumerate(zip(begins, ends, strict=True)) if e > b]


def _index(laid: list[Plan]) -> bytes:
    entries: dict[str, TensorIndexEntry] = {}
    for plan in laid:
        for item in plan.items:
            entry = entries.setdefault(item.key, TensorIndexEntry(item.dtype, item.shape))
            if item.bytes:
                part = next(each for each in plan.parts if each.begin <= item.at < each.end)
                entry.chunks.append(Chunk(item.offsets, item.sizes, part.file, item.at - part.begin))
    return Index(len(laid), entries).encode()
