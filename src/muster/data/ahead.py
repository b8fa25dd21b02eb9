"""Reads the next steps in a thread beside the caller."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import Generic, TypeVar

T = TypeVar("T")


class ReadAhead(Generic[T]):
    """Calls `read` for each step that is asked for and the `ahead` steps after it, in order and each once, until the
    caller jumps elsewhere. The thread takes and hands over `lump` steps at once, since each exchange costs two turns.
    Not for several callers at once."""

    def __init__(self, read: Callable[[int], T], ahead: int, lump: int = 1) -> None:
        self._read, self._ahead, self._lump = read, ahead, lump
        self._next = self._end = 0  # the steps [next, end) have been ordered, and their results are to come
        self._todo: SimpleQueue[range | None] = SimpleQueue()
        self._done: SimpleQueue[list[tuple[int, T | Exception]]] = SimpleQueue()
        self._got: deque[tuple[int, T | Exception]] = deque()
        self._thread: Thread | None = None
        self._finish: Callable[[], object] = lambda: None

    def at(self, step: int) -> T:
        """The result of a step. What `read` raised is raised here, when its step is asked for, and is tried anew if it
        is asked for again."""
        if self._thread is None or not self._next <= step < self._end:
            self._start(step)
        if self._end <= step + 1 + self._ahead - self._lump:
            end = step + 1 + self._ahead
            for begin in range(self._end, end, self._lump):
                self._todo.put(range(begin, min(begin + self._lump, end)))
            self._end = end
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
        """Ends the thread, after the step that it reads. It may be used again."""
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

    def _result(self, step: int) -> T | Exception:
        try:
            return self._read(step)
        except Exception as error:
            return error


def _run(
    reader: weakref.ref[ReadAhead[T]],
    todo: SimpleQueue[range | None],
    done: SimpleQueue[list[tuple[int, T | Exception]]],
    ended: list[bool],
) -> None:
    while (steps := todo.get()) is not None:
        found = []
        for step in steps:
            owner = reader()
            if owner is None or ended:
                return
            found.append((step, owner._result(step)))
            del owner
        done.put(found)


def _end(todo: SimpleQueue[range | None], ended: list[bool]) -> None:
    ended.append(True)
    todo.put(None)
