"""MosaicML's MDS shards (version 2): named columns, offsets at the head of each shard, one `index.json` for all."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import importlib
import json
from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from threading import Lock
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from muster.data.dataset import Sample
from muster.data.errors import DataError
from muster.data.files import INDEX, Maps, check_size, fresh, mapped, read_index, write_file, write_json
from muster.data.formats.mds_codec import Codec, codec

_UNPACKED: Final = 4  # compressed shards that are kept unpacked at once


def write(folder: Path, samples: Iterable[Sample], *, columns: dict[str, str], limit: int = 1 << 26) -> None:
    """`columns` gives each part's encoding: `{"image": "ndarray:uint8", "name": "str"}`; `limit`: bytes per shard."""
    folder = Path(folder)
    fresh(folder)
    codecs = [(name, codec(name, columns[name])) for name in sorted(columns)]
    shards: list[dict[str, Any]] = []
    held: list[bytes] = []
    for number, sample in enumerate(samples):
        data = _sample_bytes(folder, number, sample, codecs)
        if held and sum(map(len, held)) + len(data) > limit:
            shards.append(_write_shard(folder, len(shards), held, columns, limit))
            held = []
        held.append(data)
    if held:
        shards.append(_write_shard(folder, len(shards), held, columns, limit))
    if not shards:
        raise DataError(f"{folder}: no sample was written.")
    write_json(folder / INDEX, {"shards": shards, "version": 2})


