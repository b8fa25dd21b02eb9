"""One save: its progress, and the thread that writes it."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from typing import Final

from muster.runtime import rank_info, reporter
from muster.train.checkpoint.commit import Draft, write
from muster.train.checkpoint.gang import SaveGroup
from muster.train.checkpoint.owner import Hold
from muster.train.checkpoint.store import Store
from muster.train.errors import CheckpointError

FORMAT: Final = "muster.train"
LOAD: Final = (
    "`muster.train.checkpoint.restore(newest(FOLDER), snapshot)` on any number of ranks and any layout, or "
    "`muster.train.checkpoint.export(newest(FOLDER), 'model.safetensors')` for one file"
)


@dataclass(slots=True)
class Saving:
    """One save: in progress, committed (`path` is set) or failed (`error` is set)."""

    step: int
    stall_seconds: float = 0.0  # how long `save` blocked its caller, then how long the copy blocked the device
    seconds: float = 0.0  # from the call until it was committed
    bytes: int = 0  # of the whole checkpoint
    serial: int = 0  # of the commit
    path: str | None = None
    error: CheckpointError | None = None
    _end: threading.Event = field(default_factory=threading.Event, repr=False)

    @property
    def done(self) -> bool:
        return self._end.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        """True once it is committed (`path`) or has failed (`error`); False on timeout."""
        return self._end.wait(timeout)


@dataclass(frozen=True, slots=True)
class Work:
    """The work of the background thread."""

    saving: Saving
    draft: Draft
    store: Store
    gang: SaveGroup
    hold: Hold | None
    keep: tuple[int, int]
    started: float  # monotonic
    reports: bool

    def run(self) -> None:
        saving = self.saving
        try:
            saving.path, saving.bytes, saving.serial = write(self.draft, self.store, self.gang, self.hold, self.keep)
        except Exception as error:
            saving.error = error if isinstance(error, CheckpointError) else CheckpointError(self.draft.failure(error))
            saving.error.__cause__ = error if error is not saving.error else error.__cause__
        saving.stall_seconds += self.draft.stage.device_seconds
        saving.seconds = time.monotonic() - self.started
        if self.gang.rank == 0 and self.reports:
            self._report()
        saving._end.set()

    def _report(self) -> None:
        saving = self.saving
        if saving.error is not None:
            rank_info.warn(str(saving.error))
            reporter.note(str(saving.error))
            return
        reporter.document(
            "checkpoint",
            step=saving.step,
            path=saving.path,
            bytes=saving.bytes,
            seconds=saving.seconds,
            world=self.gang.world,
            format=FORMAT,
            load=LOAD,
        )
