"""Gangs as a cluster starts them: their folder, a `boot` a worker, and nothing left running afterwards."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from launcher_kit import LauncherFixture, launcher_fixture
from muster import wire
from muster.engines.package import worker_package
from muster.runtime.boot_gang import GangFile, worker_name

SLURM = {"SLURM_JOB_ID": "7", "SLURMD_NODENAME": "node"}


class GangFixture:
    """One gang's folder that all of its workers see, and one scratch folder as of one node."""

    def __init__(self, shop: LauncherFixture) -> None:
        self.shop = shop
        self.server = shop.server
        self.folder = shop.root / "gang"
        self.scratch = shop.root / "scratch"
        self.work = shop.root / "work"

    def gang(self, run: str, scratch: bool = True, port: int = 0, linger: float = 300.0, **changes: Any) -> Path:
        launch = self.shop.launch(run, **changes)
        self.folder.mkdir(exist_ok=True)
        told = {"launch": asdict(launch), "scratch": str(self.scratch) if scratch else "", "port": port}
        (self.folder / "gang.json").write_text(json.dumps({**told, "linger": linger}))
        for worker in range(launch.num_nodes):
            self.shop.answer_for(replace(launch, worker=worker), self.worker(worker))
        return self.folder

    def worker(self, worker: int = 0) -> Path:
        """The folder of a worker on its node."""
        gang = GangFile.read(self.folder)
        if gang.scratch is None:
            return self.folder / f"worker-{worker}"
        return gang.scratch / "workers" / worker_name(gang, worker)

    def slurm(self, worker: int = 0, *options: str, **env: str) -> subprocess.Popen[bytes]:
        seat = {**SLURM, "SLURM_PROCID": str(worker), "SLURMD_NODENAME": f"node{worker}"}
        return self.boot("slurm", *options, **{**seat, **env})

    def boot(self, kind: str, *options: str, python: tuple[str, ...] = (), **env: str) -> subprocess.Popen[bytes]:
        command = list(python) or [sys.executable, "-m", "muster.runtime.boot"]
        return self.shop.start_command([*command, kind, str(self.folder), *options], **env)

    def archive(self) -> tuple[str, str]:
        """A Python that has no Muster, and what such a one is given."""
        path = self.shop.root / "muster.pyz"
        if not path.exists():  # a pod may be reading it
            venv.create(self.shop.root / "bare", symlinks=True)
            path.write_bytes(worker_package().as_zip())
        return str(self.shop.root / "bare" / "bin" / "python"), str(path)

    def order(self, command: wire.Command) -> None:
        draft = self.folder / ".orders"
        draft.write_text(json.dumps(asdict(command)))
        draft.replace(self.folder / "orders.json")

    def worker_exit(self, worker: int = 0) -> wire.WorkerExit | None:
        """What the engine can read of a worker's end."""
        path = self.folder / f"exit-{worker}.json"
        return wire.WorkerExit.from_dict(json.loads(path.read_text())) if path.exists() else None

    def starts(self) -> list[str]:
        path = self.work / "starts"
        return sorted(path.read_text().split()) if path.exists() else []


@contextmanager
def gang_fixture(root: Path) -> Iterator[GangFixture]:
    for name in [name for name in os.environ if name.startswith("SLURM")]:
        del os.environ[name]
    with launcher_fixture(root) as shop:
        yield GangFixture(shop)