def open(folder: Path) -> MdsShards:
    """Raises DataError unless every shard exists with its size and every column can be read."""
    folder = Path(folder)
    raw = read_index(folder)
    try:
        if raw["version"] != 2:
            raise DataError(f"{folder / INDEX} is of version {raw['version']}; 2 was expected.")
        shards = tuple(_shard(folder, entry) for entry in raw["shards"])
    except (KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{folder / INDEX} is no index of MDS shards: {error!r}") from error
    if not sum(shard.samples for shard in shards):
        raise DataError(f"{folder} holds {len(shards)} shards and no sample.")
    return MdsShards(folder, shards)


@dataclass(frozen=True, slots=True)
class File:
    """A file as listed in the index."""

    path: Path
    size: int  # bytes
    hashes: dict[str, str]  # by algorithm, in hexadecimal


@dataclass(frozen=True, slots=True)
class MdsShard:
    """One shard: its columns, and its file, plain or compressed."""

    samples: int
    columns: tuple[tuple[str, int | None, Codec], ...]  # name, size in bytes if it is fixed, codec
    raw: File
    packed: File | None  # if only the compressed file exists
    compression: str


@dataclass(eq=False)
class MdsShards:
    """Samples of opened MDS shards."""

    folder: Path
    shards: tuple[MdsShard, ...]
    _maps: Maps[Path] = field(default_factory=lambda: Maps(mapped), repr=False)
    _unpacked: OrderedDict[Path, NDArray[np.uint8]] = field(default_factory=OrderedDict, repr=False)
    _lock: Lock = field(default_factory=Lock, repr=False)
    _ends: list[int] = field(default_factory=list, repr=False)

    def __post_init__(self) -> None:
        self._ends = list(accumulate(shard.samples for shard in self.shards))

    def __len__(self) -> int:
        return self._ends[-1]

    def read(self, index: int) -> Sample:
        if not 0 <= index < len(self):
            raise DataError(f"{self.folder}: sample {index} was asked for; there are {len(self)}.")
        number = bisect_right(self._ends, index)
        shard = self.shards[number]
        data = self._content(shard)
        place = index - (self._ends[number] - shard.samples)
        begin, end = (int(each) for each in data[4 + 4 * place : 12 + 4 * place].view("<u4"))
        if not begin <= end <= len(data):
            raise DataError(f"{shard.raw.path} is damaged: sample {place} is said to end at byte {end} of {len(data)}.")
        return _sample(shard, place, data[begin:end].tobytes())

    def verify(self) -> None:
        """Compares each file with its checksums in the index, as far as Python can compute them (not xxhash)."""
        for shard in self.shards:
            file = shard.packed or shard.raw
            check_size(file.path, file.size)
            _check_hashes(file)
            self._content(shard)

    def close(self) -> None:
        self._maps.clear()
        with self._lock:
            self._unpacked.clear()

    def _content(self, shard: MdsShard) -> NDArray[np.uint8]:
        if shard.packed is None:
            return self._maps.content(shard.raw.path)
        with self._lock:
            found = self._unpacked.pop(shard.raw.path, None)
            if found is None:
                found = _unpack(shard, shard.packed)
            self._unpacked[shard.raw.path] = found
            while len(self._unpacked) > _UNPACKED:
                self._unpacked.popitem(last=False)
        return found


def _shard(folder: Path, entry: dict[str, Any]) -> MdsShard:
    if (entry["format"], entry["version"]) != ("mds", 2):
        raise DataError(f"{folder / INDEX} lists a shard of {entry['format']} {entry['version']}; mds 2 was expected.")
    columns = zip(entry["column_names"], entry["column_sizes"], entry["column_encodings"], strict=True)
    raw = _file(folder, entry["raw_data"])
    packed = None
    compression = str(entry["compression"] or "").partition(":")[0]
    if entry["zip_data"] and not raw.path.exists():
        packed = _file(folder, entry["zip_data"])
        _unpacker(compression, packed.path)
    file = packed or raw
    check_size(file.path, file.size)
    try:
        codecs = tuple((str(name), size or None, codec(name, kind)) for name, size, kind in columns)
    except DataError as error:
        raise DataError(f"{file.path}: {error}") from error
    return MdsShard(int(entry["samples"]), codecs, raw, packed, compression)


def _file(folder: Path, entry: dict[str, Any]) -> File:
    return File(folder / entry["basename"], int(entry["bytes"]), dict(entry["hashes"]))


def _sample(shard: MdsShard, place: int, data: bytes) -> Sample:
    """Decodes a sample: the sizes of the variable columns come first, then all columns."""
    varying = sum(size is None for _, size, _ in shard.columns)
    sizes = iter(np.frombuffer(data, "<u4", varying).tolist())
    at = 4 * varying
    sample: dict[str, Any] = {}
    for name, fixed, each in shard.columns:
        size = next(sizes) if fixed is None else fixed
        try:
            sample[name] = each.decode(data[at : at + size])
        except (ValueError, KeyError, IndexError, ArithmeticError) as error:
            raise DataError(f"{shard.raw.path}: column {name!r} of sample {place} cannot be read: {error!r}") from error
        at += size
    return sample


def _check_hashes(file: File) -> None:
    for algorithm, expected in file.hashes.items():
        if algorithm in hashlib.algorithms_available:
            with file.path.open("rb") as stream:
                found = hashlib.file_digest(stream, algorithm).hexdigest()
            if found != expected:
                raise DataError(f"{file.path} is damaged: its {algorithm} is {found}, and {expected} was written.")


def _unpack(shard: MdsShard, packed: File) -> NDArray[np.uint8]:
    unpack = _unpacker(shard.compression, packed.path)
    try:
        data = unpack(packed.path.read_bytes())
    except Exception as error:
        raise DataError(f"{packed.path} cannot be unpacked: {error}. Copy or write it again.") from error
    if len(data) != shard.raw.size:
        raise DataError(f"{packed.path} unpacks to {len(data)} bytes; {shard.raw.size} were expected.")
    return np.frombuffer(data, np.uint8)


def _unpacker(name: str, path: Path) -> Callable[[bytes], bytes]:
    if name == "gz":
        return gzip.decompress
    if name == "bz2":
        return bz2.decompress
    if name != "zstd":
        raise DataError(f"{path} is compressed with {name!r}; zstd, gz and bz2 can be read. Unpack it beforehand.")
    for module in ("compression.zstd", "zstandard", "zstd"):
        try:
            decompress: Callable[[bytes], bytes] = importlib.import_module(module).decompress
        except ImportError:
            continue
        return decompress
    raise DataError(
        f"{path} is compressed with zstd, and no module for it is here. `pip install zstandard`, or unpack it."
    )


def _sample_bytes(folder: Path, number: int, sample: Sample, codecs: list[tuple[str, Codec]]) -> bytes:
    sizes: list[int] = []
    body = b""
    for name, each in codecs:
        try:
            data = each.encode(sample[name])
        except (KeyError, ValueError, TypeError, OverflowError) as error:
            raise DataError(f"{folder}: column {name!r} of sample {number} cannot be written: {error!r}") from error
        if each.size is None:
            sizes.append(len(data))
        body += data
    return np.array(sizes, "<u4").tobytes() + body


def _write_shard(folder: Path, number: int, held: list[bytes], columns: dict[str, str], limit: int) -> dict[str, Any]:
    names = sorted(columns)
    settings = {
        "version": 2,
        "format": "mds",
        "compression": None,
        "hashes": ["sha1"],
        "size_limit": limit,
        "column_names": names,
        "column_encodings": [columns[name] for name in names],
        "column_sizes": [codec(name, columns[name]).size for name in names],
    }
    head = json.dumps(settings, sort_keys=True).encode()
    ends = np.cumsum([4 + 4 * (len(held) + 1) + len(head), *map(len, held)])
    if ends[-1] >= 1 << 32:
        raise DataError(f"{folder}: a shard of {ends[-1]} bytes; the format holds less than 4 GiB. Give a lower limit.")
    data = np.array([len(held), *ends], "<u4").tobytes() + head + b"".join(held)
    name = f"shard.{number:05d}.mds"
    write_file(folder / name, data)
    hashes = {"sha1": hashlib.sha1(data, usedforsecurity=False).hexdigest()}
    file = {"basename": name, "bytes": len(data), "hashes": hashes}
    return {"samples": len(held), "raw_data": file, "zip_data": None, **settings}
