"""What a rank does now: building, loading, training, waiting for data, saving, evaluating.

    with runtime.phase("saving"):           # the phase before it continues when the block ends
        torch.save(...)
    runtime.phase("training")               # without a block: from now on
    runtime.spent("data", seconds)          # a part of the current phase that was measured elsewhere

A change is written to the spool as it happens, so that the platform knows the phase of a rank that hangs. Phases that
change many times a second are written as sums every few seconds instead; no second is lost or counted twice. Calls in
other threads than the main one do nothing: what is saved in the background stops nobody.
"""

from __future__ import annotations

import atexit
import time
from collections.abc import Callable
from threading import get_ident, main_thread
from typing import Any, Final, Literal

from muster import wire
from muster.runtime.reporter import shared

EVERY: Final = 5.0  # seconds: a phase that changes more often on average is written as sums this often
BURST: Final = 32  # changes to one phase that are written at once before that
UNSTATED: Final = ""


class PhaseLog:
    """The phases of one process; `write` takes the documents.

    A change to another phase than the one written last needs one of the new phase's credits, which grow with time. With
    each written change the next one is free: it is nearly always the return to the phase before.
    """

    __slots__ = ("_credits", "_free", "_since", "_spent", "_write", "_written", "_written_at", "name")

    def __init__(self, write: Callable[[dict[str, Any]], None]) -> None:
        self._write = write
        self.name = self._written = UNSTATED
        self._since = self._written_at = time.time()
        self._spent: dict[str, float] = {}  # seconds by phase since the last document, without the current phase
        self._credits: dict[str, tuple[float, float]] = {}  # by phase: how many, and when
        self._free = False

    def enter(self, name: str) -> None:
        now = time.time()
        if name == self.name:
            return
        self._count(now)
        self.name = name
        if name == self._written:
            return
        if self._credit(name, now):
            self._free = True
        elif self._free or now - self._written_at >= EVERY:
            self._free = False
        else:
            return
        self._put(now)

    def spent(self, name: str, seconds: float) -> None:
        self._spent[name] = self._spent.get(name, 0.0) + seconds
        now = time.time()
        if now - self._written_at >= EVERY:
            self._count(now)
            self._put(now)

    def flush(self) -> None:
        """Writes the sums that are not written yet."""
        if self._spent:
            now = time.time()
            self._count(now)
            self._put(now)

    def _count(self, now: float) -> None:
        """Adds the time in the current phase. What is in no sum belongs to the phase that was written last."""
        if self.name != self._written:
            self._spent[self.name] = self._spent.get(self.name, 0.0) + max(0.0, now - self._since)
        self._since = now

    def _credit(self, name: str, now: float) -> bool:
        left, at = self._credits.get(name, (float(BURST), now))
        left = min(BURST, left + max(0.0, now - at) / EVERY)
        self._credits[name] = (left - 1 if left >= 1 else left), now
        return left >= 1

    def _put(self, now: float) -> None:
        doc: dict[str, Any] = {"type": "phase", "time": now, "name": self.name}
        if self._spent:
            doc["spent"] = {name: round(seconds, 6) for name, seconds in self._spent.items()}
        self._spent, self._written, self._written_at = {}, self.name, now
        self._write(doc)


class phase:
    """Says what this rank does from now on, or in a block: `with phase("saving"): ...`. About three microseconds.

    The names are `wire.PHASES`: import, rendezvous, build, compile and load for the start; training, data, waiting (for
    other ranks, which finds stragglers), saving, evaluating and idle. Raises ValueError for others.
    """

    __slots__ = ("_before",)
    _before: str | None

    def __init__(self, name: wire.PhaseName) -> None:
        if name not in _NAMES:
            raise _unknown("phase", name)
        self._before = None
        if get_ident() == _MAIN:
            self._before = log.name
            log.enter(name)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> Literal[False]:
        if self._before is not None:
            log.enter(self._before)
        return False


def spent(name: wire.PhaseName, seconds: float) -> None:
    """Counts seconds of the current phase for another one, such as a wait for data that was measured on the device."""
    if name not in _NAMES:
        raise _unknown("spent", name)
    if seconds >= 0 and get_ident() == _MAIN:
        log.spent(name, float(seconds))


def _unknown(call: str, name: object) -> ValueError:
    return ValueError(f"{call}(): got {name!r}; expected one of {', '.join(wire.PHASES)}.")


_NAMES: Final = frozenset(wire.PHASES)
_MAIN: Final = main_thread().ident
log: Final = PhaseLog(shared.write)
atexit.register(log.flush)
