"""Asynchronous saves: the caller blocks for a copy of the snapshot, a thread writes it, one atomic step commits it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from torch import Tensor

from muster.train.checkpoint import load, plain
from muster.train.checkpoint.commit import Draft, newest_serial
from muster.train.checkpoint.gang import SaveGroup, own_gang
from muster.train.checkpoint.load import Found, open_store
from muster.train.checkpoint.owner import Hold
from muster.train.checkpoint.plan import Plan, Signature, make_plan, signature
from muster.train.checkpoint.saving import Saving, Work
from muster.train.checkpoint.snapshot import Snapshot
from muster.train.checkpoint.stage import Stage
from muster.train.checkpoint.start import take_start
from muster.train.checkpoint.store import Local, Store
from muster.train.errors import CheckpointError


@dataclass
class Saver:
    """Saves the snapshots of one run to one store, which no other run may use meanwhile.

    All ranks must call every method except `poll` together, in the same order. One process needs no process group.
    """

    where: str | Path  # a folder that all ranks see, or s3://bucket/prefix, gs://... or az://...
    keep: int = 3  # number of newest checkpoints to keep
    keep_every: int = 0  # checkpoints at multiples of this step are kept forever; 0: none
    busy: Literal["wait", "skip"] = "wait"  # what `save` does while another save is in progress
    tolerate: int = 0  # consecutive failed saves that are only logged; one more raises
    reports: bool = True  # tells the platform of each save
    _beside: Saver | None = field(default=None, repr=False)  # another one with the same groups
    _store: Store | None = field(default=None, repr=False)
    _hold: Hold | None = field(default=None, repr=False)
    _control: SaveGroup = field(default_factory=SaveGroup, repr=False)  # for the caller's thread
    _writer: SaveGroup = field(default_factory=SaveGroup, repr=False)  # for the thread that writes
    _plan: tuple[Signature, Plan] | None = field(default=None, repr=False)
    _stage: Stage = field(default_factory=Stage, repr=False)
    _last: Saving | None = field(default=None, repr=False)
    _judged: bool = field(default=True, repr=False)  # whether the result of the last save was checked
    _failed: int = field(default=0, repr=False)  # consecutive failed saves
    _serial: int | None = field(default=None, repr=False)  # of the newest checkpoint

    def open(self) -> Saver:
        """Takes the store and removes what dead processes left. Raises CheckpointHeld, with the holder."""
        if self.keep < 1 or self.keep_every < 0:
            raise ValueError(f"Saver: keep {self.keep}, keep_every {self.keep_every}; expected 1 or more, 0 or more.")
        if self._beside is None:
            self._control, self._writer = own_gang(), own_gang()
        store = self._control.together(lambda: open_store(self.where))
        hold = store.hold() if self._control.rank == 0 else None

        def take() -> None:
            assert hold is not None
            load.wait_for(store)  # before anything is created there
            hold.take()
            store.clean()

        try:
            self._control.lead(take)
            if self.reports:
                take_start(store, self._control)
        except BaseException:
            if hold is not None:
                hold.release()
            raise
        self._store, self._hold = store, hold
        return self

    def beside(self, make: Callable[[], Path | None]) -> Saver | None:
        """Opens a saver for the machine's memory, in a folder that rank 0 makes; None if it makes none.

        It has the process groups of this one, which must be open, and its image where that fits, so only one of the two
        writes at a time. It keeps one checkpoint, whose serial is that of the next one on disk.
        """
        folder = self._control.lead(make)
        if folder is None:
            return None
        stage = self._stage if isinstance(self._store, Local) else Stage()
        other = Saver(folder, keep=1, reports=False, _beside=self, _stage=stage)
        other._control, other._writer = self._control, self._writer
        self._beside = other.open()
        return other

    def newest(self, *, checksums: bool = True, memory: Saver | None = None) -> Found | None:
        """The newest valid checkpoint of the store, or None. Damaged ones are logged and skipped."""
        kept = memory._opened() if memory is not None else None
        return load.find(self._opened(), self._control, checksums, kept)

    def holds(self, found: Found) -> bool:
        """Whether it is a checkpoint of this store."""
        return found.store is self._store

    def serial(self) -> int:
        """The serial of the newest checkpoint of the store. For rank 0."""
        if self._last is not None and self._last.done and self._last.serial:
            self._serial = self._last.serial
        if self._serial is None:
            self._serial = newest_serial(self._opened())
        return self._serial

    def clear(self, keep: Found | None = None) -> None:
        """Removes all checkpoints, or all but one, once this rank has no save in progress. Makes no communication."""
        if self._last is not None:
            self._last.wait()
        store = self._opened()
        for each in store.committed() if self._control.rank == 0 else ():
            if keep is None or (keep.store, keep.folder) != (store, each.folder):
                store.delete(each.folder)

    def prepare(self, snapshot: Snapshot) -> None:
        """Does for the first save what the later ones have already: makes the plan, and in the background the host
        memory for the copy."""
        tensors = dict(snapshot.tensors())
        plan = make_plan(tensors, self._control, self._opened().file_bytes)
        self._plan = signature(tensors), plan
        self._stage.prepare(plan, tensors, snapshot.step)

    def save(self, snapshot: Snapshot, wait: bool = False) -> Saving | None:
        """Copies the snapshot and writes it in the background; with `wait`, returns when it is committed.

        Returns None if another save is in progress and `busy` is "skip" (never with `wait`). Raises CheckpointError,
        on all ranks, once more than `tolerate` saves in a row have failed. Older checkpoints always stay intact.
        """
        started = time.monotonic()
        store = self._opened()
        tensors = dict(snapshot.tensors())
        mine = _RankData()
        told = self._control.gather(lambda: self._rank_state(snapshot, tensors, mine))
        _check_steps([step for step, _, _ in told])
        if self.busy == "skip" and not wait and any(running for _, running, _ in told):
            return None
        self._join()
        if self._beside is not None and (other := self._beside.poll()) is not None:
            other.wait()  # it has the image and the groups
        if self._plan is None or any(changed for _, _, changed in told):
            self._plan = mine.signature, make_plan(tensors, self._control, store.file_bytes)
        plan = self._plan[1]
        follows = self._beside.serial if self._beside is not None and not self.reports else None
        copied = self._copy(plan, tensors, snapshot.step)
        draft = Draft(snapshot.step, plan, self._stage, mine.shared, mine.extra, copied, mine.values, follows)
        saving = self._last = Saving(snapshot.step)
        self._judged = False
        keep = (self.keep, self.keep_every)
        work = Work(saving, draft, store, self._writer, self._hold, keep, started, self.reports)
        # Not a daemon: the interpreter's exit waits for a save in progress.
        saving.stall_seconds = time.monotonic() - started
        threading.Thread(target=work.run, name=f"muster-save-{saving.step}").start()
        if wait:
            self._join()
        return saving

    def poll(self) -> Saving | None:
        """The last save, finished or not. Makes no communication: it may be called every step, on any rank."""
        return self._last

    def wait(self) -> Saving | None:
        """Waits for the save in progress, if any. Raises like `save`."""
        self._join()
        return self._last

    def close(self) -> None:
        """Waits for the save in progress and releases the store. Raises like `save`."""
        try:
            self._join()
        finally:
            hold, self._hold, self._store = self._hold, None, None
            if self.reports or self._beside is None or self._stage is not self._beside._stage:
                self._stage.release()
            if hold is not None:
                hold.release()

    def __enter__(self) -> Saver:
        return self.open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is None:
            self.close()
            return
        try:
            self.close()
        except CheckpointError as second:
            error.add_note(f"muster: {second}")

    def _opened(self) -> Store:
        if self._store is None:
            raise CheckpointError(f"Saver({str(self.where)!r}) is not open. Use it in a `with` block, or call open().")
        return self._store

    def _join(self) -> None:
        """Waits for the last save and counts its result once. All ranks see the same failures and raise together."""
        if self._last is None:
            return
        self._last.wait()
        if self._judged:
            return
        self._judged = True
        error = self._last.error
        self._failed = self._failed + 1 if error else 0
        if error and self._failed > self.tolerate:
            raise error

    def _rank_state(self, snapshot: Snapshot, tensors: dict[str, Tensor], mine: _RankData) -> tuple[int, bool, bool]:
        """Exchanges each rank's step, whether it still writes, and whether its tensors have changed."""
        mine.signature = signature(tensors)
        mine.shared = plain.dump(snapshot.shared, "Snapshot.shared")
        mine.extra = plain.dump(snapshot.extra, "Snapshot.extra")
        mine.values = snapshot.values()
        plain.dump(mine.values, "a value in Snapshot.model or Snapshot.optim")
        running = self._last is not None and not self._last.done
        return snapshot.step, running, self._plan is None or self._plan[0] != mine.signature

    def _copy(self, plan: Plan, tensors: dict[str, Tensor], step: int) -> Callable[[], None]:
        """Copies the snapshot. Errors are reported at the next collective: raising here would block other ranks."""
        try:
            return self._stage.copy(plan, tensors, step)
        except Exception as error:
            return partial(_fail, error)


@dataclass(slots=True)
class _RankData:
    """The data that a rank prepares for one save."""

    signature: Signature = ()
    shared: bytes = b""
    extra: bytes = b""
    values: dict[str, Any] = field(default_factory=dict)


def _fail(error: Exception) -> None:
    raise error


def _check_steps(steps: list[int]) -> None:
    if len(set(steps)) > 1:
        raise CheckpointError(f"save(): ranks are at different steps: {steps}. Save at the same step on all of them.")
