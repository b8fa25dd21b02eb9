"""Token shards: one long row of tokens in several files, with direct access to every window.

A shard is a header of 64 bytes (magic, version, bytes per token, vocabulary, count, CRC-32 of the tokens) and then the
tokens, little-endian, as u16 if the vocabulary allows it, else u32. `index.json` lists the shards and is written last.
Sample i is tokens [i * length, i * length + length + 1): inputs and targets together, across shard boundaries.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Final

import numpy as np
from numpy.typing import NDArray

from muster.data.cache import Remote, ShardCache
from muster.data.dataset import Arrays, Sample
from muster.data.errors import DataError
from muster.data.files import INDEX, Maps, check_size, crc32, fresh, mapped, read_index, write_json
from muster.data.windows import Windows, over

Tokens = NDArray[np.unsignedinteger]  # u16 or u32
_FORMAT, _VERSION = "muster-tokens", 1
_MAGIC: Final = b"MUSTERTK"
_HEADER: Final = struct.Struct("<8sIIQQI28x")  # 64 bytes, so that the tokens are aligned
_SHARD: Final = 64 << 20  # tokens per shard: 128 MB as u16


def write(folder: Path, samples: Iterable[Sample], *, vocab: int, shard: int = _SHARD) -> None:
    """Writes the tokens of all samples (their part `tokens`, any length) one after the other."""
    with Writer(folder, vocab, shard) as writer:
        for sample in samples:
            writer.append(sample["tokens"])


def open(folder: Path | str, *, length: int, cache: ShardCache | None = None) -> TokenShards:
    """Raises DataError unless every shard exists with its size and header, and there is at least one whole sample.

    With a cache `folder` is an address that its `fetch` knows, and each shard is fetched and checked, with the CRC-32
    of its tokens, when it is first read.
    """
    if length < 1:
        raise DataError(f"{folder}: samples of {length} tokens were asked for; give 1 or more.")
    if cache is not None:
        found = _remote(str(folder).rstrip("/"), length, cache)
    else:
        folder = Path(folder)
        index = _index(folder)
        for shard in index.shards:
            _check_shard(folder / shard.file, shard, index)
        found = TokenShards(folder, length, index)
    if len(found) < 1:
        raise DataError(
            f"{folder} holds {found.index.total} tokens; one sample of length {length} needs {length + 1}. "
            "Give a shorter length or more data."
        )
    return found


@dataclass(frozen=True, slots=True)
class Shard:
    """One file, as listed in index.json."""

    file: str
    tokens: int
    crc32: int


@dataclass(frozen=True, slots=True)
class Index:
    """The content of index.json."""

    dtype: np.dtype[np.unsignedinteger]
    vocab: int
    shards: tuple[Shard, ...]

    @property
    def total(self) -> int:
        return sum(shard.tokens for shard in self.shards)


@dataclass(eq=False)
class TokenShards:
    """Windows of an opened row of tokens; each sample has the part `tokens`, of length + 1 entries."""

    folder: Path
    length: int
    index: Index
    raw: Callable[[Path], NDArray[np.uint8]] = mapped  # the content of a shard's file
    _maps: Maps[int] = field(init=False, repr=False)  # tokens by number of the shard
    _paths: list[Path] = field(default_factory=list, repr=False)
    _ends: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64), repr=False)  # of shards, in the row
    _begins: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64), repr=False)

    def __post_init__(self) -> None:
        sizes = np.array([shard.tokens for shard in self.index.shards], np.int64)
        self._ends = np.cumsum(sizes)
        self._begins = self._ends - sizes
        self._paths = [self.folder / shard.file for shard in self.index.shards]
        self._maps = Maps(lambda number: self.raw(self._paths[number])[_HEADER.size :].view(self.index.dtype))

    def __len__(self) -> int:
        return max(0, (int(self._ends[-1]) - 1) // self.length)

    def read(self, index: int) -> Sample:
        if not 0 <= index < len(self):
            raise DataError(f"{self.folder}: sample {index} was asked for; there are {len(self)}.")
        start = index * self.length
        return {"tokens": self.row(start, start + self.length + 1)}

    def gather(self, indices: NDArray[np.int64]) -> Arrays:
        """The samples of these numbers, stacked: `tokens` [n, length + 1], copied once from the memory maps.

        One index copies all that are mapped already; a shard that isn't is mapped, and copied from, before the next.
        """
        if len(indices) == 0 or indices.view(np.uint64).max() >= len(self):  # as unsigned, one below 0 is huge
            raise DataError(f"{self.folder}: samples {indices} were asked for; there are {len(self)}.")
        starts = indices * self.length
        shards = self._ends.searchsorted(starts, side="right")
        windows: Windows | None = self._maps.made
        direct = windows.hold(starts, shards) if windows is not None else np.zeros(len(indices), bool)
        if windows is not None and direct.all():
            return {"tokens": windows.copy(starts, shards)}
        wide = self.length + 1
        rows = np.empty((len(indices), wide), self.index.dtype)
        if windows is not None:
            rows[direct] = windows.copy(starts[direct], shards[direct])
            del windows  # a shard that is fetched may need the room of others
        for number in np.flatnonzero(~direct).tolist():
            rows[number] = self.row(int(starts[number]), int(starts[number]) + wide)
        if self._maps.made is None:
            self._maps.made = over(self._maps.held(), self._begins, wide)
        return {"tokens": rows}

    def row(self, start: int, end: int) -> Tokens:
        """Tokens [start, end) of the whole row: a view if one shard holds them, else a copy."""
        number = int(np.searchsorted(self._ends, start, side="right"))
        pieces: list[Tokens] = []
        while start < end:
            begin, stop = int(self._begins[number]), min(end, int(self._ends[number]))
            if stop > start:  # an empty shard has none
                pieces.append(self._maps.content(number)[start - begin : stop - begin])
            start, number = stop, number + 1
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)

    def verify(self) -> None:
        """Reads every shard; raises DataError if its tokens aren't those that were written."""
        for number, (path, shard) in enumerate(zip(self._paths, self.index.shards, strict=True)):
            if self.raw is mapped:
                _check_whole(path, shard, self.index)
            else:  # in a cache, or fetched into it now
                _check_content(path, zlib.crc32(self._maps.content(number).data), shard)

    def close(self) -> None:
        self._maps.clear()


