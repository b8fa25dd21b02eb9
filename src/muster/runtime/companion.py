"""What goes on beside a worker's ranks: their hardware is sampled, their environment captured, their files shipped.

Two threads, started after the ranks; neither is ever waited for by a rank.
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

from muster.runtime import processes
from muster.runtime.channel import Channel
from muster.runtime.environment import cache_folder, capture
from muster.runtime.folder import write_whole
from muster.runtime.hardware import Sampler
from muster.runtime.host import HostStream
from muster.runtime.upload import Uploader

CAPTURED: Final = "environment"  # a file in the worker's folder: the environment is in the host stream
HANGING: Final = 3.0  # seconds that a driver may hang before it is left behind
AGAIN: Final = 5.0  # seconds after the uploader broke


@dataclass(frozen=True, slots=True)
class Program:
    """What the ranks of a worker run, and in what."""

    command: str
    workdir: str
    environments: Mapping[int, Mapping[str, str]]  # rank: all that it sees
    secrets: Mapping[str, str]
    shell: tuple[str, ...] = ()  # by which programs are run for it, where its ranks are kept apart

    @property
    def first(self) -> Mapping[str, str]:
        return next(iter(self.environments.values()))


@dataclass
class Companion:
    """Of one worker. `closed` is called, in a thread of its own, when nothing more will be said."""

    folder: Path  # the worker's
    ranks: Mapping[int, Path]  # rank: its folder
    program: Program | None  # None: what it ran in can't be known any more
    channel: Channel
    say: Callable[[int, str], None]
    closed: Callable[[], None]
    leave_out: frozenset[int] = frozenset()  # processes that are no part of the ranks
    files: Mapping[int, Path] = field(default_factory=dict)  # rank: what it gave away, where not in its folder
    apart: bool = False  # the ranks may not read what this process may
    _streams: dict[int, HostStream] = field(default_factory=dict)
    _sampler: Sampler | None = None
    _uploader: Uploader | None = None

    def start(self, roots: Mapping[int, int]) -> None:
        """`roots`: each rank's first process; none of a worker that is only recovered."""
        self._streams = {rank: HostStream(folder) for rank, folder in self.ranks.items()}
        if roots and self.program is not None:
            tell = lambda rank, step, values: self._streams[rank].row(step, values)  # noqa: E731
            self._sampler = Sampler(roots, self.program.environments, tell, leave_out=self.leave_out)
            self._sampler.start()
        files = self.files or {rank: folder / "files" for rank, folder in self.ranks.items()}
        self._uploader = Uploader(files, self.channel, self._document, self._safe, self.say, self.apart)
        threading.Thread(target=self._run, name="companion", daemon=True).start()

    def finish(self) -> None:
        """The ranks have ended: ships what is left, then closes."""
        if self._uploader is not None:
            self._uploader.finish()

    def _run(self) -> None:
        assert self._uploader is not None
        _guarded(lambda: self._capture(last=False))
        while not _guarded(self._uploader.run):
            time.sleep(AGAIN)  # nothing that was given away may be left behind
        _guarded(lambda: self._capture(last=True))
        if self._sampler is not None:
            self._sampler.stop(HANGING)
        self.closed()

    def _capture(self, last: bool) -> None:
        """Once. The process that reads the packages may be killed with what a short rank leaves behind; then it is
        asked again when the ranks have ended."""
        mark = self.folder / CAPTURED
        program = self.program
        if program is None or mark.exists():
            return
        cache = None if self.apart else cache_folder()  # where one job's word would be taken for another's
        doc = capture(program.command, program.first, program.workdir, program.secrets, cache, program.shell)
        if doc["packages"] or last:
            self._document(doc)
            if self._safe():
                write_whole(mark, b"")

    def _document(self, doc: dict[str, Any]) -> None:
        """On the stream of the worker's first rank."""
        self._streams[min(self._streams)].document(doc)

    def _safe(self) -> bool:
        return all(stream.safe() for stream in self._streams.values())


def _guarded(work: Callable[[], None]) -> bool:
    """Whether it came to its end; if not, the launcher's log says why."""
    try:
        work()
    except Exception:
        processes.complain(traceback.format_exc())
        return False
    return True


def plain_environment(environment: Mapping[str, str], package_dir: Path) -> dict[str, str]:
    """A rank's environment without what the launcher put in for itself, which differs from worker to worker."""
    paths = environment.get("PYTHONPATH", "").split(os.pathsep)
    kept = os.pathsep.join(path for path in paths if path and path != str(package_dir))
    found = {name: value for name, value in environment.items() if name != "PYTHONPATH"}
    return {**found, "PYTHONPATH": kept} if kept else found
