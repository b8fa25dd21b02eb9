"""Forecasts of large clusters, computed in a process of their own.

They take seconds, and threads of one process compute in turns: every request and the control loop would wait for them.
The process is a program of its own and not a fork, which would hold locks of other threads. It is started when it is
first needed, and ends when nothing was asked for a while, or when the server is gone.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import Any, Final, TypeVar

from muster.core.errors import Unavailable
from muster.core.job import Job
from muster.sched.forecast import Forecast, forecast_snapshot
from muster.sched.offers import Offer, offers
from muster.sched.snapshot import Snapshot

LARGE: Final = 1000  # nodes and jobs; forecasts with fewer take less than half a second, and are computed here
_IDLE: Final = 300.0  # seconds
_TRIES: Final = 2
_NICE: Final = 5  # who asks for other things goes first
_PROGRAM: Final = "from muster.control.forecast_process import main; main"

T = TypeVar("T")


class ForecastProcess:
    """Computes one forecast after the other; whoever asks waits for its own."""

    def __init__(self, large: int = LARGE) -> None:
        self._large = large
        self._turn = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: Connection | None = None
        self._closed = False

    def forecast(self, snapshot: Snapshot, jobs: Sequence[str], **options: Any) -> dict[str, Forecast]:
        return self._compute(snapshot, forecast_snapshot, snapshot, jobs, **options)

    def offers(self, snapshot: Snapshot, job: Job) -> list[Offer]:
        return self._compute(snapshot, offers, snapshot, job)

    def close(self) -> None:
        """What is being computed is refused."""
        self._closed = True
        process = self._process
        if process is not None:
            process.kill()
            process.wait()

    def _compute(self, snapshot: Snapshot, function: Callable[..., T], *args: Any, **options: Any) -> T:
        if len(snapshot.nodes) + len(snapshot.jobs) < self._large:
            return function(*args, **options)
        with self._turn:
            for _ in range(_TRIES):
                try:
                    found, error = self._ask((function, args, options))
                except (EOFError, OSError):  # it is gone: idle for too long, or killed
                    self._drop()
                    continue
                if error is not None:
                    raise error
                result: T = found
                return result
        return function(*args, **options)

    def _ask(self, question: object) -> Any:
        if self._closed:
            raise Unavailable("The server is stopping.", "Ask again when it is back.")
        if self._pipe is None:
            self._start()
        assert self._pipe is not None
        self._pipe.send(question)
        return self._pipe.recv()

    def _start(self) -> None:
        self._pipe, theirs = Pipe()
        try:
            # In a session of its own: Ctrl-C comes to the server alone.
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", f"{_PROGRAM}({theirs.fileno()})"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
            )
        finally:
            theirs.close()

    def _drop(self) -> None:
        if self._pipe is not None:
            self._pipe.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._pipe = self._process = None


def main(descriptor: int) -> None:
    os.nice(_NICE)
    pipe = Connection(descriptor)
    try:
        while pipe.poll(_IDLE):
            function, args, options = pipe.recv()
            answer: tuple[Any, Exception | None]
            try:
                answer = function(*args, **options), None
            except Exception as error:
                answer = None, _sendable(error)
            pipe.send(answer)
    except (EOFError, OSError):
        pass  # the server is gone
    os._exit(0)


def _sendable(error: Exception) -> Exception:
    """The error itself, where it survives the way."""
    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301  (bytes of our own)
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
