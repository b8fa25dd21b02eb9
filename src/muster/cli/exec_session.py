"""Joins this process's standard streams, and its terminal, with a command that runs beside a job's ranks."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import termios
import threading
import tty
from collections.abc import Iterator
from types import FrameType
from typing import Final

from muster.client.blocking import complete
from muster.client.exec_calls import ExecStream, exit_code
from muster.exec_frames import DATA, END, EOF, PAYLOAD, SIGNAL, SIZE, STDERR, WINDOW

BEAT: Final = 10.0  # seconds between two signs of life, while a slow reader of our output holds up the rest
_INTERRUPTS: Final = 3  # Ctrl-C so often ends the session instead of interrupting the command


def window() -> tuple[int, int]:
    """Rows and columns of this terminal; not what COLUMNS and LINES say, which don't follow its window."""
    try:
        size = os.get_terminal_size(sys.stdin.fileno())
    except (OSError, ValueError):  # none, or closed
        size = os.terminal_size((80, 24))
    return size.lines or 24, size.columns or 80


class ExecSession:
    """The main thread writes the command's output; another one sends its input."""

    def __init__(self, stream: ExecStream, terminal: bool) -> None:
        self._stream, self._terminal = stream, terminal
        self._wake, self._tell = os.pipe()
        self._todo: list[tuple[int, bytes]] = []
        self._interrupts = 0
        self._done = False

    def run(self) -> int:
        """The command's exit code. Raises MusterError if the session ended before the command."""
        with self._signals(), _raw() if self._terminal else contextlib.nullcontext():
            threading.Thread(target=self._send, name="input", daemon=True).start()
            try:
                return self._receive()
            except BaseException:
                complete(self._stream.close())
                raise
            finally:
                self._done = True
                os.write(self._tell, b"\0")

    def _receive(self) -> int:
        outputs = {DATA: sys.stdout.buffer, STDERR: sys.stderr.buffer}
        while True:
            for frame in complete(self._stream.receive()):
                if frame.kind in outputs:
                    outputs[frame.kind].write(frame.data)
                    outputs[frame.kind].flush()
                elif frame.kind == END:
                    return exit_code(frame)

    def _send(self) -> None:
        """In its own thread. What fails here fails for the receiver too, which reports it."""
        source = [sys.stdin.fileno()] if sys.stdin is not None else []
        with contextlib.suppress(Exception):
            if not source:
                complete(self._stream.send(EOF))
            while not self._done:
                ready, _, _ = select.select([*source, self._wake], [], [], BEAT)
                if self._wake in ready:
                    os.read(self._wake, 100)
                while self._todo:
                    complete(self._stream.send(*self._todo.pop(0)))
                if source and source[0] in ready:
                    data = os.read(source[0], PAYLOAD)
                    complete(self._stream.send(DATA, data) if data else self._stream.send(EOF))
                    source = source if data else []
                if not ready:
                    complete(self._stream.offer(b""))

    @contextlib.contextmanager
    def _signals(self) -> Iterator[None]:
        handlers = {signal.SIGINT: self._interrupt, signal.SIGWINCH: self._resize, signal.SIGTERM: _leave}
        before = {signum: signal.signal(signum, handler) for signum, handler in handlers.items()}
        try:
            yield
        finally:
            for signum, handler in before.items():
                signal.signal(signum, handler)

    def _interrupt(self, signum: int, frame: FrameType | None) -> None:
        self._interrupts += 1
        if self._interrupts >= _INTERRUPTS:
            raise KeyboardInterrupt
        self._post(SIGNAL, bytes([signal.SIGINT]))

    def _resize(self, signum: int, frame: FrameType | None) -> None:
        if self._terminal:
            self._post(SIZE, WINDOW.pack(*window()))

    def _post(self, kind: int, data: bytes) -> None:
        self._todo.append((kind, data))
        os.write(self._tell, b"\0")


@contextlib.contextmanager
def _raw() -> Iterator[None]:
    """Every key goes to the command, as it is."""
    if not sys.stdin.isatty():
        yield
        return
    fd = sys.stdin.fileno()
    before = termios.tcgetattr(fd)
    tty.setraw(fd, termios.TCSADRAIN)  # what was typed already is kept
    try:
        yield
    finally:
        termios.tcsetattr(fd, termios.TCSADRAIN, before)


def _leave(signum: int, frame: FrameType | None) -> None:
    raise SystemExit(128 + signum)
