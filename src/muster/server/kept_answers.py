"""Answers that take seconds, kept for a while after they were computed, and computed once for all who ask meanwhile."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

T = TypeVar("T")
WORTH: Final = 1.0  # seconds: what takes less is computed for everybody who asks
TIMES: Final = 10.0  # it is kept for so many times as long as it took
LONGEST: Final = 600.0  # seconds
MOST: Final = 64  # answers


@dataclass(slots=True)
class _Entry(Generic[T]):
    answer: Future[T]
    until: float  # of the steady clock; inf while it is computed


@dataclass(slots=True)
class KeptAnswers(Generic[T]):
    """What was cheap when it was last computed is computed anew for each, so that it is never old."""

    clock: Callable[[], float] = time.monotonic
    _entries: dict[Hashable, _Entry[T]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        with self._lock:
            known = self._entries.get(key)
            if known is not None and self.clock() < known.until:
                answer, mine = known.answer, False
            else:
                answer, mine = Future[T](), True
                if known is not None:  # it was expensive before: those who ask from now on wait for this one
                    known.answer, known.until = answer, float("inf")
        return self._make(key, answer, make) if mine else answer.result()

    def _make(self, key: Hashable, answer: Future[T], make: Callable[[], T]) -> T:
        began = self.clock()
        try:
            answer.set_result(make())
        except BaseException as error:
            answer.set_exception(error)
        took = self.clock() - began
        with self._lock:
            self._entries.pop(key, None)
            if answer.exception() is None and took >= WORTH:
                self._entries[key] = _Entry(answer, self.clock() + min(TIMES * took, LONGEST))
                for old in list(self._entries)[:-MOST]:
                    del self._entries[old]
        return answer.result()
