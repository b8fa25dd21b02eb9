"""The safetensors file format: the header's length in eight bytes, a JSON header, then the tensors' bytes."""

from __future__ import annotations

import json
import math
import mmap
import os
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from muster.train.errors import ModelFileError

INDEX: Final = "model.safetensors.index.json"
SINGLE: Final = "model.safetensors"
_MAX_HEADER: Final = 100_000_000  # bytes; the format's own bound
_SHARD: Final = 5 << 30  # bytes in a file of a sharded model, as the hub's own tools choose
_DTYPES: Final = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U64": torch.uint64,
    "U32": torch.uint32,
    "U16": torch.uint16,
    "U8": torch.uint8,
    "BOOL": torch.bool,
    "C64": torch.complex64,
}
_NAMES: Final = {dtype: name for name, dtype in _DTYPES.items()}


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """The position of one tensor: `begin` and `end` are byte offsets in the file."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    begin: int
    end: int


class File(Mapping[str, Tensor]):
    """The tensors of one file, memory-mapped and read on access. Writing to one doesn't change the file."""

    def __init__(self, path: Path, entries: dict[str, TensorEntry], metadata: dict[str, str], data: mmap.mmap) -> None:
        self.path = path
        self.entries = entries
        self.metadata = metadata
        self._data = data

    def __getitem__(self, name: str) -> Tensor:
        entry = self.entries[name]
        if entry.begin == entry.end:
            return torch.empty(entry.shape, dtype=entry.dtype)
        raw = torch.frombuffer(self._data, dtype=torch.uint8, count=entry.end - entry.begin, offset=entry.begin)
        if entry.begin % entry.dtype.itemsize:
            raw = raw.clone()  # a view of another type needs its alignment, which the format does not promise
        return raw.view(entry.dtype).view(entry.shape)

    def __iter__(self) -> Iterator[str]:
        return iter(self.entries)

    def __len__(self) -> int:
        return len(self.entries)


def write(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str] | None = None) -> None:
    """Writes one file atomically and durably. Tensors may be on any device, contiguous or not."""
    names = sorted(tensors, key=lambda name: (-tensors[name].element_size(), name))  # keeps every type aligned
    header = _header(path, {name: tensors[name] for name in names}, metadata or {})
    draft = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with draft.open("wb") as file:
            file.write(struct.pack("<Q", len(header)) + header)
            for name in names:
                file.write(_bytes(tensors[name]))
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


def read(path: Path) -> File:
    """Opens a file. Raises `ModelFileError` if the header is invalid or the file has another length."""
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            text = file.read(_header_length(path, file.read(8), size))
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
    except OSError as error:
        raise ModelFileError(f"{path} cannot be read: {error.strerror}.") from error
    header = _json(path, text)
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise ModelFileError(f"{path}: __metadata__ must map names to strings.")
    entries = {name: _entry(path, name, raw, 8 + len(text)) for name, raw in header.items()}
    _check_cover(path, entries, 8 + len(text), size)
    return File(path, entries, metadata, data)


def write_folder(folder: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str], limit: int = _SHARD) -> None:
    """Writes `model.safetensors`, or several files of up to `limit` bytes and the index that names them, which is
    written last."""
    shards = _shards(tensors, limit)
    if len(shards) == 1:
        write(folder / SINGLE, tensors, metadata)
        (folder / INDEX).unlink(missing_ok=True)
        return
    files: dict[str, str] = {}
    for number, names in enumerate(shards, start=1):
        file = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        write(folder / file, {name: tensors[name] for name in names}, metadata)
        files |= dict.fromkeys(names, file)
    total = sum(tensor.numel() * tensor.element_size() for tensor in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(files.items()))}
    draft = folder / f".{INDEX}.part"
    draft.write_text(json.dumps(index, indent=2), "utf-8")
    draft.replace(folder / INDEX)
    (folder / SINGLE).unlink(missing_ok=True)


