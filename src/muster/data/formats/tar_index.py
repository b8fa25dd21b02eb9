"""The index of the samples in a tar: read from its headers once, and cached in a small file beside it."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from muster.data.errors import DataError
from muster.data.files import check_size, write_json

_SIDECAR: Final = ".muster.json"
_BLOCK: Final = 512  # bytes: the block size of a tar


@dataclass(frozen=True, slots=True)
class Table:
    """The samples of a tar, as arrays: about a hundred bytes per sample, because there may be millions."""

    names: tuple[str, ...]  # names of parts, each once
    starts: NDArray[np.int64]  # [samples + 1]: the first row of each sample
    rows: NDArray[np.int64]  # [parts, 3]: number of the name, offset and size in bytes
    keys: NDArray[np.bytes_]  # [samples], UTF-8

    def __len__(self) -> int:
        return len(self.keys)

    def key(self, place: int) -> str:
        return bytes(self.keys[place]).decode(errors="surrogateescape")

    def parts(self, place: int) -> list[tuple[str, int, int]]:
        """Name, offset and size in bytes of each part of a sample."""
        rows = self.rows[self.starts[place] : self.starts[place + 1]].tolist()
        return [(self.names[name], offset, size) for name, offset, size in rows]

    def same(self, other: Table) -> bool:
        pairs = ((self.starts, other.starts), (self.rows, other.rows), (self.keys, other.keys))
        return self.names == other.names and all(np.array_equal(one, two) for one, two in pairs)


@dataclass(frozen=True, slots=True)
class TarShard:
    """One tar and the positions of its samples."""

    path: Path
    size: int  # bytes
    crc32: int | None  # of the whole file, if its writer recorded it
    table: Table


def find_shard(path: Path) -> TarShard:
    """Reads the sidecar if it belongs to this version of the file, else the headers."""
    stat = path.stat()
    crc: int | None = None
    try:
        raw = json.loads(_sidecar(path).read_text("utf-8"))
        crc = raw["crc32"]
        known = _table(raw["keys"], raw["names"], raw["starts"], raw["rows"])
        if crc is not None:
            check_size(path, raw["bytes"])
        if (raw["bytes"], raw["mtime_ns"]) == (stat.st_size, stat.st_mtime_ns):
            return TarShard(path, stat.st_size, crc, known)
    except DataError:
        raise
    except (OSError, KeyError, TypeError, ValueError):
        pass  # there is no sidecar, or it is invalid: the headers contain everything
    shard = TarShard(path, stat.st_size, crc, scan(path))
    remember(shard, stat.st_mtime_ns)
    return shard


def remember(shard: TarShard, changed: int) -> None:
    """Writes the sidecar. `changed`: modification time of the tar in ns since 1970."""
    table = shard.table
    arrays = {"names": table.names, "starts": table.starts.tolist(), "rows": table.rows.tolist()}
    keys = [table.key(place) for place in range(len(table))]
    content = {"bytes": shard.size, "mtime_ns": changed, "crc32": shard.crc32, "keys": keys, **arrays}
    try:
        write_json(_sidecar(shard.path), content)
    except OSError:
        pass  # the folder is not writable: the headers are read again next time


def scan(path: Path) -> Table:
    """Reads every header of a tar; raises DataError for a tar that isn't complete."""
    names: dict[str, int] = {}
    keys: list[str] = []
    starts: list[int] = []
    rows: list[tuple[int, int, int]] = []
    for name, offset, size in _members(path):
        folder, slash, base = name.rpartition("/")
        stem, dot, part = base.partition(".")
        if not stem or not dot:
            continue  # such as .DS_Store, or a file without an extension: WebDataset ignores these too
        key = folder + slash + stem
        if not keys or keys[-1] != key:
            keys.append(key)
            starts.append(len(rows))
        number = names.setdefault(part.lower(), len(names))
        if any(number == known for known, _, _ in rows[starts[-1] :]):
            raise DataError(f"{path}: {name} is there twice in one sample.")
        rows.append((number, offset, size))
    return _table(keys, list(names), [*starts, len(rows)], rows)


def _sidecar(path: Path) -> Path:
    return path.with_name(path.name + _SIDECAR)


def _table(keys: list[str], names: list[str], starts: list[int], rows: Sequence[Sequence[int]]) -> Table:
    texts = np.array([key.encode(errors="surrogateescape") for key in keys], np.bytes_)
    return Table(tuple(names), np.array(starts, np.int64), np.array(rows, np.int64).reshape(-1, 3), texts)


def _members(path: Path) -> Iterator[tuple[str, int, int]]:
    """Name, offset and size in bytes of each file, after checking that the tar is complete."""
    found = path.stat().st_size
    try:
        with tarfile.open(path, "r:") as tar:
            members = tar.getmembers()
            end = tar.offset
    except (tarfile.TarError, OSError, EOFError) as error:
        raise DataError(
            f"{path} has {found} bytes and is cut off or no tar: {error}. Write or copy it again."
        ) from error
    with path.open("rb") as file:
        file.seek(end)
        if file.read(_BLOCK) != bytes(_BLOCK):
            raise DataError(
                f"{path} is cut off or damaged: it has {found} bytes, and at byte {end} stands neither a file nor the "
                f"mark that ends a tar ({end + 2 * _BLOCK} bytes or more were expected). Write or copy it again."
            )
    for member in members:
        if member.issparse():
            raise DataError(f"{path}: {member.name} is stored as a sparse file. Write the tar without `--sparse`.")
        if member.isfile():
            yield member.name, member.offset_data, member.size
