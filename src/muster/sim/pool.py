"""Replays on several cores: each in a process of its own, ended with all others as soon as they are not needed."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from types import TracebackType
from typing import Final, Self

from muster.core.errors import MusterError
from muster.sim.answers import Answer, Ask, Packed, answer, unpack
from muster.sim.model import TraceJob
from muster.sim.partial import Partial
from muster.sim.worker import Message
from muster.sim.worlds import Worlds

OnPartial = Callable[[Ask, Partial], None]
OnDone = Callable[[Ask, Answer], None]
ATTEMPTS: Final = 2  # of one replay whose process is killed
_PROGRAM: Final = "from muster.sim.worker import main; main"
_DEATH: Final = 10.0  # seconds to wait for the end of a killed process


class ReplayLost(MusterError):
    """The process of a replay was killed, and that of the second attempt, too."""

    code = "replay_lost"


@dataclass(slots=True)
class _Worker:
    process: subprocess.Popen[bytes]
    pipe: Connection
    ask: int = -1  # the number of what it is busy with
    knows: bool = False  # it has the trace

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(_DEATH)
        self.pipe.close()


class Pool:
    """Runs replays of one trace. With one process they run here, one after the other.

    A context manager: leaving it, by an error or by Ctrl-C as well, kills what still runs.
    """

    def __init__(
        self,
        trace: Sequence[TraceJob],
        worlds: Worlds | None = None,
        processes: int = 1,
        on_partial: OnPartial | None = None,
        on_done: OnDone | None = None,
    ) -> None:
        self._trace, self._worlds, self.processes = trace, worlds, processes
        self._on_partial, self._on_done = on_partial, on_done
        self._workers: list[_Worker] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._kill_all()

    def run(self, asks: Iterable[Ask]) -> Generator[tuple[Ask, Answer]]:
        """What was asked and its answer, in the order of asking. What is asked is taken only when it can begin.

        Closing the generator ends the replays that it had begun.
        """
        if self.processes <= 1:
            for ask in asks:
                yield ask, self._done(ask, answer(self._trace, self._worlds, ask, self._teller(ask)))
            return
        try:
            yield from self._on_workers(iter(asks))
        finally:
            self._kill_busy()

    def _on_workers(self, source: Iterator[Ask]) -> Generator[tuple[Ask, Answer]]:
        more = True
        begun: list[Ask] = []
        attempts: list[int] = []
        again: deque[int] = deque()
        found: dict[int, Answer] = {}
        given = 0
        while True:
            while idle := self._idle(again or more):
                if not again:
                    if (ask := next(source, None)) is None:
                        more = False
                        break
                    again.append(len(begun))
                    begun.append(ask)
                    attempts.append(0)
                self._begin(idle, again.popleft(), begun, attempts)
            busy = {worker.pipe: worker for worker in self._workers if worker.ask >= 0}
            if not busy:
                return
            for pipe in wait(list(busy)):
                worker = busy[pipe]  # type: ignore[index]
                number = worker.ask
                try:
                    message: Message = worker.pipe.recv()
                except (EOFError, OSError):
                    self._drop(worker, begun[number], attempts[number])
                    again.append(number)
                    continue
                if isinstance(message.body, Partial):
                    if self._on_partial is not None:
                        self._on_partial(begun[number], message.body)
                    continue
                worker.ask = -1
                if isinstance(message.body, Exception):
                    raise message.body
                assert isinstance(message.body, Packed)
                ask = begun[number]
                found[number] = self._done(ask, unpack(message.body, self._trace, self._worlds, ask))
            while given in found:
                yield begun[given], found.pop(given)
                given += 1

    def _done(self, ask: Ask, found: Answer) -> Answer:
        if self._on_done is not None:
            self._on_done(ask, found)
        return found

    def _teller(self, ask: Ask) -> Callable[[Partial], None] | None:
        tell = self._on_partial
        return None if tell is None else lambda partial: tell(ask, partial)

    def _idle(self, wanted: object) -> _Worker | None:
        """A worker that has nothing to do; started if there may be one more, and only if it is wanted."""
        if not wanted:
            return None
        free = next((worker for worker in self._workers if worker.ask < 0), None)
        if free is None and len(self._workers) < self.processes:
            free = self._start()
        return free

    def _start(self) -> _Worker:
        ours, theirs = Pipe()
        try:
            # In a session of its own: Ctrl-C comes to us alone, and we end all of them.
            process = subprocess.Popen(
                [sys.executable, "-P", "-c", f"{_PROGRAM}({theirs.fileno()})"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        finally:
            theirs.close()
        worker = _Worker(process, ours)
        self._workers.append(worker)
        return worker

    def _begin(self, worker: _Worker, number: int, begun: Sequence[Ask], attempts: list[int]) -> None:
        attempts[number] += 1
        worker.ask = number
        with suppress(OSError):  # a process that is gone is met by `recv`
            if not worker.knows:
                worker.pipe.send((self._trace, self._worlds))
                worker.knows = True
            worker.pipe.send(begun[number])

    def _drop(self, worker: _Worker, ask: Ask, attempts: int) -> None:
        """The process is gone. Raises ReplayLost when it was the last attempt."""
        worker.kill()
        self._workers.remove(worker)
        if attempts >= ATTEMPTS:
            code = worker.process.returncode
            how = f"by {signal.Signals(-code).name}" if code and code < 0 else f"with exit code {code}"
            raise ReplayLost(
                f"The process that replayed {ask.setup.name} ended {how}, twice.",
                "If memory ran out, replay with --processes 1, or fewer jobs with --first.",
            )

    def _kill_busy(self) -> None:
        for worker in [worker for worker in self._workers if worker.ask >= 0]:
            worker.kill()
            self._workers.remove(worker)

    def _kill_all(self) -> None:
        for worker in self._workers:
            worker.kill()
        self._workers.clear()
