"""Reads chunks of tensors from a checkpoint, for resharding by torch.distributed.checkpoint's planner."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from queue import SimpleQueue
from typing import Any, Final

import torch
from torch import Tensor
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner import LoadPlan, LoadPlanner, ReadItem
from torch.distributed.checkpoint.storage import StorageReader
from torch.futures import Future

from muster.train.checkpoint.index import Chunk, Index, TensorIndexEntry, byte_size
from muster.train.checkpoint.store import Store

THREADS: Final = 8
SPAN: Final = 8 << 20  # bytes of a read at most: larger ones are cut by rows, smaller neighbours are merged
GAP: Final = 64 << 10  # a gap of at most this many bytes is read, not skipped


@dataclass(frozen=True, slots=True)
class Read:
    """Rows of a chunk in a file, and the tensor that gets them or a part of them."""

    item: ReadItem
    dtype: torch.dtype
    sizes: tuple[int, ...]  # of the rows read; other dimensions may be cut afterwards
    file: str
    at: int
    bytes: int


class Reader(StorageReader):
    """Can also be used as `torch.distributed.checkpoint.load(state, storage_reader=found.reader())`."""

    def __init__(self, store: Store, folder: str, index: Index) -> None:
        self.store, self.folder, self.index = store, folder, index
        self._chunks = {(key, chunk.offsets): chunk for key, entry in index.entries.items() for chunk in entry.chunks}

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """Does nothing: a reader belongs to one checkpoint."""

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        return Metadata({key: _metadata(entry) for key, entry in self.index.entries.items()})

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Does nothing: the index contains everything."""

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        return plan

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        whole = (self._read(item) for item in plan.items)
        reads = sorted((part for read in whole for part in _cut(read)), key=lambda each: (each.file, each.at))
        buffers: SimpleQueue[Tensor] = SimpleQueue()  # used again and again: fresh memory costs more than the copying
        pinned = any(planner.resolve_tensor(item).is_cuda for item in plan.items)
        for _ in range(THREADS):  # pinned here, where this rank's device is the current one
            buffers.put(torch.empty(SPAN, dtype=torch.uint8, pin_memory=pinned))
        with ThreadPoolExecutor(THREADS) as pool:
            for filled in pool.map(lambda span: self._fill(span, planner, buffers), _spans(reads)):
                assert filled is None
        future: Future[None] = Future()
        future.set_result(None)
        return future

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        return False

    def _read(self, item: ReadItem) -> Read:
        key, offsets = item.storage_index.fqn, tuple(item.storage_index.offset or ())
        chunk: Chunk = self._chunks[key, offsets]
        dtype = self.index.entries[key].dtype
        if not chunk.sizes:
            return Read(item, dtype, (), chunk.file, chunk.at, dtype.itemsize)
        sizes = (int(item.lengths[0]), *chunk.sizes[1:])
        row = byte_size(chunk.sizes[1:], dtype)
        return Read(item, dtype, sizes, chunk.file, chunk.at + row * int(item.storage_offsets[0]), row * sizes[0])

    def _fill(self, span: list[Read], planner: LoadPlanner, buffers: SimpleQueue[Tensor]) -> None:
        first, last = span[0], max(span, key=lambda each: each.at + each.bytes)
        target = planner.resolve_tensor(first.item).detach()
        name = f"{self.folder}/{first.file}"
        if len(span) == 1 and _direct(first, target):
            self.store.read(name, first.at, _bytes(target))
            return
        size, buffer = last.at + last.bytes - first.at, buffers.get()
        try:
            raw = buffer[:size] if size <= len(buffer) else torch.empty(size, dtype=torch.uint8)
            self.store.read(name, first.at, _bytes(raw))
            for each in span:
                rows = _typed(raw[each.at - first.at :][: each.bytes], each.dtype).view(each.sizes)
                for axis in range(1, len(each.sizes)):
                    rows = rows.narrow(axis, int(each.item.storage_offsets[axis]), int(each.item.lengths[axis]))
                planner.resolve_tensor(each.item).detach().copy_(rows)  # complete when it returns, to a device too
        finally:
            buffers.put(buffer)


def _metadata(entry: TensorIndexEntry) -> TensorStorageMetadata:
    chunks = [ChunkStorageMetadata(torch.Size(each.offsets), torch.Size(each.sizes)) for each in entry.chunks]
    return TensorStorageMetadata(TensorProperties(dtype=entry.dtype), torch.Size(entry.shape), chunks)


def _cut(read: Read) -> Iterator[Read]:
    """A large read in parts of some rows each, so that several threads share it."""
    if not read.sizes or read.bytes <= SPAN:
        yield read
        return
    rows, item = read.sizes[0], read.item
    row = read.bytes // rows
    most = max(1, SPAN // row)
    for begin in range(0, rows, most):
        count = min(most, rows - begin)
        part = replace(
            item,
            dest_offsets=torch.Size([item.dest_offsets[0] + begin, *item.dest_offsets[1:]]),
            storage_offsets=torch.Size([item.storage_offsets[0] + begin, *item.storage_offsets[1:]]),
            lengths=torch.Size([count, *item.lengths[1:]]),
        )
        yield Read(part, read.dtype, (count, *read.sizes[1:]), read.file, read.at + begin * row, count * row)


def _typed(raw: Tensor, dtype: torch.dtype) -> Tensor:
    aligned = raw.storage_offset() % dtype.itemsize == 0
    return (raw if aligned else raw.clone()).view(dtype)


def _spans(reads: list[Read]) -> Iterator[list[Read]]:
    """Merges neighbouring reads of a file, so that a thousand scalars need one request."""
    span: list[Read] = []
    end = 0
    for read in reads:
        near = span and read.file == span[0].file and read.at - end <= GAP and read.at + read.bytes - span[0].at <= SPAN
        if span and not near:
            yield span
            span = []
        end = max(end, read.at + read.bytes) if span else read.at + read.bytes
        span.append(read)
    if span:
        yield span


def _direct(read: Read, target: Tensor) -> bool:
    """Reads the file's bytes directly into the tensor."""
    same = target.device.type == "cpu" and target.dtype == read.dtype and target.is_contiguous()
    return same and tuple(target.shape) == read.sizes


def _bytes(tensor: Tensor) -> memoryview:
    return memoryview(tensor.reshape(-1).view(torch.uint8).numpy())  # type: ignore[arg-type]
