"""The index of a checkpoint: each tensor's dtype and shape, and the file and offset of each of its chunks."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import Any, Final

import torch

from muster.train.errors import CheckpointDamaged

INDEX: Final = "index.json"
FORMAT: Final = 1
_DTYPES: Final = {
    str(found).removeprefix("torch."): found for found in vars(torch).values() if isinstance(found, torch.dtype)
}


@dataclass(frozen=True, slots=True)
class Chunk:
    """A rectangular part of a tensor: `sizes` elements from `offsets` on, row by row from byte `at` of a file."""

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    file: str
    at: int


@dataclass(frozen=True, slots=True)
class TensorIndexEntry:
    """A tensor."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    chunks: list[Chunk] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Index:
    """Every tensor of a checkpoint by its key, and how many ranks saved it."""

    world: int
    entries: dict[str, TensorIndexEntry]

    def encode(self) -> bytes:
        raw = {
            key: {
                "dtype": dtype_name(entry.dtype),
                "shape": entry.shape,
                "chunks": [[each.offsets, each.sizes, each.file, each.at] for each in entry.chunks],
            }
            for key, entry in self.entries.items()
        }
        return json.dumps({"format": FORMAT, "world": self.world, "tensors": raw}).encode()


def decode(data: bytes, where: str) -> Index:
    raw: Any = json.loads(data)
    if raw["format"] != FORMAT:
        raise CheckpointDamaged(
            f"{where}: format {raw['format']}; this Muster reads {FORMAT}. Load it with a newer one."
        )
    entries = {}
    for key, each in raw["tensors"].items():
        chunks = [Chunk(tuple(offsets), tuple(sizes), file, at) for offsets, sizes, file, at in each["chunks"]]
        entries[key] = TensorIndexEntry(_DTYPES[each["dtype"]], tuple(each["shape"]), chunks)
    return Index(int(raw["world"]), entries)


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def byte_size(sizes: tuple[int, ...], dtype: torch.dtype) -> int:
    return math.prod(sizes) * dtype.itemsize
