"""WebDataset tar shards with random access: a shard's headers are read once and cached in a small file beside it.

A sample is a run of files with the same path up to the first dot of the name: `n0001.jpg` and `n0001.cls` are one
sample, with the parts `jpg` and `cls`, and `__key__`. Text, numbers, JSON and .npy are decoded; images and the rest
stay bytes.
"""

from __future__ import annotations

import io
import json
import os
import tarfile
from bisect import bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any, Final

import numpy as np

from muster.data.dataset import Sample
from muster.data.errors import DataError
from muster.data.files import INDEX, Maps, check_size, crc32, fresh, mapped, write_json
from muster.data.formats.tar_index import TarShard, find_shard, remember, scan

_SHARD: Final = 10_000  # samples per shard that is written here


def write(folder: Path, samples: Iterable[Sample], *, shard: int = _SHARD) -> None:
    """Each sample needs `__key__`; its other parts are named by their type: `txt`, `cls`, `json`, `npy`, `jpg`, …"""
    folder = Path(folder)
    fresh(folder)
    if shard < 1:
        raise DataError(f"{folder}: shards of {shard} samples; give 1 or more.")
    paths: list[Path] = []
    held: list[Sample] = []
    for sample in samples:
        held.append(sample)
        if len(held) == shard:
            paths.append(_write_shard(folder, len(paths), held))
            held = []
    if held:
        paths.append(_write_shard(folder, len(paths), held))
    if not paths:
        raise DataError(f"{folder}: no sample was written.")
    # The index is written first: until every shard that it lists has its final name, `open` refuses the folder.
    write_json(folder / INDEX, {"format": "muster-tar", "shards": [path.name for path in paths]})
    for path in paths:
        _part(path).replace(path)


def open(folder: Path, *, decode: bool = True) -> TarShards:
    """Opens a folder of .tar files, in the order of their names, or one .tar file. Every header is checked once."""
    paths = _paths(Path(folder))
    shards = tuple(find_shard(path) for path in paths)
    if not any(len(shard.table) for shard in shards):
        raise DataError(f"{folder} holds {len(paths)} tar shards and no sample.")
    return TarShards(Path(folder), shards, decode)


@dataclass(eq=False)
class TarShards:
    """Samples of opened tar shards."""

    folder: Path
    shards: tuple[TarShard, ...]
    decode: bool = True
    _maps: Maps[Path] = field(default_factory=lambda: Maps(mapped), repr=False)
    _ends: list[int] = field(default_factory=list, repr=False)

    def __post_init__(self) -> None:
        self._ends = list(accumulate(len(shard.table) for shard in self.shards))

    def __len__(self) -> int:
        return self._ends[-1]

    def read(self, index: int) -> Sample:
        if not 0 <= index < len(self):
            raise DataError(f"{self.folder}: sample {index} was asked for; there are {len(self)}.")
        number = bisect_right(self._ends, index)
        shard = self.shards[number]
        place = index - (self._ends[number] - len(shard.table))
        data = self._maps.content(shard.path)
        sample: dict[str, Any] = {"__key__": shard.table.key(place)}
        for name, offset, size in shard.table.parts(place):
            raw = data[offset : offset + size].tobytes()
            sample[name] = _decoded(shard, place, name, raw) if self.decode else raw
        return sample

    def verify(self) -> None:
        """Reads every header again, and every byte of the shards with a known checksum."""
        for shard in self.shards:
            check_size(shard.path, shard.size)
            if not scan(shard.path).same(shard.table):
                raise DataError(f"{shard.path}: its files aren't those that were there when it was opened.")
            if shard.crc32 is not None and (found := crc32(shard.path)) != shard.crc32:
                raise DataError(f"{shard.path} is damaged: its CRC-32 is {found:08x}, {shard.crc32:08x} was written.")

    def close(self) -> None:
        self._maps.clear()


