"""The local engine: runs workers on this machine, each under a launcher that outlives the server.

All its state is in the workers' folders, root/attempts/JOB/ATTEMPT/WORKER, so a new server finds what an earlier one
started. A launcher that died is replaced by one in recovery mode, which kills the remaining processes and reports what
was not reported yet.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from muster.core.errors import EngineError
from muster.engines.base import GangLaunch, NodeInfo, WorkerReport
from muster.engines.isolation import Probe
from muster.engines.local_launch import LocalConfig, describe_gang, free_port
from muster.engines.local_memory import MemoryFolders
from muster.engines.local_nodes import describe_machine
from muster.engines.local_warm import WarmProcess
from muster.engines.local_watch import Watcher
from muster.engines.local_worker import LocalWorker, read_launch, write_new
from muster.inherited import for_launcher
from muster.wire import Launch

__all__ = ["LocalConfig", "LocalEngine", "describe_machine"]

CHECK_SECONDS: Final = 30.0  # for all checks of a node; each ends by itself after five
_log = logging.getLogger(__name__)


class LocalEngine:
    """See `muster.engines.base.Engine`. Safe to call from any thread; call `start` first."""

    name = "local"
    patience = (
        60.0  # a launcher, or its recovery, always reports; this is the limit for a launcher that can reach no server
    )

    def __init__(self, config: LocalConfig) -> None:
        self._config = config
        self._root = config.root.absolute()
        self._workers: dict[tuple[str, int], list[LocalWorker]] = {}
        self._forgotten: set[tuple[str, int]] = set()
        self._memory = MemoryFolders(self._root)
        self._spares: set[tuple[str, str]] = set()  # launchers that wait for a job's next attempt: the job, and the key
        env = config.env if config.env is not None else for_launcher(os.environ, config.isolation.pass_env)
        self._warm, self._env = WarmProcess(config.python, env), env
        self.isolation_status = Probe(config.isolation)
        self._watcher = Watcher(self._changed)
        self._wake: Callable[[], None] | None = None
        self._lock = threading.RLock()
        self._checking = threading.Lock()  # two checks at once would disturb each other

    def start(self) -> None:
        """Loads the workers of earlier servers and gets ready to launch."""
        (self._root / "attempts").mkdir(parents=True, exist_ok=True)
        with self._lock:
            self._watcher.start()
            self._warm.start()
            for folder in (self._root / "trash").glob("*"):
                self._discard(folder)
            for launch, folder in _scan(self._root / "attempts"):
                if (worker := self._take_up(launch, folder)).alive and not worker.exit:
                    self._prepare_spare(worker, launch)
                if (folder.parent / "forget").exists():
                    self._forgotten.add((launch.job, launch.attempt))

    def nodes(self) -> Sequence[NodeInfo]:
        return tuple(self._config.nodes)

    def check_node(self, node: str, shared: bool) -> Sequence[Mapping[str, Any]]:
        """All nodes of this engine are this machine."""
        command = [self._config.python, "-P", "-m", "muster.runtime.node_checks", str(self._root)]
        command += ["--shared"] if shared else []
        try:
            with self._checking:
                ran = subprocess.run(command, env=self._env, capture_output=True, timeout=CHECK_SECONDS, check=False)
            found: list[dict[str, Any]] = json.loads(ran.stdout)
        except (OSError, subprocess.TimeoutExpired, ValueError) as error:
            raise EngineError(f"The checks of {node} could not be run: {error}", "See `muster doctor`.") from error
        return found

    def launch(self, gang: GangLaunch) -> None:
        """Raises EngineError when a seat can't exist here, OSError when the machine can't start it for now."""
        launches = describe_gang(self._config, gang)
        if gang.warm and len(launches) == 1 and launches[0].isolation is None:  # isolated ranks have a /dev/shm each
            launches = [replace(launches[0], checkpoint_memory=self._memory.place(gang.job))]
        self.launch_workers(launches)

    def launch_workers(self, launches: Sequence[Launch]) -> int:
        """Starts these workers of one attempt and returns the port of its rank 0:
        the given one, or else a free one here."""
        job, attempt = launches[0].job, launches[0].attempt
        with self._lock:
            known = {worker.number: worker for worker in self._workers.get((job, attempt), ())}
            taken = {worker.port for workers in self._workers.values() for worker in workers if not worker.exit}
            given = launches[0].master_port
            port = known[0].port if 0 in known else given or free_port(taken)
            for launch in launches:
                worker = known.get(launch.worker) or self._new_worker(replace(launch, master_port=port))
                port = worker.port
                worker.wanted = True
                worker.refresh()
                if not (worker.alive or worker.started or worker.exit):
                    self._start_launcher(worker, recover=False)
                    self._prepare_spare(worker, launch)
        return port

    def stop(self, job: str, attempt: int, grace: float, reason: str) -> None:
        now = time.monotonic()
        with self._lock:
            for worker in self._workers.get((job, attempt), ()):
                worker.refresh()
                if worker.exit or now + grace >= worker.kill_by:
                    continue  # it has ended, or an earlier order ends it sooner
                worker.kill_by = now + grace
                worker.order(grace, reason)
                if not worker.alive and not worker.started:
                    self._start_launcher(worker, recover=False)  # it finds the order and reports that nothing started

    def poll(self) -> Sequence[WorkerReport]:
        now = time.monotonic()
        with self._lock:
            for key, workers in list(self._workers.items()):
                for worker in workers:
                    if not worker.settled:
                        self._tend(worker, now)
                if key in self._forgotten and all(worker.removable for worker in workers):
                    self._remove(key)
            kept = [workers for key, workers in self._workers.items() if key not in self._forgotten]
            return [worker.report() for workers in kept for worker in workers]

    def forget(self, job: str, attempt: int) -> None:
        key = (job, attempt)
        with self._lock:
            if workers := self._workers.get(key):
                (workers[0].folder.parent / "forget").touch()
                self._forgotten.add(key)
                for worker in workers:
                    worker.refresh()
                if all(worker.removable for worker in workers):
                    self._remove(key)

    def kept(self) -> Collection[str]:
        with self._lock:
            return {*(job for job, _ in self._spares), *self._memory.jobs()}

    def release(self, job: str) -> None:
        self._memory.remove(job)
        with self._lock:
            for spare in [each for each in self._spares if each[0] == job]:
                self._spares.discard(spare)
                self._warm.drop(spare[1])

    def on_change(self, wake: Callable[[], None]) -> None:
        self._wake = wake

    def close(self) -> None:
        with self._lock:
            self._warm.close()
            workers = [worker for workers in self._workers.values() for worker in workers]
            self._workers = {}
        self._watcher.close()
        for worker in workers:
            worker.let_go()

    def _changed(self) -> None:
        if self._wake is not None:
            self._wake()

    def _new_worker(self, launch: Launch) -> LocalWorker:
        """Creates a worker. The launch.json that was written first counts: this one, or an earlier server's."""
        folder = self._root / "attempts" / launch.job / str(launch.attempt) / str(launch.worker)
        folder.mkdir(parents=True, exist_ok=True)
        if "://" not in launch.checkpoint_dir:
            Path(launch.checkpoint_dir).mkdir(parents=True, exist_ok=True)
        write_new(folder / "launch.json", launch.to_json())
        return self._take_up(read_launch(folder), folder)

    def _take_up(self, launch: Launch, folder: Path) -> LocalWorker:
        self._watcher.watch_folder(folder)  # before the first look, so that no event is missed
        worker = LocalWorker(launch.job, launch.attempt, launch.worker, folder, self._watcher.watch_process)
        worker.port = launch.master_port
        worker.refresh()
        self._workers.setdefault((launch.job, launch.attempt), []).append(worker)
        return worker

    def _tend(self, worker: LocalWorker, now: float) -> None:
        worker.refresh()
        worker.kill_frozen(now)
        if worker.needs_launcher(now):
            worker.count_try(now)
            try:
                self._start_launcher(worker, recover=worker.started or worker.exit is not None)
            except OSError as error:  # it is retried later, and reported as lost after several failures
                _log.warning("no launcher could be started for %s: %s", worker.folder, error)

    def _start_launcher(self, worker: LocalWorker, recover: bool) -> None:
        spare = "" if recover else _spare_key(worker)
        self._spares.discard((worker.job, spare))
        worker.adopt(self._warm.ask(worker.folder, recover, spare))

    def _prepare_spare(self, worker: LocalWorker, launch: Launch) -> None:
        """Has a launcher wait for the attempt after this one, with ranks that need not import their libraries."""
        if launch.warm:
            self._warm.prepare(_spare_key(worker), worker.folder)
            self._spares.add((worker.job, _spare_key(worker)))

    def _remove(self, key: tuple[str, int]) -> None:
        """Moves the folder away in one step: a half-removed folder would look like a worker that was never started."""
        folder = self._workers.pop(key)[0].folder.parent
        self._forgotten.discard(key)
        trash = self._root / "trash" / f"{key[0]}.{key[1]}"
        trash.parent.mkdir(exist_ok=True)
        shutil.rmtree(trash, ignore_errors=True)
        folder.rename(trash)
        self._discard(trash)
        with suppress(OSError):  # the job has other attempts
            folder.parent.rmdir()

    def _discard(self, folder: Path) -> None:
        """Removes a folder. What ranks left there as granted users can be removed in a user namespace alone."""
        shutil.rmtree(folder, ignore_errors=True)
        if folder.exists() and os.geteuid() != 0:
            try:
                self._warm.remove(folder)
            except OSError as error:  # the next server tries again
                _log.warning("%s could not be removed: %s", folder, error)


def _spare_key(worker: LocalWorker) -> str:
    return f"{worker.job}/{worker.number}"


def _scan(attempts: Path) -> Iterator[tuple[Launch, Path]]:
    for path in sorted(attempts.glob("*/*/*/launch.json")):
        try:
            yield read_launch(path.parent), path.parent
        except (ValueError, TypeError, KeyError) as error:
            _log.warning("%s makes no sense and is left alone: %r", path, error)