@dataclass(eq=False)
class Writer:
    """Appends tokens. The dataset is complete after `close`, or after a `with` block without an error."""

    folder: Path
    vocab: int
    shard: int = _SHARD  # maximum tokens per file
    shards: list[Shard] = field(default_factory=list, init=False)
    _file: BinaryIO | None = field(default=None, init=False, repr=False)
    _count: int = field(default=0, init=False, repr=False)  # tokens in the open file
    _crc: int = field(default=0, init=False, repr=False)

    def __post_init__(self) -> None:
        self.folder = Path(self.folder)
        if not 1 <= self.vocab <= 1 << 32:
            raise DataError(f"{self.folder}: a vocabulary of {self.vocab}; give 1 to 2**32.")
        if self.shard < 1:
            raise DataError(f"{self.folder}: shards of {self.shard} tokens; give 1 or more.")

    def append(self, tokens: NDArray[np.integer] | list[int]) -> None:
        """Appends a document or any sequence of tokens, of any length."""
        given = np.asarray(tokens)
        if given.size == 0:
            return
        if given.ndim != 1 or given.dtype.kind not in "iu":
            raise DataError(
                f"{self.folder}: tokens of shape {given.shape} and type {given.dtype}; give one row of integers."
            )
        low, high = int(given.min()), int(given.max())
        if low < 0 or high >= self.vocab:
            raise DataError(
                f"{self.folder}: token {low if low < 0 else high} is outside the vocabulary of {self.vocab}."
            )
        plain = given.astype(_dtype(self.vocab))
        while plain.size:
            room = self.shard - self._count
            self._put(plain[:room].tobytes(), len(plain[:room]))
            plain = plain[room:]

    def close(self) -> None:
        """Finishes the last shard and writes the index."""
        self._finish_shard()
        if not self.shards:
            raise DataError(f"{self.folder}: no token was written.")
        shards = [{"file": each.file, "tokens": each.tokens, "crc32": each.crc32} for each in self.shards]
        itemsize = _dtype(self.vocab).itemsize
        header = {"format": _FORMAT, "version": _VERSION, "itemsize": itemsize, "vocab": self.vocab}
        write_json(
            self.folder / INDEX, {**header, "tokens": sum(each.tokens for each in self.shards), "shards": shards}
        )

    def __enter__(self) -> Writer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
        elif self._file is not None:
            self._file.close()

    def _put(self, data: bytes, count: int) -> None:
        if self._file is None:
            if not self.shards:
                fresh(self.folder)
            self._file = (self.folder / f"shard-{len(self.shards):05d}.tokens").open("wb")
            self._file.write(bytes(_HEADER.size))
            self._count = self._crc = 0
        self._file.write(data)
        self._crc = zlib.crc32(data, self._crc)
        self._count += count
        if self._count == self.shard:
            self._finish_shard()

    def _finish_shard(self) -> None:
        if self._file is None:
            return
        shard = Shard(f"shard-{len(self.shards):05d}.tokens", self._count, self._crc)
        self._file.seek(0)
        self._file.write(_header(shard, self.vocab))
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        self._file, self._count = None, 0
        self.shards.append(shard)


