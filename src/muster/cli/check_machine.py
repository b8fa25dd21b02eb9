"""The checks of `muster doctor` on this machine: Python, packages, the home folder, disk, SQLite, tools, GPUs."""

from __future__ import annotations

import os
import re
import resource
import shutil
import sqlite3
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Final

from muster.cli import format
from muster.cli.check import Check, Checker

_DISK_WARN, _DISK_FAIL = 5e9, 2e8  # bytes
_FILES_WARN = 4096  # a server holds a few for every job that it watches
_PYTHON = (3, 11)
# Where `--install-completion` writes for each shell, below the user's home.
_COMPLETIONS: Final = {
    "bash": ".bash_completions/muster.sh",
    "zsh": ".zfunc/_muster",
    "fish": ".config/fish/completions/muster.fish",
}
_SQLITE = (3, 35, 0)
_SECONDS = 60  # maximum run time of a program that is asked for something


def python(home: Path) -> Iterator[Check]:
    version = ".".join(map(str, sys.version_info[:3]))
    if tuple(sys.version_info[:2]) < _PYTHON:
        yield Check("python", "fail", version, "Muster needs Python 3.11 or newer.")
    else:
        yield Check("python", "ok", f"{version} ({sys.executable})")


def packages(home: Path) -> Iterator[Check]:
    wrong = []
    needed = [line for line in metadata.requires("muster-ml") or () if "extra ==" not in line]
    for line in needed:
        match = re.match(r"([A-Za-z0-9._-]+)(?:\[[^]]*\])?\s*(?:>=\s*([0-9.]+))?", line)
        name, least = (match[1], match[2] or "0") if match else (line, "0")
        try:
            have = metadata.version(name)
        except metadata.PackageNotFoundError:
            wrong.append(f"{name} is missing")
            continue
        if _numbers(have) < _numbers(least):
            wrong.append(f"{name} is {have}, {least} or newer is needed")
    if wrong:
        yield Check("packages", "fail", "; ".join(wrong), "Install Muster again: pip install --upgrade muster-ml")
    else:
        yield Check("packages", "ok", f"{len(needed)} as needed")


def home_folder(home: Path) -> Iterator[Check]:
    if not home.exists():
        yield Check("home", "ok", f"{home} does not exist yet; `muster up` makes it")
        return
    if not os.access(home, os.W_OK | os.X_OK):
        yield Check("home", "fail", f"{home} can't be written", "Give it to your user, or set MUSTER_HOME elsewhere.")
        return
    yield Check("home", "ok", str(home))
    for name in ("token", "key", "muster.db", "mlflow.db", "config.toml", "server.log"):
        path = home / name
        if path.exists() and stat.S_IMODE(path.stat().st_mode) & 0o077:
            yield Check(f"{name} file", "fail", f"{path} can be read by others", f"chmod 600 {path}")


def disk(home: Path) -> Iterator[Check]:
    free = shutil.disk_usage(_existing(home)).free
    detail = f"{format.size(free)} free for {home}"
    hint = "Make room: without it, jobs are refused and checkpoints are lost."
    if free < _DISK_FAIL:
        yield Check("disk", "fail", detail, hint)
    elif free < _DISK_WARN:
        yield Check("disk", "warn", detail, hint)
    else:
        yield Check("disk", "ok", detail)


def sqlite(home: Path) -> Iterator[Check]:
    if sqlite3.sqlite_version_info < _SQLITE:
        yield Check("sqlite", "fail", sqlite3.sqlite_version, "SQLite 3.35 or newer is needed: use a newer Python.")
        return
    try:
        with tempfile.TemporaryDirectory(dir=_existing(home), prefix=".doctor-") as folder:
            connection = sqlite3.connect(Path(folder) / "try.db")
            try:
                mode = connection.execute("PRAGMA journal_mode=WAL").fetchone()[0]
                connection.execute("CREATE TABLE t (x)")
            finally:
                connection.close()
    except (OSError, sqlite3.Error) as error:
        yield Check("sqlite", "fail", f"can't be used in {home}: {error}", "Set MUSTER_HOME to a local disk.")
        return
    if mode != "wal":
        hint = "Network file systems often can't: set MUSTER_HOME to a local disk, or use PostgreSQL with --store."
        yield Check("sqlite", "fail", f"{home} does not allow write-ahead logging", hint)
    else:
        yield Check("sqlite", "ok", f"{sqlite3.sqlite_version}, write-ahead logging works")


def bash(home: Path) -> Iterator[Check]:
    found = shutil.which("bash")
    if found:
        yield Check("bash", "ok", found)
    else:
        yield Check("bash", "fail", "not found", "Install bash: it runs the commands of jobs.")


def open_files(home: Path) -> Iterator[Check]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= soft < _FILES_WARN:
        most = f"{hard}" if hard >= 0 else "unlimited"
        yield Check("open files", "warn", f"limit is {soft}", f"ulimit -n {_FILES_WARN} (at most {most})")
    else:
        yield Check("open files", "ok", f"limit is {soft if soft >= 0 else 'none'}")


def torch(home: Path) -> Iterator[Check]:
    interpreter = shutil.which("python") or sys.executable
    code = "import torch; print(torch.__version__, torch.cuda.device_count())"
    answer = _ask([interpreter, "-c", code])
    if answer is None:
        detail = f"{interpreter} has none"
        yield Check("torch", "warn", detail, "Only for training with PyTorch: pip install 'muster-ml[train]'")
    else:
        version, count = answer.split()[-2:]
        yield Check("torch", "ok", f"{version} in {interpreter}, {count} GPU(s)")


def gpus(home: Path) -> Iterator[Check]:
    if shutil.which("nvidia-smi") is None:
        yield Check("gpus", "ok", "none (no nvidia-smi)")
        return
    answer = _ask(["nvidia-smi", "--query-gpu=name,memory.total", "--format=csv,noheader"])
    if answer is None:
        hint = "Run nvidia-smi by hand: the driver may not be loaded."
        yield Check("gpus", "warn", "nvidia-smi does not answer", hint)
    else:
        yield Check("gpus", "ok", "; ".join(line.strip() for line in answer.splitlines() if line.strip()) or "none")


def completion(home: Path) -> Iterator[Check]:
    """Whether the user's shell completes verbs, options and names of jobs."""
    shell = Path(os.environ.get("SHELL", "")).name
    if shell not in _COMPLETIONS:
        return
    if (Path.home() / _COMPLETIONS[shell]).exists():
        yield Check("completion", "ok", f"{shell} completes verbs, options and job names")
    else:
        hint = "To complete verbs, options and job names with Tab: muster --install-completion"
        yield Check("completion", "ok", f"{shell} is not set up for it", hint)


CHECKS: Final[tuple[Checker, ...]] = (
    python,
    packages,
    home_folder,
    disk,
    sqlite,
    bash,
    open_files,
    torch,
    gpus,
    completion,
)


def _ask(command: list[str]) -> str | None:
    """The output of a program; None when it fails, does not exist or takes too long."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version.partition("+")[0])[:3])


def _existing(path: Path) -> Path:
    return next(folder for folder in (path, *path.parents) if folder.exists())
