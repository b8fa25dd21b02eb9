"""The workers of one Ray node: a local engine on a folder of the node, used by the agent there.

The launchers are detached and outlive the agent; they end with the raylet, their keeper. This runs on nodes, with only
the standard library and the shipped package.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from muster.engines.local import LocalEngine
from muster.engines.local_launch import LocalConfig
from muster.engines.ray.folders import NodeFolders, copy_package, make_folders, ranks_environment, raylet
from muster.engines.ray.probe import probe
from muster.wire import Launch

TEND_EVERY: Final = 2.0  # seconds between two polls of the workers that nothing triggered
GANG: Final = "gang.json"  # next to the workers' folders of an attempt: what the agent was told about the whole gang


class NodeWorkers:
    """Thread-safe. `settings`: node, installation, scratch, checkpoints, package, env, address."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = dict(settings)
        self._places = make_folders(settings)
        self._keeper = raylet()
        self._news = threading.Condition()
        self._reports: list[dict[str, Any]] = []
        self._number = 1  # of the reports; grows when they change
        self._wake = threading.Event()
        self._engine = _engine(self._places, self._settings)
        self._engine.on_change(self._wake.set)
        self._engine.start()
        self._tend()
        threading.Thread(target=self._run, name="muster-agent", daemon=True).start()

    def hello(self, urls: Sequence[str], certificate: str) -> dict[str, Any]:
        """Sets where launchers find the server from now on; returns what the agent is."""
        if urls or not self._places.urls.exists():
            _write(self._places.urls, json.dumps({"urls": list(urls)}))
        if certificate:
            _write(self._places.certificate, certificate)
        return {name: self._settings[name] for name in ("package", "env", "node")}

    def launch(self, gang: Mapping[str, Any], launches: Sequence[str]) -> tuple[str, int]:
        """Starts these workers of one attempt, once; returns the address and port of its rank 0."""
        told = [self._complete(Launch.from_json(text)) for text in launches]
        folder = self._places.root / "attempts" / told[0].job / str(told[0].attempt)
        folder.mkdir(parents=True, exist_ok=True)
        _write(folder / GANG, json.dumps(dict(gang)))
        port = self._engine.launch_workers(told)
        self._wake.set()
        return told[0].master_addr, port

    def stop(self, job: str, attempt: int, grace: float, reason: str) -> None:
        self._engine.stop(job, attempt, grace, reason)
        self._wake.set()

    def forget(self, job: str, attempt: int) -> None:
        self._engine.forget(job, attempt)
        self._wake.set()

    def poll(self, seen: int, timeout: float) -> tuple[int, list[dict[str, Any]]]:
        """All workers here, as soon as the reports differ from those with the number `seen`."""
        with self._news:
            self._news.wait_for(lambda: self._number != seen, timeout)
            return self._number, self._reports

    def probe(self, marks: str, write: str) -> dict[str, Any]:
        """Runs the doctor's checks on the node."""
        return probe(self._places, marks, write)

    def check(self, shared: bool) -> Sequence[Mapping[str, Any]]:
        """Runs the checks of `muster.runtime.node_checks`, which take some seconds."""
        return self._engine.check_node(self._settings["node"], shared)

    def _complete(self, launch: Launch) -> Launch:
        """Adds what only the node knows."""
        checkpoints = launch.checkpoint_dir or str(self._places.checkpoints / launch.job)
        return replace(
            launch,
            master_addr=launch.master_addr or self._settings["address"],
            urls_file=str(self._places.urls),
            ca_file=str(self._places.certificate) if launch.ca_file else None,
            checkpoint_dir=checkpoints,
            keeper=self._keeper,
        )

    def _run(self) -> None:
        while True:
            self._wake.wait(TEND_EVERY)
            self._wake.clear()
            self._tend()

    def _tend(self) -> None:
        reports = [
            {
                "job": report.job,
                "attempt": report.attempt,
                "worker": report.worker,
                "status": report.status,
                "exit": report.exit.to_dict() if report.exit else None,
                **self._gang(report.job, report.attempt),
            }
            for report in self._engine.poll()
        ]
        with self._news:
            if reports != self._reports:
                self._reports, self._number = reports, self._number + 1
                self._news.notify_all()

    def _gang(self, job: str, attempt: int) -> dict[str, Any]:
        try:
            found = json.loads((self._places.root / "attempts" / job / str(attempt) / GANG).read_text())
        except (OSError, ValueError):
            return {"workers": 0, "driver": False}
        return {"workers": found["workers"], "driver": found["driver"]}


def _engine(folders: NodeFolders, settings: Mapping[str, Any]) -> LocalEngine:
    package = copy_package(folders)
    env = ranks_environment(os.environ, settings["env"], package, folders.scratch, settings.get("pass_env", ()))
    return LocalEngine(LocalConfig(folders.root, (), python=sys.executable, env=env))


def _write(path: Path, text: str) -> None:
    """Writes a file atomically, readable only by its owner."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
        file.write(text)
    draft.replace(path)
