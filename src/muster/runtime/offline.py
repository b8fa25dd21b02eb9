"""The folder of a run outside Muster's jobs until the server has it: nothing is lost while no server answers.

HOME/offline/RUN:

    run.json      the request that opens the run, and the process that writes it; readable only by its owner
    lock          held by the sidecar that ships it
    opened.json   {"id", "attempt", "token"} once a server knows the run
    end.json      how the script ended
    sidecar.log   the sidecar's log
    rank-0        as in a worker's folder; see `muster.wire`

It is removed when the server has everything.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import secrets
import shutil
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from muster import wire
from muster.runtime import processes, verdict
from muster.runtime.folder import write_whole

FOLDER: Final = "offline"
_OF_JOB: Final = re.compile(r"[a-z]([a-z0-9-]*[a-z0-9])?-\d{1,15}\Z")  # ids that the server reserves for jobs


@dataclass
class OfflineRun:
    """One run's folder."""

    path: Path
    _lock: int = -1

    @property
    def run(self) -> str:
        return str(self.description()["request"]["id"])

    @property
    def rank_dir(self) -> Path:
        return self.path / "rank-0"

    def make(self, request: Mapping[str, Any], url: str | None) -> None:
        """Creates the folder for this process."""
        self.path.mkdir(parents=True, mode=0o700)
        self.rank_dir.mkdir()
        found = processes.stat(os.getpid())
        process = {"pid": os.getpid(), "start_ticks": found.start_ticks if found else 0, "boot": processes.boot_id()}
        self._write("run.json", {"request": dict(request), "url": url, "process": process})

    def description(self) -> dict[str, Any]:
        """The content of run.json."""
        return dict(json.loads((self.path / "run.json").read_text()))

    def opened(self) -> dict[str, Any] | None:
        return self._read("opened.json")

    def write_opened(self, answer: Mapping[str, Any]) -> None:
        self._write("opened.json", {name: answer[name] for name in ("id", "attempt", "token")})

    def end(self, outcome: wire.Outcome, detail: str) -> None:
        """Records how the script ended; the first record counts."""
        if not (self.path / "end.json").exists():
            reason = {"succeeded": verdict.COMPLETED, "stopped": verdict.USER_STOP, "failed": verdict.USER_ERROR}
            ended = wire.WorkerExit(outcome, reason[outcome], detail[-verdict.DETAIL_BYTES :], time.time())
            self._write("end.json", ended.to_dict())

    def ended(self) -> wire.WorkerExit | None:
        """How the script ended; None while it runs. A script without a record was killed."""
        alive = self.alive()  # before reading the record
        if raw := self._read("end.json"):
            return wire.WorkerExit.from_dict(raw)
        if alive:
            return None
        killed = wire.WorkerExit("failed", verdict.KILLED_BY_SIGNAL, "the process was killed", time.time())
        with suppress(OSError):  # a full disk: the next look finds the same
            self._write("end.json", killed.to_dict())
        return killed

    def alive(self) -> bool:
        """Whether the script's process exists."""
        process = self.description()["process"]
        found = processes.stat(process["pid"])
        here = found is not None and found.state != "Z" and found.start_ticks == process["start_ticks"]
        return here and process["boot"] == processes.boot_id()

    def lock(self) -> bool:
        """False while another process ships it."""
        self._lock = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self.unlock()
            return False
        return True

    def unlock(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def remove(self) -> None:
        """Renames it first, so that no process finds half of it."""
        gone = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        try:
            self.path.rename(gone)
        except FileNotFoundError:
            return
        shutil.rmtree(gone, ignore_errors=True)

    def _read(self, name: str) -> dict[str, Any] | None:
        try:
            return dict(json.loads((self.path / name).read_text()))
        except FileNotFoundError:
            return None

    def _write(self, name: str, value: Mapping[str, Any]) -> None:
        write_whole(self.path / name, json.dumps(value).encode())


def offline_runs(home: Path) -> list[OfflineRun]:
    """Every waiting run, the oldest first."""
    found = []
    for path in (home / FOLDER).glob("[!.]*"):
        with suppress(OSError):  # shipped just now, or not a run at all
            found.append(((path / "run.json").stat().st_mtime, path))
    return [OfflineRun(path) for _, path in sorted(found)]


def offline_run_for(home: Path, run: str, key: str) -> OfflineRun:
    """The folder of a script's run; `run` may be any name that the user gave."""
    name = re.sub(r"[^A-Za-z0-9._-]", "_", run)[:100].lstrip(".")
    return OfflineRun(home / FOLDER / f"{name or 'run'}.{key[:8]}")


def new_id(name: str) -> str:
    """A unique id in the server's format: the name and eight hex digits."""
    slug = re.sub(r"[^a-z0-9]+", "-", name.lower()[:50]).strip("-") or "run"
    while True:
        run = f"{slug}-{secrets.token_hex(4)}"
        if not _OF_JOB.match(run):
            return run
