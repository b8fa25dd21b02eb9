"""Answers about studies that are over, kept: of tens of thousands of trials each takes a second to compute."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from threading import Lock
from typing import Any, Final, TypeVar

from muster.control.studies.look import Seen

MANY: Final = 1000  # trials: what is computed of fewer takes milliseconds
_KEPT: Final = 32  # answers
_SETTLED: Final = 60.0  # seconds after the end in which last points of curves may still come

T = TypeVar("T")


class EndedAnswers:
    """An answer is that of the study's last change: what was changed since, such as a note of a trial, is in it."""

    def __init__(self) -> None:
        self._known: OrderedDict[Hashable, Any] = OrderedDict()
        self._lock = Lock()

    def of(self, seen: Seen, now: float, what: Hashable, make: Callable[[], T]) -> T:
        ended = seen.study.ended_at
        if ended is None or now < ended + _SETTLED or seen.runs or len(seen.trials) < MANY:
            return make()
        key = (seen.study.id, seen.progress.changes, what)
        with self._lock:
            if key in self._known:
                self._known.move_to_end(key)
                found: T = self._known[key]
                return found
        made = make()
        with self._lock:
            self._known[key] = made
            while len(self._known) > _KEPT:
                self._known.popitem(last=False)
        return made
