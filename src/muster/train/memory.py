"""The last step in the machine's memory, beside the checkpoints on disk: after a killed rank little is done again.

Saves are paced by what they cost: 1 % of the time. All ranks' parts are committed together, with the checksums of those
on disk, in the job's folder of shared memory (`runtime.memory_checkpoints`). Where there is none, nothing is kept.
"""

from __future__ import annotations

import hashlib
import shutil
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Final

from muster import runtime
from muster.runtime import checkpoints
from muster.runtime.memory_checkpoints import has_room
from muster.train.checkpoint import Found, Saver, Saving, Snapshot
from muster.train.config import Every
from muster.train.errors import CheckpointError
from muster.train.readings import noted, say

SHARE: Final = 0.01  # of the time, in which saves may stop training; on CPUs, in which they are copied and written
WRITING: Final = 0.1  # of the time, in which they may be written beside a GPU's work
FIRST_SECONDS: Final = 2.0  # before the first one
SHORT_SECONDS: Final = 30.0  # until the next look, if the machine had too little memory


@dataclass(slots=True)
class MemorySaves:
    """`due` is for rank 0, which decides for all. The other methods are called on all ranks together."""

    disk: Saver
    every: Every | None  # None: off
    where: str  # of the checkpoints on disk; a job may train several runs
    cpu: bool  # training and the writing of a save share the cores
    saver: Saver | None = None  # None: nothing is kept
    _step: int = 0  # that was kept last
    _at: float = field(default_factory=time.monotonic)
    _pause: float = FIRST_SECONDS
    _short_until: float = 0.0
    _measured: Saving | None = None  # the last one whose cost is known
    _count: int = 0
    _off: bool = False
    _told: bool = False

    def __enter__(self) -> MemorySaves:
        if self.every is not None:
            with suppress(CheckpointError):  # such as a process of an earlier attempt that does not end
                self.saver = self.disk.beside(self._folder)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.saver is not None:
            with suppress(CheckpointError):
                self.saver.close()

    def begin(self, found: Found | None) -> None:
        """The run goes on from this checkpoint; any other in memory is removed."""
        if self.saver is not None:
            self.saver.clear(keep=found)
            self._step, self._at = found.step if found is not None else 0, time.monotonic()

    def drop(self) -> None:
        """Removes what is kept."""
        if self.saver is not None:
            self.saver.clear()

    def poll(self) -> Saving | None:
        """The last save, finished or not."""
        return self.saver.poll() if self.saver is not None else None

    def due(self, step: int, size: Callable[[], int]) -> bool:
        """Whether the state after this step should be kept. `size`: about how large it is, in bytes."""
        if self.saver is None or self.every is None or self._off:
            return False
        last, disk = self.saver.poll(), self.disk.poll()
        if (last is not None and not last.done) or (disk is not None and not disk.done):
            return False  # they share the image
        if last is not None and last is not self._measured:
            self._measure(last)
        now = time.monotonic()
        if self.every.steps is not None:
            due = step - self._step >= self.every.steps
        else:
            due = step > self._step and now - self._at >= (self.every.seconds or self._pause)
        if not due or self._off or now < self._short_until:
            return False
        if self._has_room(last.bytes if last is not None else size(), last is None and disk is None):
            return True
        self._short_until = now + SHORT_SECONDS
        return False

    def save(self, snapshot: Snapshot) -> None:
        """Keeps the state. Blocks for a copy of it; an error ends the keeping and not the run."""
        assert self.saver is not None
        self._step, self._at = snapshot.step, time.monotonic()
        try:
            with runtime.phase("saving"):
                self.saver.save(snapshot)
        except CheckpointError as error:
            self._give_up(error)

    def _folder(self) -> Path | None:
        parent = checkpoints.memory_dir(create=True)
        place = self.where if "://" in self.where else str(Path(self.where).absolute())
        return parent / f"train-{hashlib.sha256(place.encode()).hexdigest()[:12]}" if parent is not None else None

    def _measure(self, saving: Saving) -> None:
        """Takes the cost of a finished save. The first one also makes the plan and the image, so the second comes
        sooner than its cost allows."""
        self._measured, self._count = saving, self._count + 1
        if saving.error is not None:
            self._give_up(saving.error)
            return
        cost = saving.seconds if self.cpu else max(saving.stall_seconds, saving.seconds * SHARE / WRITING)
        self._pause = cost / SHARE if self._count > 1 else cost / SHARE / 10
        if self._count == 2 and self.every == Every():
            size, took = saving.bytes / 1e6, saving.seconds
            say(
                f"checkpoint memory: auto keeps the last step every {self._pause:.1f} s ({size:.1f} MB in {took:.2f} s)"
            )

    def _has_room(self, size: int, first: bool) -> bool:
        """Whether the machine has the memory for one more, and for the image if there is none yet."""
        assert self.saver is not None
        free = shutil.disk_usage(self.saver.where).free
        if size <= free and has_room(size, 2 * size if first else size):
            return True
        self._tell(f"it has {size / 1e6:.0f} MB, for which this machine has too little memory left")
        return False

    def _give_up(self, error: CheckpointError) -> None:
        self._off = True
        self._tell(str(error))
        self.drop()

    def _tell(self, why: str) -> None:
        if not self._told and runtime.rank() == 0:
            noted(f"the last step is not kept in memory, only on disk: {why}")
        self._told = True
