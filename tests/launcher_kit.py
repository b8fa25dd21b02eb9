"""Real launchers for tests: folders to start them in, commands for them, and nothing left running afterwards."""

from __future__ import annotations

import functools
import json
import os
import signal
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from ingest_kit import PATIENCE, IngestServer, ingest_server
from muster import wire
from muster.runtime import launcher, processes
from muster.runtime.ranks import gang_mark
from warm_kit import Started, Warm


class LauncherFixture:
    """Makes worker folders under one root, starts launchers in them, and leaves nothing running."""

    def __init__(self, root: Path, server: IngestServer) -> None:
        self.root = root
        self.server = server
        self._launchers: list[subprocess.Popen[bytes] | Started] = []
        self._gangs: set[str] = set()

    def folder(self, run: str, **changes: Any) -> Path:
        """A worker's folder with its launch.json; rank 0 of one unless told otherwise."""
        launch = self.launch(run, **changes)
        folder = self.root / f"worker-{launch.attempt}-{launch.worker}"
        self.answer_for(launch, folder)
        folder.mkdir()
        (folder / "launch.json").write_text(launch.to_json())
        return folder

    def launch(self, run: str, **changes: Any) -> wire.Launch:
        (self.root / "work").mkdir(exist_ok=True)
        launch = wire.Launch(
            job=f"job-{os.getpid()}-{self.root.name}",
            attempt=1,
            worker=0,
            node="local-0",
            num_nodes=1,
            nproc=1,
            run=run,
            workdir=str(self.root / "work"),
            envs={},
            secrets=(),
            urls=(self.server.url,),
            urls_file=None,
            token="token",
            master_addr="127.0.0.1",
            master_port=29500,
            checkpoint_dir=str(self.root / "checkpoints"),
            checkpoint_keep=3,
            checkpoint_every=None,
            devices=None,
            max_duration=None,
            memory=None,
            stop_grace=5.0,
            log_limit=1 << 20,
        )
        return replace(launch, **changes)

    def answer_for(self, launch: wire.Launch, folder: Path) -> None:
        """Whatever is started for this worker in this folder is looked for at the end."""
        self._gangs.add(gang_mark(launch.job, launch.attempt, launch.worker, folder))

    def start(self, folder: Path, *options: str, **env: str) -> subprocess.Popen[bytes] | Started:
        """Forked from a process that has imported it, as a server starts its own; with options or an environment of its
        own, as a new process, which is nobody's child when it is killed."""
        if options or env:
            return self.start_command([sys.executable, "-m", "muster.runtime.launcher", str(folder), *options], **env)
        log = self.root / "launchers.log"
        environment = {**os.environ, **env}
        started = _warm().start("launcher_kit:run_launcher", [str(folder)], log, environment, Path.cwd())
        self._launchers.append(started)
        return started

    def start_command(self, command: list[str], **env: str) -> subprocess.Popen[bytes]:
        started = subprocess.Popen(command, env={**os.environ, **env}, start_new_session=True)
        self._launchers.append(started)
        return started

    def run(self, folder: Path, *options: str, **env: str) -> wire.WorkerExit:
        """From start to end; the exit that the folder holds, which must be the one that the server got."""
        assert self.start(folder, *options, **env).wait(PATIENCE) == 0
        return self.ended(folder)

    def ended(self, folder: Path) -> wire.WorkerExit:
        ended = read_exit(folder)
        assert ended is not None
        launch = wire.Launch.from_json((folder / "launch.json").read_text())
        assert self.server.attempt(launch.token).exits[launch.worker] == ended
        return ended

    def left(self) -> list[int]:
        """Processes that carry the mark of one of these gangs."""
        return [pid for gang in self._gangs for pid in processes.marked(gang)]

    def close(self) -> None:
        for started in self._launchers:
            if started.poll() is None:
                started.kill()
            started.wait()
        processes.kill(self.left())


@functools.cache
def _warm() -> Warm:
    return Warm("launcher_kit")


def run_launcher(folder: str) -> int:
    """In a process that was forked there."""
    return launcher.main([folder])


@contextmanager
def launcher_fixture(root: Path, tls: ssl.SSLContext | None = None) -> Iterator[LauncherFixture]:
    with ingest_server(tls) as server:
        made = LauncherFixture(root, server)
        try:
            yield made
        finally:
            made.close()


def order(folder: Path, pid: int, command: wire.Command) -> None:
    """As the engine does it: a command in the inbox, and a signal."""
    draft = folder / ".inbox"
    draft.write_text(
        json.dumps({"id": command.id, "kind": command.kind, "reason": command.reason, "grace": command.grace})
    )
    draft.replace(folder / "inbox.json")
    os.kill(pid, signal.SIGUSR1)


def read_exit(folder: Path) -> wire.WorkerExit | None:
    try:
        return wire.WorkerExit.from_dict(json.loads((folder / "exit.json").read_text()))
    except FileNotFoundError:
        return None
