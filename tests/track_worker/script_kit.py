"""Runs real scripts that call `muster.start_run`, and reads what a real server has of their runs."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from live import LiveServer, call_muster, until
from muster.runtime.offline import OfflineRun, offline_runs

SECONDS = 60
SYNC = [sys.executable, "-m", "muster", "runs", "sync"]


@dataclass
class UserMachine:
    """A user's machine: a home folder of its own, and the server that it knows."""

    server: LiveServer
    home: Path
    env: dict[str, str] = field(default_factory=dict)

    def environment(self) -> dict[str, str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("MUSTER_")}
        known = (
            {"MUSTER_URL": self.server.url, "MUSTER_TOKEN": self.server.token} if "MUSTER_URL" not in self.env else {}
        )
        return {**kept, "MUSTER_HOME": str(self.home), **known, **self.env}

    def start(self, script: str, *words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", script, *words]
        pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
        return subprocess.Popen(command, env=self.environment(), cwd=self.home, text=True, **pipes)

    def run(self, script: str, *words: str, code: int = 0) -> tuple[str, str]:
        """What it printed, on stdout and stderr, once it ended."""
        with self.start(script, *words) as process:
            out, err = process.communicate(timeout=SECONDS)
        assert process.returncode == code, err
        return out.strip(), err

    def sync(self, *words: str, code: int = 0) -> list[dict[str, Any]]:
        done = call_muster("runs", "sync", "--json", *words, env=self.environment())
        assert done.returncode == code, done.stderr + done.stdout
        found: list[dict[str, Any]] = json.loads(done.stdout)["runs"]
        return found

    def waiting(self) -> list[OfflineRun]:
        return offline_runs(self.home)


@dataclass
class Record:
    """The database of a server, read beside it."""

    home: Path

    def rows(self, table: str, run: str, key: str = "run") -> list[dict[str, Any]]:
        with closing(sqlite3.connect(f"file:{self.home / 'muster.db'}?mode=ro", uri=True)) as database:
            database.row_factory = sqlite3.Row
            return [dict(row) for row in database.execute(f"SELECT * FROM {table} WHERE {key} = ?", (run,))]

    def run(self, run: str) -> dict[str, Any] | None:
        found = self.rows("runs", run, "id")
        return {**found[0], "doc": json.loads(found[0]["doc"])} if found else None

    def ended(self, run: str) -> dict[str, Any]:
        """The run once it is over and all of it has arrived."""

        def look() -> dict[str, Any] | None:
            found = self.run(run)
            return found if found and found["phase"] in ("succeeded", "failed", "stopped") else None

        found = until(look, f"{run} to end")
        assert found is not None
        return found

    def points(self, run: str) -> dict[str, int]:
        return {row["name"]: row["points"] for row in self.rows("metric_series", run)}
