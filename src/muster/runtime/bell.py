"""What wakes the launcher's loop: signals, other threads, and the commands that they bring."""

from __future__ import annotations

import collections
import os
import select
import signal
from types import FrameType

from muster import wire
from muster.runtime import processes
from muster.runtime.folder import Folder


class Bell:
    """A pipe that rings for signals and for other threads; for the main thread alone to open."""

    def __init__(self) -> None:
        self.fd = -1
        self.terminated = False  # SIGTERM or SIGINT came: the machine, or somebody on it, wants the launcher gone
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

    def ring(self) -> None:
        try:
            os.write(self._write, b"\0")
        except BlockingIOError:
            pass  # full: it rings already

    def drain(self) -> None:
        try:
            while os.read(self.fd, 4096):
                pass
        except BlockingIOError:
            pass

    def wait(self, seconds: float) -> None:
        """Until it rings, or this long."""
        select.select([self.fd], [], [], seconds)
        self.drain()

    def _terminate(self, signum: int, frame: FrameType | None) -> None:
        self.terminated = True


class Commands:
    """Commands from the server's replies and from the engine's inbox, each once. The two number theirs apart."""

    def __init__(self, folder: Folder, bell: Bell) -> None:
        self._folder = folder
        self._bell = bell
        self._posted: collections.deque[wire.Command] = collections.deque()
        self._inbox_seen = 0

    def post(self, command: wire.Command) -> None:
        """From the shipper's thread, which has seen to it that the command is new."""
        self._posted.append(command)
        self._bell.ring()

    def take(self) -> list[wire.Command]:
        """Those that came since the last time."""
        taken = []
        try:
            left = self._folder.inbox()
        except (OSError, ValueError, TypeError) as error:
            processes.complain(f"inbox.json makes no sense: {error!r}")
            left = None
        if left and left.id > self._inbox_seen:
            self._inbox_seen = left.id
            taken.append(left)
        while self._posted:
            taken.append(self._posted.popleft())
        return taken


def _only_wake(signum: int, frame: FrameType | None) -> None:
    """A handler must exist for the wakeup pipe to be written."""
