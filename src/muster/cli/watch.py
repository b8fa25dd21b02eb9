"""Follows one job to its end, handles Ctrl-C, and determines the exit code."""

from __future__ import annotations

import math
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Any, Final

from rich.text import Text

from muster.api.jobs import AttemptView
from muster.cli import format
from muster.cli.connect import client
from muster.cli.output import emit, err, hint_of, note, phase_text
from muster.cli.views import JsonView, PlainView, ScreenView, View
from muster.client import Client, Job, LogLine, MusterError
from muster.core.errors import Unavailable
from muster.core.units import InvalidValue, parse_duration

_TICK: Final = 0.1  # seconds between two reads of the inbox
_BURST: Final = 500  # maximum items shown at once
_BELL_AFTER: Final = 10.0  # seconds
_INTERRUPTED: Final = 130  # the exit code that a shell expects after Ctrl-C

# Items from the threads: output, the job, whether the server is there, an error, and None after all output.
Item = LogLine | Job | bool | BaseException | None


def watch(to: Client, job: Job, json: bool) -> int:
    """Shows the job until it has ended or the user leaves it running; returns the exit code of the process."""
    on_screen = sys.stdout.isatty() and not json
    named = job.ranks > 1
    begun = time.monotonic()
    view: View = JsonView() if json else ScreenView(named) if on_screen else PlainView(named)
    with _Interrupts(can_ask=on_screen and sys.stdin.isatty()) as interrupts:
        try:
            last = _follow(to, job, view, interrupts, progress=on_screen)
        except (_Left, Unavailable) as left:
            view.close()
            note(f"{job.id} goes on. ", (f"Come back with `muster logs -f {job.id}`.", "green"))
            if isinstance(left, _Left):
                return left.code
            raise
        finally:
            view.close()
    attempts: list[AttemptView] = []
    with suppress(Unavailable):  # the job has ended, whatever becomes of the server
        attempts = to.attempts(last.id)
    if json:
        emit({"event": "end", "job": last.raw})
    else:
        _say_end(last, attempts)
        if on_screen and time.monotonic() - begun >= _bell_after():
            sys.stdout.write("\a")  # most terminals make it a sound or a notification
            sys.stdout.flush()
    return _exit_code(last, attempts)


class _Left(Exception):
    """The job was left running."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.code = code


class _Interrupts:
    """Records Ctrl-C in place of an exception at an arbitrary point, and asks the user what to do."""

    def __init__(self, can_ask: bool) -> None:
        self._can_ask = can_ask
        self._before: Any = None
        self.seen = False

    def __enter__(self) -> _Interrupts:
        self._before = signal.signal(signal.SIGINT, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        signal.signal(signal.SIGINT, self._before)

    def stop_wanted(self) -> bool:
        """Whether to stop the job, or only to keep watching; raises _Left if the job is to be left running."""
        if not self._can_ask:
            raise _Left(_INTERRUPTED)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            while True:
                answer = _ask("leave it running (l), stop it (s), keep watching (k)? ").strip().lower()[:1]
                if answer == "l":
                    raise _Left(0)
                if answer in ("s", "k"):
                    return answer == "s"
        except (KeyboardInterrupt, EOFError):
            sys.stdout.write("\n")
            raise _Left(_INTERRUPTED) from None
        finally:
            self.seen = False
            signal.signal(signal.SIGINT, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.seen = True


def _ask(question: str) -> str:
    """A line from the terminal. Not `input`: a Ctrl-C just before it starts to read would wait for the next key."""
    sys.stdout.write(question)
    sys.stdout.flush()
    while not select.select([sys.stdin], [], [], _TICK)[0]:
        pass
    line = sys.stdin.readline()
    if not line:
        raise EOFError
    return line


def _follow(to: Client, job: Job, view: View, interrupts: _Interrupts, progress: bool) -> Job:
    """Returns the ended job, after all its output was shown."""
    inbox: SimpleQueue[Item] = SimpleQueue()
    # Separate clients: the loss of a connection is reported once, and `to` stays free for other requests.
    output, beside = client(on_link=inbox.put), client(on_link=lambda back: None)
    threads = [_pump(inbox, lambda: output.watch(job.id), main=True)]
    if progress:
        threads.append(_pump(inbox, lambda: beside.changes(job.id), main=False))
    latest = job
    view.job(job)
    while True:
        lines, others, over = _take(inbox)
        if lines:
            view.lines(lines)
        for item in others:
            if isinstance(item, bool):
                view.link(item)
            else:
                latest = item
                view.job(item)
        if over:
            for thread, used in zip(threads, (output, beside), strict=False):
                thread.join(timeout=1)  # both streams end with the job
                used.close()
            return latest
        if interrupts.seen:
            view.close()
            if interrupts.stop_wanted():
                _stop(to, job)
        view.tick()


def _pump(inbox: SimpleQueue[Item], items: Callable[[], Iterator[LogLine | Job]], main: bool) -> threading.Thread:
    """Copies a stream into the inbox. Only the main stream reports its end or an error."""

    def move() -> None:
        try:
            for item in items():
                if main or (isinstance(item, Job) and not item.final):
                    inbox.put(item)
            if main:
                inbox.put(None)
        except BaseException as error:
            if main:
                inbox.put(error)

    thread = threading.Thread(target=move, daemon=True)
    thread.start()
    return thread


def _take(inbox: SimpleQueue[Item]) -> tuple[list[LogLine], list[Job | bool], bool]:
    """The items of one tick: lines, other items, and whether that was all."""
    lines: list[LogLine] = []
    others: list[Job | bool] = []
    try:
        item = inbox.get(timeout=_TICK)
        while True:
            if isinstance(item, BaseException):
                raise item
            if item is None:
                return lines, others, True
            if isinstance(item, LogLine):
                lines.append(item)
            else:
                others.append(item)
            if others or len(lines) >= _BURST:
                return lines, others, False  # lines that follow a change of phase are shown after it
            item = inbox.get_nowait()
    except Empty:
        return lines, others, False


def _stop(to: Client, job: Job) -> None:
    try:
        to.stop(job.id)
    except MusterError as error:
        note(error.message)


def _bell_after() -> float:
    """Seconds of watching after which the end of the job rings the terminal's bell."""
    text = os.environ.get("MUSTER_BELL") or ""
    try:
        return math.inf if text == "off" else parse_duration(text)
    except InvalidValue:
        return _BELL_AFTER


def _say_end(job: Job, attempts: list[AttemptView]) -> None:
    took = format.lasted(attempts, job.submitted_at, job.started_at, job.finished_at or job.since)
    restarts = f" with {job.attempt - 1} restart{'s' if job.attempt > 2 else ''}" if job.attempt > 1 else ""
    line = Text.assemble((job.id, "bold"), " ", phase_text(job.phase), f"{restarts} {took}")
    if job.phase != "succeeded" and job.reason:
        line.append(f": {job.reason.message}")
        line.append(f"\n  {hint_of(job.id, job.reason.hint) or f'See `muster why {job.id}`.'}", style="green")
    err().print(line)


def _exit_code(job: Job, attempts: list[AttemptView]) -> int:
    """0 when it succeeded, else the exit code of the failed rank, or 1 if there is none."""
    if job.phase == "succeeded":
        return 0
    if job.phase == "failed":
        ends = [worker["exit"] for worker in attempts[-1]["workers"] if worker["exit"]] if attempts else []
        codes = [end["exit_code"] for end in sorted(ends, key=lambda end: float(end["time"])) if end["exit_code"]]
        if codes:
            return int(codes[0])
    return 1
