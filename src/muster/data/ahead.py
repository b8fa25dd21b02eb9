"""Reads the next steps in a thread beside the caller."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from threading import Thread
from typing import Generic, TypeVar

T = TypeVar("T")


class ReadAhead(Generic[T]):
    """Calls `read` for the steps that are asked for and those after them, in order and each once, until the caller
    jumps elsewhere. Not for several callers at once."""

    def __init__(self, read: Callable[[range], Sequence[T]]) -> None:
        self._read = read
        self._next = self._end = 0  # the steps [next, end) have been ordered, and their results are to come
        self._todo: SimpleQueue[range | None] = SimpleQueue()
        self._done: SimpleQueue[list[tuple[int, T | Exception]]] = SimpleQueue()
        self._got: deque[tuple[int, T | Exception]] = deque()
        self._thread: Thread | None = None
        self._finish: Callable[[], object] = lambda: None

    def at(self, step: int, ahead: int, lump: int = 1) -> T:
        """The result of a step, and orders the `ahead` steps after it; the thread takes and hands over `lump` steps at
        once, since each exchange costs two turns. What `read` raised is raised here, when its step is asked for, and
        is tried anew if it is asked for again."""
        if self._thread is None or not self._next <= step < self._end:
            self._start(step)
        while self._end + lump <= step + 1 + ahead:
            self._todo.put(range(self._end, self._end + lump))
            self._end += lump
        while True:
            if not self._got:
                self._got.extend(self._done.get())
            found, result = self._got.popleft()
            if found == step:
                break
        self._next = step + 1
        if isinstance(result, Exception):
            self._next = self._end  # so that asking again begins anew
            raise result
        return result

    def close(self) -> None:
        """Ends the thread, after the steps that it reads. It may be used again."""
        self._finish()
        if self._thread is not None:
            self._thread.join()
        self._thread = None

    def _start(self, step: int) -> None:
        """Begins anew at a step, with new queues: results of the old ones are of no use."""
        self.close()
        self._next, self._end = step, step + 1
        todo: SimpleQueue[range | None] = SimpleQueue()
        ended: list[bool] = []
        self._todo, self._done = todo, SimpleQueue()
        self._got.clear()
        # The thread keeps no hold of the reader between steps: one that nobody closed ends when it is collected.
        arguments = (weakref.ref(self), todo, self._done, ended)
        self._thread = Thread(target=_run, args=arguments, name="muster-data", daemon=True)
        self._thread.start()
        todo.put(range(step, step + 1))  # alone: the caller waits for it
        self._finish = weakref.finalize(self, _end, todo, ended)

    def _results(self, steps: range) -> list[tuple[int, T | Exception]]:
        try:
            return list(zip(steps, self._read(steps), strict=True))
        except Exception as error:
            if len(steps) == 1:
                return [(steps[0], error)]
        return [self._results(range(step, step + 1))[0] for step in steps]  # which of them it is


def _run(
    reader: weakref.ref[ReadAhead[T]],
    todo: SimpleQueue[range | None],
    done: SimpleQueue[list[tuple[int, T | Exception]]],
    ended: list[bool],
) -> None:
    while (steps := todo.get()) is not None:
        owner = reader()
        if owner is None or ended:
            return
        done.put(owner._results(steps))
        del owner


def _end(todo: SimpleQueue[range | None], ended: list[bool]) -> None:
    ended.append(True)
    todo.put(None)
