"""The package shipped to nodes that have no Muster: the launcher and what ranks import, as one archive or as a folder.

On the node it needs only the standard library, except for what a user's code uses of `muster.train` and `muster.data`.
It contains no server code. `python FOLDER` and `python ARCHIVE` both run `muster.runtime.boot`.
"""

from __future__ import annotations

import functools
import hashlib
import io
import os
import py_compile
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import muster

# The modules that the worker side imports; none of them imports server code.
PARTS: Final = (
    "__init__.py", "py.typed", "wire.py", "inherited.py", "masking.py", "certificates.py", "exec_frames.py",
    "copying.py", "object_store.py", "checks", "runtime", "train", "data", "foreign", "adapters",
)  # fmt: skip
MAIN: Final = "__main__.py"
# The modules that every launcher imports, shipped compiled for nodes with the same Python.
COMPILED: Final = ("__init__.py", "wire.py", "inherited.py", "masking.py", "certificates.py", "runtime")
# Modules of `runtime` that no launcher imports when it starts: ranks do, or few launchers. They are shipped as source
# alone, because a ConfigMap of Kubernetes, which holds the archive, is limited to 1 MiB.
SOURCE_ALONE: Final = frozenset(
    f"runtime/{name}.py" for name in (
        "checkpoint_files", "checkpoint_search", "checkpoints", "child_runs", "cuda_driver", "device_checks",
        "exec_host", "exporters", "fault_watch", "kernel_log", "launch_start", "link_check", "manifest", "media",
        "memory_checkpoints", "mirror_sinks", "mirrors", "node_checks", "node_finding", "offline", "phases",
        "png", "rungs", "server", "sidecar", "signals", "spare", "spare_launcher", "spare_rules", "start_checkpoint",
        "tracker", "warm", "xid_codes",
    )
)  # fmt: skip
# What is imported from the archive itself: Python looks there for compiled modules beside their source alone.
FROM_ARCHIVE: Final = ("__init__.py", "runtime/__init__.py", "runtime/unpack.py")
_OUTSIDE: Final = frozenset({
    MAIN, *(f"muster/{path}" for path in FROM_ARCHIVE), *(f"muster/{path}c" for path in FROM_ARCHIVE),
})  # fmt: skip
_MAIN_TEXT: Final = b"from muster.runtime.unpack import run\n\nrun()\n"
INSIDE: Final = "inside.zip"  # as in `muster.runtime.unpack`
_NO_TIME: Final = (1980, 1, 1, 0, 0, 0)  # the earliest date of an archive, so that equal content is an equal archive


@dataclass(frozen=True, slots=True)
class Package:
    digest: str  # of names and content
    files: dict[str, bytes]  # by path, with slashes: "muster/wire.py"

    def as_zip(self) -> bytes:
        """An archive that Python can run; equal content gives equal bytes. What is not imported from the archive itself
        is in an archive inside it, compressed as one piece: that takes a fifth less."""
        outside = {path: content for path, content in self.files.items() if path in _OUTSIDE}
        inside = {path: content for path, content in self.files.items() if path not in _OUTSIDE}
        return _zip({**outside, INSIDE: _zip(inside, zipfile.ZIP_STORED)})

    def unpack_into(self, folder: Path) -> Path:
        """Unpacks the files into a subfolder named by the digest and returns it.
        It appears complete or not at all, and is written once."""
        place = folder / self.digest[:16]
        if place.is_dir():
            return place
        draft = folder / f".{place.name}.{os.urandom(4).hex()}"  # process ids on nodes that share it may be equal
        try:
            for path, content in self.files.items():
                target = draft / path
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content)
            draft.rename(place)
        except OSError:
            if not place.is_dir():  # another process was first
                raise
        finally:
            shutil.rmtree(draft, ignore_errors=True)
        return place


def _zip(files: Mapping[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", method, compresslevel=9) as archive:
        for path, content in sorted(files.items()):
            info = zipfile.ZipInfo(path, _NO_TIME)
            info.compress_type = method
            info.external_attr = 0o644 << 16
            archive.writestr(info, content)
    return made.getvalue()


@functools.cache
def worker_package(also: tuple[str, ...] = ()) -> Package:
    """Packs the installed Muster. `also` names further parts of it, such as ("core", "engines")."""
    root = Path(muster.__file__).parent
    files = {f"muster/{path.relative_to(root).as_posix()}": path.read_bytes() for path in _paths(root, (*PARTS, *also))}
    files |= {f"muster/{path}": content for path, content in _compiled(root)}
    files[MAIN] = _MAIN_TEXT
    found = hashlib.sha256()
    for path, content in sorted(files.items()):
        found.update(f"{path}\0{len(content)}\0".encode())
        found.update(content)
    return Package(found.hexdigest(), files)


@functools.cache
def worker_archive() -> bytes:
    """The installed Muster as an archive. To compress it takes longer than to hand a gang over, and every gang asks."""
    return worker_package().as_zip()


def _compiled(root: Path) -> Iterator[tuple[str, bytes]]:
    """Compiled modules, validated by content hash and not by time, so that they work wherever they are unpacked."""
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "made.pyc"
        for path in _paths(root, COMPILED):
            inside = path.relative_to(root)
            if path.suffix == ".py" and inside.as_posix() not in SOURCE_ALONE:
                mode = py_compile.PycInvalidationMode.UNCHECKED_HASH
                py_compile.compile(str(path), str(made), f"muster/{inside}", doraise=True, invalidation_mode=mode)
                name = f"{path.stem}.{sys.implementation.cache_tag}.pyc"
                yield (inside.parent / "__pycache__" / name).as_posix(), made.read_bytes()
                if inside.as_posix() in FROM_ARCHIVE:
                    yield inside.with_suffix(".pyc").as_posix(), made.read_bytes()


def _paths(root: Path, parts: tuple[str, ...]) -> Iterator[Path]:
    for part in parts:
        if (root / part).is_file():
            yield root / part
        for path in (root / part).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyc":
                yield path
