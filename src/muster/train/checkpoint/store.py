"""Checkpoint stores: the interface, and its implementation for folders on a shared disk."""

from __future__ import annotations

import os
import shutil
import threading
import zlib
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from muster.runtime import checkpoints, manifest, rank_info
from muster.runtime.manifest import Manifest
from muster.train.checkpoint.owner import FileHold, Hold
from muster.train.errors import CheckpointDamaged, CheckpointError

BLOCK: Final = 8 << 20  # block size in bytes for checksums, writes and reads
FILE_BYTES: Final = 256 << 20  # files of a rank are written and verified in parallel
FILES_MAX: Final = 16


@dataclass(frozen=True, slots=True)
class Committed:
    """A committed checkpoint. Its files may still be damaged."""

    folder: str
    manifest: Manifest | None
    damage: str | None = None  # why there is no manifest


class Store(Protocol):
    """A store of checkpoints. Names are relative to it, with slashes. Only rank 0 commits and deletes."""

    @property
    def where(self) -> str: ...

    def file_bytes(self, size: int) -> int:
        """About how large the files should be into which a rank divides `size` bytes."""

    def put(self, name: str, data: memoryview) -> int:
        """Writes a file durably and returns the CRC-32 of the data."""

    def get(self, name: str) -> bytes: ...

    def read(self, name: str, at: int, into: memoryview) -> None:
        """Fills `into` from byte `at` on. Raises CheckpointDamaged if the file is too short."""

    def files(self, folder: str) -> dict[str, int]:
        """The files of a checkpoint by name relative to its folder, with their sizes."""

    def committed(self) -> list[Committed]:
        """All checkpoints, newest commit first; those without a readable manifest last."""

    def begin(self, step: int) -> str:
        """Creates a folder for a checkpoint's files; it doesn't count as a checkpoint yet."""

    def commit(self, folder: str, step: int, encoded: bytes) -> str:
        """Commits the folder atomically as a checkpoint and returns its final name."""

    def abandon(self, folder: str) -> None:
        """Removes an uncommitted folder. Never raises."""

    def delete(self, folder: str) -> None:
        """Removes a checkpoint; readers see all of it or none of it. Never raises."""

    def clean(self) -> None:
        """Removes incomplete folders of dead processes."""

    def hold(self) -> Hold:
        """The ownership of this store; see `owner`."""

    def room(self) -> str:
        """The free space, as text."""


@dataclass
class Local:
    """Folders on a disk, in the format of `muster.runtime.checkpoints`."""

    root: Path
    _saving: ExitStack = field(default_factory=ExitStack, repr=False)

    @property
    def where(self) -> str:
        return str(self.root)

    def file_bytes(self, size: int) -> int:
        return max(FILE_BYTES, -(-size // FILES_MAX))

    def put(self, name: str, data: memoryview) -> int:
        path = self.root / name
        try:
            fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        except FileNotFoundError as error:
            raise CheckpointError(
                f"{path.parent} is not there, though rank 0 has made it. Save to a folder that all nodes share."
            ) from error
        try:
            crc = _write(fd, data.cast("B"))
            os.fsync(fd)
        finally:
            os.close(fd)
        return crc

    def get(self, name: str) -> bytes:
        return (self.root / name).read_bytes()

    def read(self, name: str, at: int, into: memoryview) -> None:
        left = into.cast("B")
        with (self.root / name).open("rb", buffering=0) as file:
            while len(left):
                count = os.preadv(file.fileno(), [left[:BLOCK]], at)
                if count == 0:
                    raise CheckpointDamaged(f"{self.root / name} ends at byte {at}; {len(left)} more were expected.")
                at += count
                left = left[count:]

    def files(self, folder: str) -> dict[str, int]:
        base = self.root / folder
        return {p.relative_to(base).as_posix(): p.stat().st_size for p in base.rglob("*") if p.is_file()}

    def committed(self) -> list[Committed]:
        return [Committed(each.path.name, each.manifest, each.damage) for each in checkpoints.candidates(self.root)]

    def begin(self, step: int) -> str:
        self.root.mkdir(parents=True, exist_ok=True)
        name = f".saving-{rank_info.attempt()}-{step:09d}-{os.urandom(4).hex()}"
        self._saving.enter_context(checkpoints.cleaned(self.root))
        try:
            (self.root / name).mkdir()
        except OSError:
            self._saving.close()
            raise
        return name

    def commit(self, folder: str, step: int, encoded: bytes) -> str:
        self.put(f"{folder}/{manifest.MANIFEST}", memoryview(encoded))
        manifest.sync_folder(self.root / folder)
        final = checkpoints.commit(self.root, self.root / folder, step)
        self._saving.close()
        return final.name

    def abandon(self, folder: str) -> None:
        shutil.rmtree(self.root / folder, ignore_errors=True)
        self._saving.close()

    def delete(self, folder: str) -> None:
        checkpoints.remove(self.root / folder)

    def clean(self) -> None:
        """Moves them away at once. Their bytes are freed by a thread, so that the restore does not wait for it."""
        self.root.mkdir(parents=True, exist_ok=True)
        left: list[Path] = []

        def take(path: Path) -> None:
            with suppress(OSError):
                left.append(checkpoints.set_aside(path))

        with checkpoints.cleaned(self.root, take):
            pass
        if left:  # not a daemon: the interpreter's exit waits for it
            threading.Thread(target=_remove, args=(left,), name="muster-clean").start()

    def hold(self) -> Hold:
        return FileHold(self.root)

    def room(self) -> str:
        return checkpoints.free_space(self.root)


def checksum(data: bytes | memoryview, crc: int = 0) -> int:
    return zlib.crc32(data, crc)


def _remove(folders: list[Path]) -> None:
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


def _write(fd: int, data: memoryview) -> int:
    """Writes and checksums block by block, while a block is in the processor's cache."""
    crc = 0
    while len(data):
        count = os.write(fd, data[:BLOCK])
        crc = zlib.crc32(data[:count], crc)
        data = data[count:]
    return crc
