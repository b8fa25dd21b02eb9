"""Makes a folder durable and records its content, so that damage is found before anything is loaded from it."""

from __future__ import annotations

import json
import os
import re
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

MANIFEST: Final = "manifest.json"
COMMITTED: Final = re.compile(r"step-(\d{9,})(?:\.(\d+))?")  # the name of a committed checkpoint
_CHUNK: Final = 4 << 20  # bytes per read
_THREADS: Final = 4  # checksums and fsync both release the GIL


@dataclass(frozen=True, slots=True)
class Manifest:
    """The content of a checkpoint's folder. `serial` counts commits in one folder: the newest has the highest."""

    step: int
    serial: int
    time: float
    files: dict[str, tuple[int, int]]  # name relative to the folder: size in bytes, CRC-32
    attempt: int = 0  # that saved it; 0: a version before this field

    @property
    def total(self) -> int:
        return sum(size for size, _ in self.files.values())


def seal(folder: Path, step: int, serial: int, time: float, attempt: int = 0) -> Manifest:
    """Flushes every file to disk, then writes the manifest, then flushes that."""
    if (folder / MANIFEST).exists():
        raise ValueError(f"checkpoint of step {step}: {MANIFEST} is Muster's own file. Save yours under another name.")
    names, folders = _contents(folder, step)
    with ThreadPoolExecutor(_THREADS) as pool:
        sums = list(pool.map(lambda name: _flushed_checksum(folder / name), names))
    manifest = Manifest(step, serial, time, dict(zip(names, sums, strict=True)), attempt)
    with (folder / MANIFEST).open("xb") as file:
        file.write(encode(manifest))
        file.flush()
        os.fsync(file.fileno())
    for each in folders:
        sync_folder(each)
    return manifest


def load(folder: Path) -> Manifest:
    """Raises ValueError, with the problem, for a folder whose manifest is missing or invalid."""
    try:
        data = (folder / MANIFEST).read_bytes()
    except OSError as error:
        raise ValueError(f"its {MANIFEST} cannot be read: {error!r}") from error
    return decode(data)


def encode(manifest: Manifest) -> bytes:
    """The content of a checkpoint's manifest file."""
    files = {name: {"bytes": size, "crc32": crc} for name, (size, crc) in manifest.files.items()}
    raw: dict[str, Any] = {"step": manifest.step, "serial": manifest.serial, "time": manifest.time}
    raw |= {"attempt": manifest.attempt, "files": files}
    return json.dumps(raw, indent=1).encode()


def decode(data: bytes) -> Manifest:
    """Raises ValueError, with the problem, for an invalid manifest."""
    try:
        raw: Any = json.loads(data.decode())
        files = {str(name): (int(entry["bytes"]), int(entry["crc32"])) for name, entry in raw["files"].items()}
        return Manifest(int(raw["step"]), int(raw["serial"]), float(raw["time"]), files, int(raw.get("attempt", 0)))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"its {MANIFEST} cannot be read: {error!r}") from error


def damage(folder: Path, manifest: Manifest, checksums: bool) -> str | None:
    """What is wrong with the files of a checkpoint; None when nothing is."""
    for name, (size, _) in manifest.files.items():
        try:
            found = (folder / name).stat().st_size
        except OSError as error:
            return f"{name} cannot be read: {error.strerror}"
        if found != size:
            return f"{name} has {found} bytes; {size} were saved"
    if not checksums:
        return None
    with ThreadPoolExecutor(_THREADS) as pool:
        found_wrong = pool.map(lambda item: _wrong(folder / item[0], item[1][1]), manifest.files.items())
        return next((f"{name}: {what}" for name, what in zip(manifest.files, found_wrong, strict=True) if what), None)


def sync_folder(folder: Path) -> None:
    """Makes the names in a folder durable."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _contents(folder: Path, step: int) -> tuple[list[str], list[Path]]:
    """The names of all files, sorted, and all folders, the innermost first."""
    names: list[str] = []
    folders: list[Path] = []
    for parent, subfolders, files in os.walk(folder, topdown=False):
        folders.append(Path(parent))
        for name in [*files, *(each for each in subfolders if (Path(parent) / each).is_symlink())]:
            path = Path(parent) / name
            if path.is_symlink() or not path.is_file():
                raise ValueError(
                    f"checkpoint of step {step}: {name} is a link or a device. Save a copy of what it stands for."
                )
            names.append(path.relative_to(folder).as_posix())
    if not names:
        raise ValueError(
            f"checkpoint of step {step}: no file was saved in {folder}. Save at least one in the `with` block."
        )
    return sorted(names), folders


def _flushed_checksum(path: Path) -> tuple[int, int]:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
        return _checksum(fd)
    finally:
        os.close(fd)


def _wrong(path: Path, expected: int) -> str | None:
    try:
        fd = os.open(path, os.O_RDONLY)
        try:
            _, found = _checksum(fd)
        finally:
            os.close(fd)
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    return None if found == expected else f"its checksum is {found:08x}; it was saved with {expected:08x}"


def _checksum(fd: int) -> tuple[int, int]:
    size = crc = 0
    while chunk := os.read(fd, _CHUNK):
        size += len(chunk)
        crc = zlib.crc32(chunk, crc)
    return size, crc