def _dtype(vocab: int) -> np.dtype[np.unsignedinteger]:
    return np.dtype("<u2") if vocab <= 1 << 16 else np.dtype("<u4")


def _header(shard: Shard, vocab: int) -> bytes:
    return _HEADER.pack(_MAGIC, _VERSION, _dtype(vocab).itemsize, vocab, shard.tokens, shard.crc32)


def _index(folder: Path) -> Index:
    raw = read_index(folder)
    try:
        if (raw["format"], raw["version"]) != (_FORMAT, _VERSION):
            raise DataError(
                f"{folder / INDEX} is of format {raw['format']!r} version {raw['version']!r}; "
                f"{_FORMAT!r} version {_VERSION} was expected."
            )
        shards = tuple(Shard(str(each["file"]), int(each["tokens"]), int(each["crc32"])) for each in raw["shards"])
        return Index(_dtype(int(raw["vocab"])), int(raw["vocab"]), shards)
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(f"{folder / INDEX} is no index of token shards: {error!r}") from error


def _remote(address: str, length: int, cache: ShardCache) -> TokenShards:
    folder = cache.dataset(address)
    index = _index(folder)
    shards = {
        folder / shard.file: Remote(
            f"{address}/{shard.file}",
            _HEADER.size + shard.tokens * index.dtype.itemsize,
            partial(_check_whole, shard=shard, index=index),
        )
        for shard in index.shards
    }
    found = TokenShards(folder, length, index, lambda path: cache.content(path, shards[path]))
    cache.watch(found._maps)
    return found


def _check_whole(path: Path, shard: Shard, index: Index) -> None:
    _check_shard(path, shard, index)
    _check_content(path, crc32(path, _HEADER.size), shard)


def _check_content(path: Path, found: int, shard: Shard) -> None:
    if found != shard.crc32:
        raise DataError(
            f"{path} is damaged: the CRC-32 of its tokens is {found:08x} and {shard.crc32:08x} was written. "
            "Copy or write it again."
        )


def _check_shard(path: Path, shard: Shard, index: Index) -> None:
    check_size(path, _HEADER.size + shard.tokens * index.dtype.itemsize)
    with path.open("rb") as file:
        found = file.read(_HEADER.size)
    if found != _header(shard, index.vocab):
        raise DataError(
            f"{path}: its header isn't the one that {INDEX} tells of; they are of two datasets, or damaged."
        )
