"""Muster's side of `track_ingest.py`: a real server, a job that logs, and the server's own count of what it has."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from _databases import postgres
from _ingest_processes import processor_time, rates
from muster.client import Client

Result = dict[str, Any]
_PATIENCE = 300.0  # seconds
_IDLE = 90.0  # seconds


class MusterBench:
    """`database` is sqlite or postgresql; everything is under `folder`."""

    def __init__(self, folder: Path, database: str, peer: Path) -> None:
        self._folder, self._database, self._peer = folder, database, peer
        self._home = folder / "home"
        self._server: subprocess.Popen[bytes] | None = None
        self._store = ""

    def measure(self, widths: tuple[int, ...], seconds: float, pace: float) -> Result:
        with self._databases() as store:
            self._store = store
            self._start()
            try:
                result: Result = {"version": "this code"}
                for width in widths:
                    result[f"flood_{width}"] = self._flood(width, seconds)
                for width in widths:
                    result[f"paced_{width}"] = self._logged(f"paced-{width}", width, seconds, pace)[0]
                for width in widths:
                    result[f"down_{width}"] = self._down(width, seconds, pace)
            finally:
                self._stop()
        return result

    def _flood(self, width: int, seconds: float) -> Result:
        before = self._used()
        found, run = self._logged(f"flood-{width}", width, seconds, 0.0)
        self._compacted(run)
        return {**found, "disk_bytes_per_point": round((self._used() - before) / found["points"], 1)}

    def _logged(self, name: str, width: int, seconds: float, pace: float) -> tuple[Result, str]:
        own = self._folder / name
        own.mkdir()
        before = self._processor()
        job = self._client().submit(self._spec(own, width, seconds, pace, None), snapshot=False)
        launcher = _Launcher(self._home, job.id)
        made, ended = self._counted(own, job.id, launcher)
        spent = self._processor() - before + launcher.used + made["cpu_s"]
        return rates(made, ended - made["began"], spent), job.id

    def _down(self, width: int, seconds: float, pace: float) -> Result:
        """Reports while there is no server; then it is started again, and must have all of them."""
        own = self._folder / f"down-{width}"
        own.mkdir()
        gate = own / "gate"
        job = self._client().submit(self._spec(own, width, seconds, pace, gate), snapshot=False)
        _wait(lambda: (own / "waiting").exists(), "the rank to begin")
        self._stop()
        gate.touch()
        _wait(lambda: (own / "result.json").exists(), "the rank to end")
        made = json.loads((own / "result.json").read_text())
        self._start()
        _wait(lambda: self._points(job.id) >= made["points"], "the server to have what was reported without it")
        return {
            "latency_us": made["latency_us"],
            "points": made["points"],
            "lost": made["points"] - self._points(job.id),
        }

    def _counted(self, own: Path, run: str, launcher: _Launcher) -> tuple[Result, float]:
        """What the rank measured, and when the server had everything."""
        path = own / "result.json"
        deadline = time.monotonic() + _PATIENCE
        while time.monotonic() < deadline:
            launcher.look()
            if path.exists():
                made = json.loads(path.read_text())
                if self._points(run) >= made["points"]:
                    return made, time.time()
            time.sleep(0.02)
        raise SystemExit(f"the server does not get all of {run}")

    def _points(self, run: str) -> int:
        series = self._client().call("GET", f"/v1/runs/{run}/metrics")["series"]
        return sum(one["points"] for one in series if not one["name"].startswith("system/"))

    def _spec(self, own: Path, width: int, seconds: float, pace: float, gate: Path | None) -> Result:
        asked: Result = {"tool": "muster", "width": width, "pace": pace, "seconds": seconds, "folder": str(own)}
        if gate is not None:
            asked["gate"] = str(gate)
        (own / "ask.json").write_text(json.dumps(asked))
        run = f'exec {sys.executable} {self._peer} "$(cat {own}/ask.json)"'
        return {"name": "log", "run": run, "workdir": str(own), "retry": 0}

    def _client(self) -> Client:
        return Client(home=self._home)

    def _start(self) -> None:
        self._home.mkdir(exist_ok=True)
        (self._home / "server.json").unlink(missing_ok=True)
        command = [sys.executable, "-m", "muster", "up", "--port", "0"]
        command += ["--store", self._store] if self._store else []
        env = {**os.environ, "MUSTER_HOME": str(self._home)}
        with (self._folder / "server.log").open("ab") as log:
            self._server = subprocess.Popen(command, stdout=log, stderr=log, env=env)
        _wait(lambda: (self._home / "server.json").exists() and self._client().ready().get("ready"), "the server")

    def _stop(self) -> None:
        if self._server is not None and self._server.poll() is None:
            self._server.send_signal(signal.SIGTERM)
            self._server.wait(60)

    def _processor(self) -> float:
        assert self._server is not None
        used = processor_time(self._server.pid)
        return used + (processor_time(self._postmaster()) if self._store else 0.0)

    def _postmaster(self) -> int:
        folder = Path(parse_qs(urlsplit(self._store).query)["host"][0])
        return int((folder / "data" / "postmaster.pid").read_text().split()[0])

    def _used(self) -> int:
        """Bytes of the database that hold something."""
        if not self._store:
            with sqlite3.connect(f"file:{self._home}/muster.db?mode=ro", uri=True) as database:
                pages, free, size = (
                    database.execute(f"pragma {name}").fetchone()[0]
                    for name in ("page_count", "freelist_count", "page_size")
                )
            return int((pages - free) * size)
        import psycopg

        with psycopg.connect(self._store, autocommit=True) as database:
            tables = ("metric_tail", "metric_blocks", "metric_series")
            for table in tables:
                database.execute(f"VACUUM {table}")
            sizes = [database.execute("SELECT pg_total_relation_size(%s)", [table]).fetchone() for table in tables]
        return sum(int(row[0]) for row in sizes if row)

    def _compacted(self, run: str) -> None:
        """Waits until the points of an ended run are in their last form, or as long as an idle rest is left."""
        deadline = time.monotonic() + _IDLE
        while self._tail(run) and time.monotonic() < deadline:
            time.sleep(0.1)

    def _tail(self, run: str) -> int:
        """Batches of a run that are not yet compacted."""
        query = "SELECT count(*) FROM metric_tail WHERE run = "
        if not self._store:
            with sqlite3.connect(f"file:{self._home}/muster.db?mode=ro", uri=True) as database:
                return int(database.execute(query + "?", [run]).fetchone()[0])
        import psycopg

        with psycopg.connect(self._store, autocommit=True) as server:
            row = server.execute(query + "%s", [run]).fetchone()
        return int(row[0]) if row else 0

    @contextmanager
    def _databases(self) -> Iterator[str]:
        if self._database == "sqlite":
            yield ""
            return
        with postgres() as url:
            yield url


class _Launcher:
    """Processor time of a job's launcher, looked at while it lives."""

    def __init__(self, home: Path, job: str) -> None:
        self._pattern, self._home = "local/attempts/*/*/*/launcher.json", home
        self._job, self._pid = job, 0
        self.used = 0.0

    def look(self) -> None:
        if not self._pid:
            for path in self._home.glob(self._pattern):
                if self._job in str(path):
                    self._pid = int(json.loads(path.read_text())["pid"])
        if self._pid:
            try:
                fields = Path(f"/proc/{self._pid}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                return
            # Without its children: the rank counts for itself.
            self.used = max(self.used, sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK"))


def _wait(check: Any, what: str) -> None:
    deadline = time.monotonic() + _PATIENCE
    while True:
        try:
            if check():
                return
        except Exception:
            if time.monotonic() > deadline:
                raise
        if time.monotonic() > deadline:
            raise SystemExit(f"waited {_PATIENCE:g} s for {what}")
        time.sleep(0.02)