def _paths(place: Path) -> list[Path]:
    if place.is_dir():
        found = sorted(path for path in place.iterdir() if path.name.endswith(".tar"))
        missing = _missing(place, found)
        if missing:
            raise DataError(f"{place / missing} is missing: {INDEX} names it.")
        if found:
            return found
    elif place.name.endswith(".tar") and place.exists():
        return [place]
    packed = sorted(place.glob("*.tar.*")) if place.is_dir() else [place]
    packed = [path for path in packed if path.exists() and path.suffix in (".gz", ".bz2", ".xz", ".zst")]
    if packed:
        raise DataError(f"{packed[0]} is compressed, and so has no random access. Unpack it to a plain .tar first.")
    raise DataError(f"{place}: no .tar file is there. Give a .tar file or a folder of them.")


def _missing(folder: Path, found: list[Path]) -> str | None:
    """A shard that our own index lists and that doesn't exist. Other writers leave no index."""
    try:
        raw = json.loads((folder / INDEX).read_text("utf-8"))
        named = raw["shards"] if raw["format"] == "muster-tar" else []
    except (OSError, ValueError, KeyError, TypeError):
        return None
    there = {path.name for path in found}
    return next((name for name in named if name not in there), None)


def _decoded(shard: TarShard, place: int, name: str, raw: bytes) -> Any:
    decoder = _DECODERS.get(name.rpartition(".")[2])
    if decoder is None:
        return raw
    try:
        return decoder(raw)
    except ValueError as error:
        raise DataError(
            f"{shard.path}: part {name!r} of {shard.table.key(place)!r} cannot be decoded: {error}"
        ) from error


def _write_shard(folder: Path, number: int, samples: list[Sample]) -> Path:
    path = folder / f"shard-{number:06d}.tar"
    with _part(path).open("wb") as file:
        with tarfile.open(fileobj=file, mode="w", format=tarfile.GNU_FORMAT) as tar:
            for sample in samples:
                key = _key(folder, sample)
                for name, value in sample.items():
                    if name != "__key__":
                        data = _encoded(folder, name, value)
                        info = tarfile.TarInfo(f"{key}.{name}")
                        info.size = len(data)
                        tar.addfile(info, io.BytesIO(data))
        file.flush()
        os.fsync(file.fileno())
    stat = _part(path).stat()
    remember(TarShard(path, stat.st_size, crc32(_part(path)), scan(_part(path))), stat.st_mtime_ns)
    return path


def _part(path: Path) -> Path:
    """The name of a shard until the dataset is finished."""
    return path.with_name(path.name + ".part")


def _key(folder: Path, sample: Sample) -> str:
    key = sample.get("__key__")
    if not isinstance(key, str) or not key.rpartition("/")[2]:
        raise DataError(f"{folder}: a sample with the parts {sorted(sample)} has no `__key__`: give each a name.")
    if "." in key.rpartition("/")[2]:
        raise DataError(f"{folder}: the key {key!r} has a dot in its last part, where the kind of a file begins.")
    return key


def _encoded(folder: Path, name: str, value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    encoder = _ENCODERS.get(name.rpartition(".")[2])
    if encoder is None:
        raise DataError(
            f"{folder}: part {name!r} is a {type(value).__name__}; give bytes, or name it {sorted(_ENCODERS)}."
        )
    return encoder(value)


def _npy(value: Any) -> bytes:
    stream = io.BytesIO()
    np.save(stream, np.asarray(value), allow_pickle=False)
    return stream.getvalue()


_DECODERS: Final[dict[str, Callable[[bytes], Any]]] = {
    "txt": lambda raw: raw.decode(),
    "text": lambda raw: raw.decode(),
    "cls": int,
    "index": int,
    "json": json.loads,
    "npy": lambda raw: np.load(io.BytesIO(raw), allow_pickle=False),
}
_ENCODERS: Final[dict[str, Callable[[Any], bytes]]] = {
    "txt": lambda value: str(value).encode(),
    "text": lambda value: str(value).encode(),
    "cls": lambda value: str(int(value)).encode(),
    "index": lambda value: str(int(value)).encode(),
    "json": lambda value: json.dumps(value).encode(),
    "npy": _npy,
}