def read_folder(folder: Path) -> dict[str, Tensor]:
    """The tensors of a folder, from one file or from those that its index names."""
    if not (folder / INDEX).exists():
        return dict(read(folder / SINGLE))
    index = _json(folder / INDEX, _text(folder / INDEX))
    files = index.get("weight_map")
    if not isinstance(files, dict) or not all(
        isinstance(name, str) and Path(name).name == name for name in files.values()
    ):
        raise ModelFileError(f"{folder / INDEX}: weight_map must map each tensor to a file of this folder.")
    opened = {name: read(folder / name) for name in sorted(set(files.values()))}
    missing = [name for name, file in files.items() if name not in opened[file]]
    if missing:
        raise ModelFileError(f"{folder}: the index names {missing[0]} in {files[missing[0]]}, which does not have it.")
    return {name: opened[file][name] for name, file in files.items()}


def _header(path: Path, tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> bytes:
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    begin = 0
    for name, tensor in tensors.items():
        if tensor.dtype not in _NAMES:
            raise ModelFileError(f"{path}: {name} is {tensor.dtype}, which the format does not have.")
        end = begin + tensor.numel() * tensor.element_size()
        header[name] = {"dtype": _NAMES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [begin, end]}
        begin = end
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    return text + b" " * (-len(text) % 8)  # the data starts aligned


def _bytes(tensor: Tensor) -> memoryview:
    flat = tensor.detach().cpu().contiguous().view(-1)
    data: Any = flat.view(torch.uint8).numpy()
    return memoryview(data)


def _header_length(path: Path, first: bytes, size: int) -> int:
    if len(first) < 8:
        raise ModelFileError(f"{path} has {size} bytes; a safetensors file has 8 and a header at least.")
    length = int(struct.unpack("<Q", first)[0])
    if length > _MAX_HEADER:
        raise ModelFileError(f"{path} is no safetensors file: its header would be {length} bytes long.")
    if 8 + length > size:
        raise ModelFileError(f"{path} is cut off: {size} bytes, and its header alone takes {8 + length}.")
    return length


def _json(path: Path, text: bytes) -> dict[str, Any]:
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ModelFileError(f"{path}: its header is no JSON: {error}.") from error
    if not isinstance(parsed, dict):
        raise ModelFileError(f"{path}: its header is a {type(parsed).__name__}, expected an object.")
    return parsed


def _text(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ModelFileError(f"{path} cannot be read: {error.strerror}.") from error


def _entry(path: Path, name: str, raw: Any, start: int) -> TensorEntry:
    try:
        dtype, shape, (begin, end) = raw["dtype"], tuple(raw["shape"]), raw["data_offsets"]
    except (TypeError, KeyError, ValueError) as error:
        raise ModelFileError(f"{path}: {name} needs dtype, shape and data_offsets, got {raw!r}.") from error
    if dtype not in _DTYPES:
        raise ModelFileError(f"{path}: {name} is {dtype}, expected one of {', '.join(_DTYPES)}.")
    if not all(type(number) is int and number >= 0 for number in (*shape, begin, end)):
        raise ModelFileError(f"{path}: {name} has shape {shape} and offsets {begin}, {end}; expected counts.")
    expected = math.prod(shape) * _DTYPES[dtype].itemsize
    if end - begin != expected:
        raise ModelFileError(f"{path}: {name} has {end - begin} bytes; {dtype} of shape {shape} takes {expected}.")
    return TensorEntry(_DTYPES[dtype], shape, start + begin, start + end)


def _check_cover(path: Path, entries: dict[str, TensorEntry], start: int, size: int) -> None:
    """Checks that every byte after the header belongs to exactly one tensor: otherwise the file is damaged."""
    at = start
    for name, entry in sorted(entries.items(), key=lambda item: (item[1].begin, item[1].end)):
        if entry.begin != at:
            raise ModelFileError(f"{path}: {name} starts at byte {entry.begin}, expected {at}: a gap or an overlap.")
        at = entry.end
    if at != size:
        what = "is cut off" if at > size else "has bytes that belong to no tensor"
        raise ModelFileError(f"{path} {what}: {size} bytes, and its header describes {at}.")


def _shards(tensors: Mapping[str, Tensor], limit: int) -> list[list[str]]:
    shards: list[list[str]] = [[]]
    room = limit
    for name, tensor in tensors.items():
        size = tensor.numel() * tensor.element_size()
        if shards[-1] and size > room:
            shards.append([])
            room = limit
        shards[-1].append(name)
        room -= size
    return shards
