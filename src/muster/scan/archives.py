"""Archives and compressed files: their members one by one, and what makes them fit for no reader."""

from __future__ import annotations

import bz2
import gzip
import lzma
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import BinaryIO, Final

from muster.scan.limits import BOMB_BYTES, BOMB_RATIO, MEMBERS, Broken, Budget, TooMuch
from muster.scan.reader import Source

ZIP: Final = b"PK\x03\x04"
_END: Final = b"PK\x05\x06"
_LOCAL: Final = struct.Struct("<4s5H3I2H")
# Formats that nothing here opens, by how they begin.
SEALED: Final = {
    b"7z\xbc\xaf\x27\x1c": "7z",
    b"Rar!\x1a\x07": "rar",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"\x04\x22\x4d\x18": "lz4",
    b"\x1f\x9d": "compress",
}
_METHODS: Final = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
_FLAGS: Final = 0x0001 | 0x0020 | 0x0040 | 0x2000  # encrypted, patched, strong encryption, masked headers
ERRORS: Final = (
    zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, OSError, EOFError, ValueError, IndexError,
    KeyError, NotImplementedError, RuntimeError, struct.error, OverflowError,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Member:
    name: str
    size: int
    file: Source
    numbers: bool = False  # a storage in a file of torch.save: its bytes are never read as anything else


def has_zip(file: BinaryIO, head: bytes) -> bool:
    """Whether any reader would take the file for a zip: by its start, or by the directory at its end."""
    if head.startswith((ZIP, _END)):
        return True
    file.seek(0)
    return zipfile.is_zipfile(file)


def zip_members(file: BinaryIO, size: int, budget: Budget) -> Iterator[Member]:
    """Raises Broken for what readers of zip files take in different ways, and for bombs."""
    tail = _tail(file, size)
    at = tail.rfind(_END)
    if at < 0 or len(tail) - at != 22 + int.from_bytes(tail[at + 20 : at + 22], "little"):
        raise Broken("its zip directory is broken, or is not at its end")
    with zipfile.ZipFile(file) as archive:
        infos = archive.infolist()
        _check_zip(file, infos, size)
        names = {info.filename for info in infos}
        for info in infos:
            budget.member()
            if info.is_dir():
                continue
            with archive.open(info) as member:
                yield Member(info.filename, info.file_size, member, _is_storage(info.filename, names))
                while budget.read and not _stored(info) and (data := member.read(1 << 16)):  # to the checksum
                    if member.tell() > BOMB_BYTES:
                        break
                    budget.spend(len(data))


def _is_storage(name: str, names: Collection[str]) -> bool:
    """`archive/data/7`, beside `archive/data.pkl` and `archive/version`."""
    root, _, rest = name.rpartition("/data/")
    return rest.isascii() and rest.isdigit() and f"{root}/data.pkl" in names and f"{root}/version" in names


def tar_members(file: BinaryIO, budget: Budget, streamed: bool = False) -> Iterator[Member]:
    with tarfile.open(fileobj=file, mode="r|" if streamed else "r:") as archive:
        for info in archive:
            budget.member()
            _check_name(info.name, "tar")
            if info.issym() or info.islnk():
                if info.linkname.startswith("/") or ".." in info.linkname.replace("\\", "/").split("/"):
                    raise Broken(f"a link in its tar points out of it: {info.name[:100]!r}")
            elif not info.isfile() and not info.isdir():
                raise Broken(f"its tar has a device or another special file: {info.name[:100]!r}")
            member = archive.extractfile(info) if info.isfile() else None
            if member is not None:
                yield Member(info.name, info.size, member)


def is_tar(head: bytes) -> bool:
    if len(head) < 512 or not any(head[:512]):
        return False
    try:
        tarfile.TarInfo.frombuf(head[:512], "utf-8", "surrogateescape")
    except tarfile.TarError:
        return False
    return True


def unpacked(file: BinaryIO, head: bytes) -> Source | None:
    """The content of a compressed file; None if it is none."""
    if head.startswith(b"\x1f\x8b"):
        return gzip.GzipFile(fileobj=file)
    if head.startswith(b"BZh") and head[3:4].isdigit():
        return bz2.BZ2File(file)
    if head.startswith((b"\xfd7zXZ\x00", b"\x5d\x00\x00")):
        return lzma.LZMAFile(file)
    if head[:2] in (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda"):
        return _Zlib(file)
    return None


class Weighed:
    """A compressed file's content, that is held against the bytes that it came from."""

    def __init__(self, content: Source, packed: int) -> None:
        self._content, self._packed, self.size = content, packed, 0

    def read(self, count: int, /) -> bytes:
        data = self._content.read(count)
        self.size += len(data)
        if self.size > BOMB_BYTES and self.size > BOMB_RATIO * self._packed:
            raise TooMuch(f"it unpacks to more than {BOMB_RATIO} times its size: a bomb")
        return data


class _Zlib:
    """A bare zlib stream, as joblib writes."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._stream, self._left = file, zlib.decompressobj(), b""

    def read(self, count: int, /) -> bytes:
        while not self._stream.eof:
            packed = self._stream.unconsumed_tail or self._file.read(1 << 16)
            if not packed:
                raise EOFError("the zlib stream ends in the middle")
            data = self._stream.decompress(packed, max(count, 1))
            if data:
                return data
        return b""


def _check_zip(file: BinaryIO, infos: list[zipfile.ZipInfo], size: int) -> None:
    if len(infos) > MEMBERS:
        raise TooMuch(f"it has {len(infos):,} members")
    names = set[str]()
    spans = list[tuple[int, int]]()
    for info in infos:
        _check_name(info.filename, "zip")
        if info.filename in names:
            raise Broken(f"{info.filename[:100]!r} stands in its zip twice")
        names.add(info.filename)
        if info.flag_bits & _FLAGS or info.compress_type not in _METHODS:
            raise Broken(f"{info.filename[:100]!r} in its zip is encrypted, or packed in a way that is not looked into")
        if stat.S_ISLNK(info.external_attr >> 16):
            raise Broken(f"{info.filename[:100]!r} in its zip is a link")
        spans.append((info.header_offset, _local_end(file, info)))
    spans.sort()
    if any(after[0] < before[1] for before, after in pairwise(spans)) or (spans and spans[-1][1] > size):
        raise Broken("members of its zip overlap")
    total = sum(info.file_size for info in infos)
    if total > BOMB_BYTES and total > BOMB_RATIO * size:
        raise TooMuch(f"it unpacks to {total / 1e9:.1f} GB from {size / 1e6:.1f} MB: a bomb")


def _local_end(file: BinaryIO, info: zipfile.ZipInfo) -> int:
    """Where the member ends. Raises Broken if its own header says something else than the directory."""
    file.seek(info.header_offset)
    magic, _, flags, method, _, _, _, _, _, name, extra = _LOCAL.unpack(file.read(_LOCAL.size))
    raw = file.read(name)
    written = info.orig_filename.encode("utf-8" if flags & 0x800 else "cp437", "replace")
    if magic != ZIP or method != info.compress_type or flags & _FLAGS or raw != written:
        raise Broken(f"{info.filename[:100]!r} in its zip has a header that the directory does not agree with")
    return info.header_offset + _LOCAL.size + int(name) + int(extra) + info.compress_size


def _check_name(name: str, kind: str) -> None:
    parts = name.replace("\\", "/").split("/")
    if ".." in parts or name.startswith(("/", "\\")) or name[1:2] == ":" or "\0" in name:
        raise Broken(f"its {kind} has a path that leads out of it: {name[:100]!r}")


def _stored(info: zipfile.ZipInfo) -> bool:
    return info.compress_type == zipfile.ZIP_STORED


def _tail(file: BinaryIO, size: int) -> bytes:
    file.seek(max(0, size - (1 << 16) - 22))
    return file.read((1 << 16) + 22)
