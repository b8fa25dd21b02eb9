"""Sees which files the Python processes of a job read, and has the next ones read a damaged copy of one of them.

A `sitecustomize` in a folder of the job's PYTHONPATH notes what is opened for reading. The data itself is never
changed: a copy is, and `open` of later processes is given that. So what is read by other means than Python's `open` and
`os.open` is not seen, and the ranks must see this machine's folders.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Final

SHARE: Final = 8  # one part in so many of the file is damaged, in its middle
LARGEST: Final = 4 << 30  # bytes of a file that is copied
# Bytes that no text has, and that as numbers are out of every range: token 65535, and NaN for floats.
_DAMAGE: Final = b"\xff"
_PIECE: Final = 1 << 20
_SITE: Final = """
import builtins, importlib, io, json, os, sys
def _install(here):
    real, real_os, known, instead = io.open, os.open, set(), {}
    # Programs, their settings, and what Muster gives a rank are no data.
    names = ("MUSTER_CHECKPOINT_DIR", "MUSTER_CHECKPOINT_MEMORY", "MUSTER_RANK_DIR", "MUSTER_CONTROL")
    places = [sys.prefix, sys.base_prefix, os.path.dirname(os.__file__), here, "/proc", "/sys", "/dev", "/etc"]
    places += [os.environ[name] for name in names if os.environ.get(name, "").startswith("/")]
    apart = tuple(os.path.join(os.path.realpath(place), "") for place in places)
    packages = (".egg-info/", ".dist-info/", "/site-packages/", "/dist-packages/")
    kinds = (".py", ".pyc", ".pyi", ".so", ".pth", ".yaml", ".yml", ".toml", ".cfg", ".ini")
    try:
        with real(os.path.join(here, "instead")) as told:
            instead.update(json.load(told))
    except (OSError, ValueError):
        pass
    def note(name, text):
        file = real_os(os.path.join(here, name), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(file, (json.dumps(text) + chr(10)).encode())
        finally:
            os.close(file)
    def to_read(file):
        try:
            path = os.path.realpath(os.fspath(file))
            if path.endswith(kinds) or path.startswith(apart) or any(one in path for one in packages):
                return file
            if not os.path.isfile(path):
                return file
            if path not in known:
                known.add(path)
                note("damaged" if path in instead else "read", path)
        except (TypeError, ValueError, OSError):  # a descriptor, bytes, or the drill's folder is gone
            return file
        return instead.get(path, file)
    def open(file, mode="r", *rest, **more):
        plain = isinstance(mode, str) and not set(mode) & set("wax+")
        return real(to_read(file) if plain else file, mode, *rest, **more)
    def os_open(path, flags, *rest, **more):
        plain = not flags & (os.O_WRONLY | os.O_RDWR) and "dir_fd" not in more
        return real_os(to_read(path) if plain else path, flags, *rest, **more)
    builtins.open = io.open = open
    os.open = os_open
_here = os.path.dirname(os.path.abspath(__file__))
_install(_here)
sys.path[:] = [place for place in sys.path if os.path.abspath(place) != _here]
sys.modules.pop("sitecustomize", None)
try:
    importlib.import_module("sitecustomize")
except ImportError:
    pass
"""


class ReadFiles:
    """`folder` belongs to the drill alone."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def install(self, envs: Mapping[str, str]) -> dict[str, str]:
        """The environment of a job whose Python processes note what they read."""
        (self.folder / "sitecustomize.py").write_text(_SITE)
        path = envs.get("PYTHONPATH")
        return {**envs, "PYTHONPATH": f"{self.folder}{os.pathsep}{path}" if path else str(self.folder)}

    def largest(self) -> Path | None:
        """The largest file that was read, of those that may be copied."""
        sizes = {path: path.stat().st_size for path in self._noted("read") if path.is_file()}
        fit = {path: size for path, size in sizes.items() if 0 < size <= LARGEST}
        return max(fit, key=lambda path: fit[path], default=None)

    def damage(self, path: Path) -> int:
        """Processes that start from now on read a damaged copy of this file. Returns how many bytes are damaged."""
        copy = self.folder / "copy" / path.name
        copy.parent.mkdir(exist_ok=True)
        shutil.copyfile(path, copy)
        size = copy.stat().st_size
        count = max(1, size // SHARE)
        with copy.open("r+b") as file:
            file.seek((size - count) // 2)
            for at in range(0, count, _PIECE):
                file.write(_DAMAGE * min(_PIECE, count - at))
        new = self.folder / "instead.new"
        new.write_text(json.dumps({str(path): str(copy)}))
        new.replace(self.folder / "instead")
        return count

    @property
    def used(self) -> bool:
        """Whether a process has read the damaged copy."""
        return bool(self._noted("damaged"))

    def _noted(self, name: str) -> list[Path]:
        try:
            lines = (self.folder / name).read_text().splitlines()
        except FileNotFoundError:
            return []
        return [Path(json.loads(line)) for line in lines]
