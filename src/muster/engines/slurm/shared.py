"""The folder that the server and the nodes share: each gang's input, and what its script and launchers wrote.

servers.json            the servers' addresses, for launchers
batch-DIGEST.sh         the script;  check-DIGEST.sh  that of a node's check;  pkg/DIGEST  the package with the launcher
attempts/JOB/ATTEMPT/   gang.json, slurm.json (the server's: which Slurm job it is), owner, orders.json,
                        rendezvous.json, told (why Slurm ended it), exit-N.json, worker-N
arrays/TAG              one line per task: its number, and the attempt's folder
checks/TAG.out          what a check of a node found
next/JOB.RESTART        the attempt that a requeued Slurm job now runs
out/JOB.out             the script's output
books/YYYY-MM.jsonl     which Slurm job was which attempt, for accounting
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from muster.engines.package import worker_package
from muster.engines.slurm.script import BATCH, CHECK
from muster.wire import Command, Launch, WorkerExit

Key = tuple[str, int]  # job, attempt


@dataclass(frozen=True, slots=True)
class AttemptRecord:
    """The content of an attempt's slurm.json."""

    workers: int
    shape: str
    slurm: str = ""  # the Slurm job; "" until it is known
    restart: int = 0  # the number of its restart


class Shared:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.package = self.script = self.check_script = Path()

    def prepare(self, urls: Sequence[str]) -> None:
        """Creates what every gang needs. Raises OSError."""
        for name in ("attempts", "arrays", "checks", "next", "out", "books"):
            (self.root / name).mkdir(mode=0o700, parents=True, exist_ok=True)
        self.root.chmod(0o700)
        self.package = worker_package().unpack_into(self.root / "pkg")
        self.script, self.check_script = self._script("batch", BATCH), self._script("check", CHECK)
        self.tell_urls(urls)

    def _script(self, name: str, text: str) -> Path:
        path = self.root / f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:12]}.sh"
        if not path.exists():
            _write(path, text)
        return path

    def tell_urls(self, urls: Sequence[str]) -> None:
        text = json.dumps({"urls": list(urls)})
        if _read(self.servers) != text:
            _write(self.servers, text)

    @property
    def servers(self) -> Path:
        return self.root / "servers.json"

    def name(self, key: Key) -> str:
        return f"attempts/{key[0]}/{key[1]}"

    def folder(self, key: Key) -> Path:
        return self.root / self.name(key)

    # --- gangs -------------------------------------------------------------------------------------------------------
    def write_gang(self, key: Key, launch: Launch, more: Mapping[str, Any], record: AttemptRecord) -> None:
        folder = self.folder(key)
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _write(folder / "gang.json", json.dumps({"launch": asdict(launch), **more}))
        _write(folder / "slurm.json", json.dumps(asdict(record)))

    def keep(self, key: Key, record: AttemptRecord) -> None:
        """Records which Slurm job an attempt has become."""
        _write(self.folder(key) / "slurm.json", json.dumps(asdict(record)))
        line = {"slurm": record.slurm, "restart": record.restart, "job": key[0], "attempt": key[1], "at": time.time()}
        with (self.root / "books" / time.strftime("%Y-%m.jsonl", time.gmtime())).open("a") as file:
            file.write(json.dumps(line) + "\n")

    def gangs(self) -> Iterator[tuple[Key, AttemptRecord]]:
        for path in sorted(self.root.glob("attempts/*/*/slurm.json")):
            with suppress(ValueError, TypeError, OSError):
                yield (path.parent.parent.name, int(path.parent.name)), AttemptRecord(**json.loads(path.read_text()))

    def remove(self, key: Key) -> None:
        shutil.rmtree(self.folder(key), ignore_errors=True)
        with suppress(OSError):  # other attempts of the job are there
            self.folder(key).parent.rmdir()

    def owner(self, key: Key) -> str:
        """`JOB.RESTART` of the Slurm job that has started the attempt; "" before that."""
        return _read(self.folder(key) / "owner").strip()

    def end_message(self, key: Key) -> str:
        return _read(self.folder(key) / "told").strip()

    def exits(self, key: Key) -> dict[int, WorkerExit]:
        found = {}
        for path in self.folder(key).glob("exit-*.json"):
            with suppress(ValueError, TypeError, OSError):
                found[int(path.stem.removeprefix("exit-"))] = WorkerExit.from_dict(json.loads(path.read_text()))
        return found

    def left(self, key: Key) -> bool:
        """Whether a worker left data that it could not report."""
        return any(self.folder(key).glob("worker-*/launch.json"))

    def order(self, key: Key, grace: float, reason: str) -> None:
        last = self.ordered(key)
        command = Command(last.id + 1 if last else 1, "stop", reason, grace)
        with suppress(FileNotFoundError):
            _write(self.folder(key) / "orders.json", json.dumps(asdict(command)))

    def ordered(self, key: Key) -> Command | None:
        with suppress(ValueError, TypeError, OSError):
            return Command.from_dict(json.loads((self.folder(key) / "orders.json").read_text()))
        return None

    # --- which Slurm job is which attempt ----------------------------------------------------------------------------
    def write_array(self, tag: str, keys: Sequence[Key]) -> str:
        """Writes the array's table and returns its name below the root."""
        _write(self.root / "arrays" / tag, "".join(f"{at} {self.name(key)}\n" for at, key in enumerate(keys)))
        return f"arrays/{tag}"

    def array(self, tag: str) -> dict[int, Key]:
        lines = (line.split(" ", 1) for line in _read(self.root / "arrays" / tag).splitlines())
        return {int(number): key_of(name) for number, name in lines}

    def claim(self, raw: str, restart: int, key: Key) -> None:
        _write(self.root / "next" / f"{raw}.{restart}", self.name(key) + "\n")

    def claims(self) -> dict[tuple[str, int], Key]:
        found = {}
        for path in (self.root / "next").glob("[0-9]*.*"):
            with suppress(ValueError, OSError):
                found[path.stem, int(path.suffix[1:])] = key_of(path.read_text().strip())
        return found

    def drop_claims(self, raw: str) -> None:
        for path in (self.root / "next").glob(f"{raw}.*"):
            path.unlink(missing_ok=True)

    def output(self, raw: str, most: int = 2000) -> str:
        """The end of the script's output."""
        return _read(self.root / "out" / f"{raw}.out")[-most:].strip()

    def drop_output(self, raw: str) -> None:
        (self.root / "out" / f"{raw}.out").unlink(missing_ok=True)

    def attempts_since(self, since: float) -> Iterator[tuple[str, int, Key]]:
        """Slurm job, restart and attempt, oldest first."""
        first = time.strftime("%Y-%m", time.gmtime(since - 40 * 86400))  # the job may have waited for long
        for path in sorted((self.root / "books").glob("*.jsonl")):
            if path.stem >= first:
                for line in path.read_text().splitlines():
                    with suppress(ValueError, KeyError):
                        raw = json.loads(line)
                        yield raw["slurm"], raw["restart"], (raw["job"], raw["attempt"])


def key_of(name: str) -> Key:
    _, job, attempt = name.split("/")
    return job, int(attempt)


def _write(path: Path, text: str) -> None:
    """Writes a file atomically, readable only by its owner."""
    draft = path.with_name(f".{path.name}.{os.urandom(4).hex()}")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    draft.replace(path)


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
