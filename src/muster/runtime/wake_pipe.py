"""Wakes the launcher's loop on signals and calls from other threads, and collects commands."""

from __future__ import annotations

import collections
import json
import os
import select
import signal
from pathlib import Path
from types import FrameType
from typing import Final

from muster import wire
from muster.runtime import processes
from muster.runtime.folder import Folder

_HANDLED: Final = (signal.SIGCHLD, signal.SIGUSR1, signal.SIGTERM, signal.SIGINT)


class WakePipe:
    """A pipe that wakes the loop for signals and other threads; only the main thread may open it."""

    def __init__(self) -> None:
        self.fd = -1
        self.terminated = False  # SIGTERM or SIGINT came: the machine, or somebody on it, wants the launcher to exit
        self._write = -1

    def open(self) -> None:
        self.fd, self._write = os.pipe()
        os.set_blocking(self.fd, False)
        os.set_blocking(self._write, False)
        signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        for signum in (signal.SIGCHLD, signal.SIGUSR1):
            signal.signal(signum, _only_wake)
        for signum in (signal.SIGTERM, signal.SIGINT):
            signal.signal(signum, self._terminate)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, _HANDLED)  # `boot` blocks them until this point

    def wake(self) -> None:
        try:
            os.write(self._write, b"\0")
        except BlockingIOError:
            pass  # full: a wake-up is pending already

    def drain(self) -> None:
        try:
            while os.read(self.fd, 4096):
                pass
        except BlockingIOError:
            pass

    def wait(self, seconds: float) -> None:
        """Waits until it rings, or for this long."""
        select.select([self.fd], [], [], seconds)
        self.drain()

    def _terminate(self, signum: int, frame: FrameType | None) -> None:
        self.terminated = True


class Commands:
    """Commands from the server's replies, from the engine's inbox and from its orders file, each delivered once. Each
    source numbers its own. Several writers may write the orders file, so there any different command is new,
    whatever its number."""

    def __init__(self, folder: Folder, wake_pipe: WakePipe, orders: str | None = None) -> None:
        self._folder = folder
        self._wake_pipe = wake_pipe
        self._orders = Path(orders) if orders else None
        self._ordered: wire.Command | None = None
        self._posted: collections.deque[wire.Command] = collections.deque()
        self._execs: collections.deque[str] = collections.deque()
        self._inbox_seen = 0

    def post(self, command: wire.Command) -> None:
        """Called by the shipper's thread, which makes sure that the command is new."""
        self._posted.append(command)
        self._wake_pipe.wake()

    def post_exec(self, ident: str) -> None:
        """Called by the shipper's thread: an exec session waits, perhaps one that was posted before."""
        self._execs.append(ident)
        self._wake_pipe.wake()

    def take_execs(self) -> list[str]:
        """The exec sessions since the last call."""
        return [self._execs.popleft() for _ in range(len(self._execs))]

    def take(self) -> list[wire.Command]:
        """The commands since the last call."""
        taken = []
        left = _read(self._folder.path / "inbox.json")
        if left and left.id > self._inbox_seen:
            self._inbox_seen = left.id
            taken.append(left)
        if self._orders and (order := _read(self._orders)) and order != self._ordered:
            self._ordered = order
            taken.append(order)
        while self._posted:
            taken.append(self._posted.popleft())
        return taken


def _read(path: Path) -> wire.Command | None:
    """The command in the file, if any."""
    try:
        return wire.Command.from_dict(json.loads(path.read_text()))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError) as error:
        processes.log_line(f"{path.name} makes no sense: {error!r}")
        return None


def _only_wake(signum: int, frame: FrameType | None) -> None:
    """Does nothing. A handler must exist for the wakeup pipe to be written."""
