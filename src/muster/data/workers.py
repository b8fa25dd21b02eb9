"""Worker processes that read and decode micro-batches: in any number, with the same results in the same order.

A result's arrays come in memory that both processes share and that has no name: it is free when the arrays are, however
a process ends. A worker that is killed is replaced, and what it had still to do is done again by the new one.
"""

from __future__ import annotations

import gc
import mmap
import os
import pickle
import signal
import sys
import tempfile
import warnings
import weakref
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from multiprocessing.reduction import recv_handle, send_handle
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from muster.data.errors import DataError

T = TypeVar("T")
Task = tuple[int, int]  # step, micro-batch
_TRIES: Final = 3  # workers that may be killed at one micro-batch
_SMALL: Final = 64 << 10  # bytes that are sent through the pipe
_ALIGN: Final = 64  # bytes
_LOOK: Final = 2.0  # seconds until an idle worker looks whether its parent is still there


@dataclass(eq=False, slots=True)
class _Worker:
    pid: int
    channel: Connection
    tasks: list[Task] = field(default_factory=list)  # in the order in which it does them


class Workers(Generic[T]):
    """Calls `read(step, micro-batch)` in forked processes, for the step that is asked for and those after it."""

    def __init__(self, read: Callable[[int, int], T], micros: int, count: int, ahead: int) -> None:
        self._read, self._micros, self._count = read, micros, count
        self._ahead = max(ahead, -(-count // micros))  # no worker is idle while the caller works on a step
        self._workers: list[_Worker] = []
        self._results: dict[Task, T | DataError] = {}
        self._kills: Counter[Task] = Counter()
        self._finish = weakref.finalize(self, _end, self._workers, os.getpid())

    def at(self, step: int) -> list[T]:
        """The results of a step, by micro-batch. An error is raised when its step is asked for, and again with it."""
        wanted = [(each, micro) for each in range(step, step + self._ahead + 1) for micro in range(self._micros)]
        for old in self._results.keys() - set(wanted):
            del self._results[old]
        while len(self._workers) < self._count:
            self._workers.append(self._fork())
        begun = {task for worker in self._workers for task in worker.tasks} | self._results.keys()
        for task in wanted:
            if task not in begun:
                self._give(task)
        mine = wanted[: self._micros]
        while not all(task in self._results for task in mine):
            self._collect(set(wanted))
        found = [self._results.pop(task) for task in mine]
        for result in found:
            if isinstance(result, DataError):
                raise result
        return [result for result in found if not isinstance(result, DataError)]

    def close(self) -> None:
        """Ends the processes. They hold nothing that would have to be saved."""
        self._finish()

    def _give(self, task: Task) -> None:
        self._hand(min(self._workers, key=lambda each: len(each.tasks)), task)

    def _hand(self, worker: _Worker, task: Task) -> None:
        worker.tasks.append(task)
        with suppress(OSError):  # it was killed: `_collect` finds that out
            worker.channel.send(task)

    def _collect(self, wanted: set[Task]) -> None:
        """Takes at least one result, or replaces a worker that has ended."""
        by_channel = {worker.channel: worker for worker in self._workers}
        for channel in wait(list(by_channel)):
            assert isinstance(channel, Connection)
            worker = by_channel[channel]
            try:
                result = _received(channel)
            except (EOFError, OSError):
                self._replace(worker)
                continue
            task = worker.tasks.pop(0)
            self._kills.pop(task, None)
            if task in wanted:
                self._results[task] = result

    def _replace(self, worker: _Worker) -> None:
        """Puts a new worker in the place of one that has ended, with its tasks but one that has ended too many."""
        self._workers.remove(worker)
        worker.channel.close()
        ended = _reaped(worker.pid)
        if worker.tasks:
            task = worker.tasks[0]
            self._kills[task] += 1
            if self._kills[task] == _TRIES:
                worker.tasks.pop(0)
                del self._kills[task]
                self._results[task] = DataError(
                    f"step {task[0]}, micro-batch {task[1]}: the worker process {worker.pid} {ended}, and at the "
                    f"same samples the {_TRIES - 1} before it had ended. If the machine's memory was full, use fewer "
                    "workers or smaller micro-batches; else a sample may crash its decoder: `workers=0` decodes here."
                )
        new = self._fork()
        self._workers.append(new)
        for task in worker.tasks:
            self._hand(new, task)

    def _fork(self) -> _Worker:
        mine, its = Pipe()
        parent = os.getpid()
        with warnings.catch_warnings():  # Python 3.12 warns of threads that hold locks: workers take none of theirs
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if pid == 0:
            try:
                for channel in (mine, *(worker.channel for worker in self._workers)):
                    channel.close()
                _work(its, self._read, parent)
            finally:
                os._exit(1)
        its.close()
        return _Worker(pid, mine)


def _work(channel: Connection, read: Callable[[int, int], Any], parent: int) -> None:
    """The life of a worker."""
    for number in (signal.SIGINT, signal.SIGTERM):  # they are for the parent, which may have steps to finish
        signal.signal(number, signal.SIG_IGN)
    gc.freeze()  # what is inherited stays in pages that are shared
    torch = sys.modules.get("torch")
    if torch is not None:  # a decoder may use it; the threads of the parent don't exist here
        torch.set_num_threads(1)
    while True:
        while not channel.poll(_LOOK):
            if os.getppid() != parent:
                return
        try:
            step, micro = channel.recv()
        except (EOFError, OSError):
            return
        try:
            result = read(step, micro)
        except Exception as error:
            kind = "" if isinstance(error, DataError) else f"{type(error).__name__}: "
            result = DataError(f"{kind}{error} (in the worker process {os.getpid()})")
        _send(channel, result, (step, micro))


def _send(channel: Connection, result: Any, task: Task) -> None:
    """Sends a result: its arrays in shared memory, unless they are small."""
    buffers: list[pickle.PickleBuffer] = []
    try:
        data = pickle.dumps(result, protocol=5, buffer_callback=buffers.append)
        views = [buffer.raw() for buffer in buffers]
        starts, size = [], 0
        for view in views:
            starts.append((size, view.nbytes))
            size += -(-view.nbytes // _ALIGN) * _ALIGN
        if size <= _SMALL:
            channel.send((pickle.dumps(result, protocol=5), None, 0))
            return
        shared = _memory()
    except Exception as error:
        text = f"step {task[0]}, micro-batch {task[1]}: its batch can't be sent by the worker process {os.getpid()}"
        channel.send((pickle.dumps(DataError(f"{text}: {type(error).__name__}: {error}")), None, 0))
        return
    try:
        os.ftruncate(shared, size)
        for view, (start, _) in zip(views, starts, strict=True):
            done = 0
            while done < view.nbytes:
                done += os.pwrite(shared, view[done:], start + done)
        channel.send((data, starts, size))
        send_handle(channel, shared, os.getppid())
    finally:
        os.close(shared)


def _received(channel: Connection) -> Any:
    data, starts, size = channel.recv()
    if starts is None:
        return pickle.loads(data)  # noqa: S301 - from our own child
    shared = recv_handle(channel)
    try:
        memory = memoryview(mmap.mmap(shared, size))
    finally:
        os.close(shared)
    return pickle.loads(data, buffers=[memory[start : start + length] for start, length in starts])  # noqa: S301


def _memory() -> int:
    """A new file in memory without a name; on systems without such, a temporary one."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("muster-batch")
    fd, name = tempfile.mkstemp()
    Path(name).unlink()
    return fd


def _end(workers: list[_Worker], owner: int) -> None:
    """Ends all workers, if this process is the one that made them."""
    while workers and os.getpid() == owner:
        worker = workers.pop()
        worker.channel.close()
        with suppress(ProcessLookupError):
            os.kill(worker.pid, signal.SIGKILL)
        _reaped(worker.pid)


def _reaped(pid: int) -> str:
    """How a process ended."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)  # one that only closed its channel would be waited for
    try:
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    except ChildProcessError:
        return "ended"  # and was waited for by somebody else
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
