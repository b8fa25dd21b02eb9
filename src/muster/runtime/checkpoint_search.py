"""The search for the checkpoint that an attempt starts from: which ones count, what was skipped, and what is missing.

The server says which checkpoint it knows to be the newest. If that one's folder or bucket can't be read, it is waited
for. If none of the run's checkpoints is good, the program ends, and the job asks how to go on: it never begins again
by itself.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar

from muster import wire
from muster.runtime import rank_info, reporter, signals
from muster.runtime.manifest import COMMITTED as COMMITTED
from muster.runtime.manifest import Manifest

T = TypeVar("T")

WAIT: Final = 600.0  # seconds to wait for a store, unless the job file says
_FIRST_PAUSE: Final = 0.5  # seconds, doubled up to
_LAST_PAUSE: Final = 30.0
_SLICE: Final = 0.5  # seconds between two looks for a request to stop
_SKIPPED_MAX: Final = 20  # damaged checkpoints that are reported


class NoGoodCheckpoint(RuntimeError):
    """The run has saved checkpoints, and none of them can be loaded."""


class StartMissing(RuntimeError):
    """The checkpoint of another run that the job starts from is not where this program looks for it."""


def check_start(where: str) -> None:
    """For a run that has no checkpoint: raises StartMissing if it starts from one that is kept elsewhere."""
    store = os.environ.get(wire.START_FROM, where)
    if store != where:
        raise StartMissing(
            f"the job starts from a checkpoint in {store}, and this program looks in {where}. `muster.train` takes it "
            "from there; another program has to load it by itself."
        )


def counts(manifest: Manifest) -> bool:
    """Whether the run may start from this checkpoint. After `muster resume --from-scratch` or `--checkpoint`, those of
    earlier attempts don't count, except the named one."""
    since, step = os.environ.get(wire.CHECKPOINT_SINCE), os.environ.get(wire.CHECKPOINT_STEP)
    return not since or manifest.attempt >= int(since) or str(manifest.step) == step


@dataclass(slots=True)
class Search:
    """One search in `where`, a folder or a URL. `error`: raised when no checkpoint is good."""

    where: str
    error: type[Exception] = NoGoodCheckpoint
    away: tuple[type[Exception], ...] = (OSError,)  # what `look` raises if the store can't be read
    _skipped: list[dict[str, str]] = field(default_factory=list)
    _seen: set[int] = field(default_factory=set)  # steps of the checkpoints that are there

    @property
    def known(self) -> int | None:
        """The step of the newest checkpoint that the server knows, if it is in this folder or one of the same name."""
        folder, _, name = os.environ.get(wire.CHECKPOINT_KNOWN, "").rpartition("/")
        found = COMMITTED.fullmatch(name)
        return int(found[1]) if found and _last(folder) == _last(self.where) else None

    def wait_for(self, look: Callable[[], Sequence[T]]) -> Sequence[T]:
        """What `look` finds. If the server knows of a checkpoint and nothing is found, it is tried again for as long as
        `checkpoint.wait` of the job file says."""
        began, pause, told = time.monotonic(), _FIRST_PAUSE, False
        patience = float(os.environ.get(wire.CHECKPOINT_WAIT) or WAIT)
        while True:
            trouble = "nothing is there"
            try:
                found = look()
                if found or self.known is None:
                    if told:
                        self._tell_over(time.monotonic() - began)
                    return found
            except self.away as error:
                if self.known is None:
                    raise
                trouble = str(error)
            text = f"the checkpoints in {self.where} can't be read ({trouble}), and step {self.known} was saved there"
            left = began + patience - time.monotonic()
            if left <= 0 or signals.should_stop():
                raise self.error(f"{text}. It was waited for during {time.monotonic() - began:.0f} s.")
            if not told:
                told = True
                reporter.document("waiting", text=text)
            rank_info.warn(f"{text}; the next look is in {min(pause, left):.0f} s, for another {left:.0f} s at most.")
            _sleep(min(pause, left))
            pause = min(2 * pause, _LAST_PAUSE)

    def skip(self, path: str, what: str) -> None:
        """A checkpoint is damaged and is not used."""
        rank_info.warn(f"checkpoint {path} is damaged and is not used: {what}.")
        self._skipped.append({"path": path, "what": what})

    def saw(self, name: str) -> None:
        """A checkpoint with this name is there, damaged or not."""
        if found := COMMITTED.fullmatch(name):
            self._seen.add(int(found[1]))

    def use(self, path: str, step: int) -> None:
        """This checkpoint is the one to start from."""
        known = self.known
        if known is not None and step < known and known not in self._seen:
            self.skip(f"{self.where}/step-{known:09d}", "it is not there")
        if self._skipped:
            reporter.document("restore", path=path, step=step, skipped=self._skipped[:_SKIPPED_MAX])

    def use_none(self) -> None:
        """No checkpoint is good. Raises `error` if the server knows of one."""
        if self._skipped:
            reporter.document("restore", skipped=self._skipped[:_SKIPPED_MAX])
        if self.known is None:
            return
        why = "; ".join(f"{each['path']}: {each['what']}" for each in self._skipped[:3]) or "none is there"
        raise self.error(f"none of the checkpoints in {self.where} can be loaded: {why}")

    def _tell_over(self, seconds: float) -> None:
        text = f"the checkpoints in {self.where} could not be read for {seconds:.0f} s and are there again"
        rank_info.warn(f"{text}.")
        reporter.document("waiting", text="", note=text)


def _last(folder: str) -> str:
    return folder.rstrip("/").rpartition("/")[2]


def _sleep(seconds: float) -> None:
    until = time.monotonic() + seconds
    while (left := until - time.monotonic()) > 0 and not signals.should_stop():
        time.sleep(min(left, _SLICE))
