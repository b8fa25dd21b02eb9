"""Local engines over one root, one after the other as servers are, with real launchers under them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ingest_kit import IngestServer
from muster.core.resources import Resources
from muster.engines.base import GangLaunch, NodeInfo, Seat
from muster.engines.local import LocalConfig, LocalEngine
from muster.runtime import processes
from muster.runtime.ranks import gang_mark

NODES = (
    NodeInfo("local-0", "local", Resources(2000, 1 << 30, 2, "H100"), {"cuda_devices": "0,1"}),
    NodeInfo("local-1", "local", Resources(2000, 1 << 30, 2, "H100"), {"cuda_devices": "2,3"}),
)


class Shop:
    """Engines over one root, one after the other as servers are, and a place where ranks leave a line each."""

    def __init__(self, root: Path, server: IngestServer) -> None:
        self.root = root
        self.server = server
        self.attempts = root / "engine" / "attempts"
        self._jobs: set[tuple[str, int, int]] = set()

    @contextmanager
    def engine(self, **changes: Any) -> Iterator[LocalEngine]:
        config = {"nodes": NODES, "urls": lambda: [self.server.url], **changes}
        engine = LocalEngine(LocalConfig(self.root / "engine", **config))
        engine.start()
        try:
            yield engine
        finally:
            engine.close()

    def gang(self, run: str, job: str = "job-a", attempt: int = 1, **changes: Any) -> GangLaunch:
        fields: dict[str, Any] = {
            "seats": [Seat("local-0")],
            "nproc": 1,
            "run": f"echo x >> {self.root}/starts; {run}",
            "workdir": str(self.root),
            "envs": {},
            "secrets": (),
            "token": "token",
            "checkpoint_keep": 1,
            "checkpoint_every": None,
            "max_duration": None,
            "memory": None,
            "stop_grace": 5.0,
            "trusted": True,
        }
        made = GangLaunch(job=job, attempt=attempt, **{**fields, **changes})
        self._jobs |= {(job, attempt, worker) for worker in range(len(made.seats))}
        return made

    def starts(self) -> int:
        path = self.root / "starts"
        return len(path.read_text().split()) if path.exists() else 0

    def folder(self, worker: int = 0) -> Path:
        return self.attempts / "job-a" / "1" / str(worker)

    def launcher(self) -> int:
        return int(json.loads((self.folder() / "launcher.json").read_text())["pid"])

    def left(self) -> list[int]:
        folders = {one: self.attempts.joinpath(*map(str, one)) for one in self._jobs}
        return [pid for one, folder in folders.items() for pid in processes.marked(gang_mark(*one, folder))]

    def close(self) -> None:
        for path in self.attempts.glob("*/*/*/launcher.json"):
            identity = json.loads(path.read_text())
            found = processes.stat(identity["pid"])
            if found and found.start_ticks == identity["start_ticks"] and identity["pid"] != os.getpid():
                processes.kill([identity["pid"]])
        processes.kill(self.left())
