"""Background work for a worker's ranks: samples their hardware, captures their environment, ships their files.

Two threads, started after the ranks; no rank ever waits for them.
"""

from __future__ import annotations

import os
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from muster import wire
from muster.runtime import processes
from muster.runtime.channel import Channel
from muster.runtime.environment import cache_folder, capture
from muster.runtime.folder import write_whole
from muster.runtime.hardware import Sampler
from muster.runtime.host import HostStream
from muster.runtime.upload import Uploader

CAPTURED: Final = "environment"  # a file in the worker's folder: the environment is already in the host stream
HANGING: Final = 3.0  # seconds to wait for a hanging driver
AGAIN: Final = 5.0  # seconds after a failure of the uploader


@dataclass(frozen=True, slots=True)
class Program:
    """What the ranks of a worker run, and their environment."""

    command: str
    workdir: str
    environments: Mapping[int, Mapping[str, str]]  # rank → its complete environment
    secrets: Mapping[str, str]
    shell: tuple[str, ...] = ()  # command prefix to run programs for isolated ranks

    @property
    def first(self) -> Mapping[str, str]:
        return next(iter(self.environments.values()))


@dataclass
class Companion:
    """The companion of one worker. Its own thread calls `closed` when nothing more will be reported."""

    folder: Path  # the worker's
    ranks: Mapping[int, Path]  # rank → its folder
    program: Program | None  # None: its environment can no longer be found out
    channel: Channel
    say: Callable[[int, str], None]
    closed: Callable[[], None]
    leave_out: frozenset[int] = frozenset()  # processes that are not part of the ranks
    files: Mapping[int, Path] = field(default_factory=dict)  # rank → folder of its files, if not in the rank's folder
    isolated: bool = False  # the ranks are isolated and have fewer rights than this process
    _streams: dict[int, HostStream] = field(default_factory=dict)
    _sampler: Sampler | None = None
    _uploader: Uploader | None = None

    def start(self, roots: Mapping[int, int]) -> None:
        """Starts. `roots`: each rank's first process; empty for a worker that is only recovered."""
        self._streams = {rank: HostStream(folder) for rank, folder in self.ranks.items()}
        if roots and self.program is not None:
            tell = lambda rank, step, values: self._streams[rank].row(step, values)  # noqa: E731
            self._sampler = Sampler(
                roots, self.program.environments, tell, leave_out=self.leave_out, tell_fault=self._document
            )
            self._sampler.start()
        files = self.files or {rank: folder / "files" for rank, folder in self.ranks.items()}
        self._uploader = Uploader(files, self.channel, self._document, self._safe, self.say, self.isolated)
        threading.Thread(target=self._run, name="companion", daemon=True).start()

    def document(self, rank: int, doc: dict[str, Any]) -> None:
        """Writes a document to the stream of a rank."""
        self._streams[rank].document(doc)

    def devices(self, rank: int) -> tuple[float, float] | None:
        """See `Sampler.devices`."""
        return self._sampler.devices(rank) if self._sampler is not None else None

    def take_sample(self) -> wire.NodeSample | None:
        """See `Sampler.take_sample`."""
        return self._sampler.take_sample() if self._sampler is not None else None

    def finish(self) -> None:
        """Called when the ranks have ended: ships the rest, then closes."""
        if self._uploader is not None:
            self._uploader.finish()

    def _run(self) -> None:
        assert self._uploader is not None
        _guarded(lambda: self._capture(last=False))
        while not _guarded(self._uploader.run):
            time.sleep(AGAIN)  # no given file may be left behind
        _guarded(lambda: self._capture(last=True))
        if self._sampler is not None:
            self._sampler.stop(HANGING)
        self.closed()

    def _capture(self, last: bool) -> None:
        """Captures the environment, once. The process that reads the packages may be killed together with a short
        rank's leftovers; then it is repeated when the ranks have ended."""
        mark = self.folder / CAPTURED
        program = self.program
        if program is None or mark.exists():
            return
        cache = (
            None if self.isolated else cache_folder()
        )  # no shared cache: one job's answer would be used for another's
        doc = capture(program.command, program.first, program.workdir, program.secrets, cache, program.shell)
        if doc["packages"] or last:
            self._document(doc)
            if self._safe():
                write_whole(mark, b"")

    def _document(self, doc: dict[str, Any]) -> None:
        """Writes to the stream of the worker's first rank."""
        self._streams[min(self._streams)].document(doc)

    def _safe(self) -> bool:
        return all(stream.safe() for stream in self._streams.values())


def _guarded(work: Callable[[], None]) -> bool:
    """Runs the work and returns whether it succeeded; if not, logs the error to the launcher's log."""
    try:
        work()
    except Exception:
        processes.log_line(traceback.format_exc())
        return False
    return True


def plain_environment(environment: Mapping[str, str], package_dir: Path) -> dict[str, str]:
    """A rank's environment without what the launcher added for itself, which differs between workers."""
    paths = environment.get("PYTHONPATH", "").split(os.pathsep)
    kept = os.pathsep.join(path for path in paths if path and path != str(package_dir))
    found = {name: value for name, value in environment.items() if name != "PYTHONPATH"}
    return {**found, "PYTHONPATH": kept} if kept else found
