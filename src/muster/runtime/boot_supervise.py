"""Supervises a launcher as a child process: forwards signals, and starts a recovery launcher when it dies."""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Final, NoReturn

from muster import wire
from muster.runtime import launcher, processes
from muster.runtime.folder import Folder

# The caller of `Keep.run` must block these. A cluster that can only signal all processes of a worker at
# once uses SIGURG, which programs ignore by default.
HELD: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGURG, signal.SIGCHLD)
LOOK: Final = 0.5  # seconds between two checks whether the ranks have ended
FROZEN: Final = 60.0  # seconds after which a launcher that is stopped by a signal is continued
TRIES: Final = 3  # launchers that may be killed before the worker is given up
_LEAVE: Final = (signal.SIGTERM, signal.SIGINT)


class LauncherSupervisor:
    """Supervises the launcher of one worker. `on_exit` is called with the end as soon as it is written,
    which may be long before the server has it."""

    def __init__(self, folder: Path, linger: float, on_exit: Callable[[wire.WorkerExit], None]) -> None:
        self._folder = Folder(folder)
        self._linger = linger
        self._on_exit = on_exit
        self._end: wire.WorkerExit | None = None
        self._leave_at = float("inf")  # monotonic
        self._frozen_at = float("inf")  # monotonic: since when the launcher is stopped by a signal
        self._leaving = False  # this process was told to exit, or has waited long enough

    def run(self, recover: bool) -> wire.WorkerExit | None:
        """Runs until the server has everything, or was away for too long. Returns the end; None if there is none."""
        deaths = 0
        while True:
            status = self._watch(self._start(recover))
            self._look()
            if status == 0 and self._end is not None:
                return self._end
            if status == 0 and not self._leaving:  # another launcher runs there: wait for it
                signal.sigtimedwait((signal.SIGCHLD,), LOOK)
                continue
            deaths += 1
            # A launcher that could not read its folder will fail again.
            if deaths >= TRIES or status == 2 or self._leaving:
                return self._end
            processes.log_line(f"the launcher in {self._folder.path} ended with {status}; another recovers the worker")

    def _start(self, recover: bool) -> int:
        found = processes.stat(os.getpid())
        keeper = (os.getpid(), found.start_ticks if found else 0)
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            _launch(self._folder.path, recover, keeper)
        return pid

    def _watch(self, child: int) -> int:
        """The child's exit status, negative for a signal. Other processes that end here are orphans of the node."""
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == child:
                return os.waitstatus_to_exitcode(status)
            if pid:
                continue
            rang = signal.sigtimedwait(HELD, LOOK)
            if rang is not None and rang.si_signo != signal.SIGCHLD:
                self._leaving = self._leaving or rang.si_signo in _LEAVE
                os.kill(child, signal.SIGUSR1 if rang.si_signo == signal.SIGURG else rang.si_signo)
                os.kill(child, signal.SIGCONT)  # a launcher that is stopped could not obey
            self._wake_frozen(child)
            self._look()
            if time.monotonic() >= self._leave_at:
                # It has no ranks any more and waits for a server; its unreported data is on disk.
                self._leaving = True
                os.kill(child, signal.SIGKILL)

    def _wake_frozen(self, child: int) -> None:
        """Continues a launcher that has been stopped by a signal for long: its ranks may work, or wait for others."""
        found = processes.stat(child)
        now = time.monotonic()
        self._frozen_at = min(self._frozen_at, now) if found is not None and found.state == "T" else float("inf")
        if now - self._frozen_at >= FROZEN:
            processes.log_line(f"the launcher in {self._folder.path} was stopped by a signal; it is continued")
            os.kill(child, signal.SIGCONT)

    def _look(self) -> None:
        if self._end is None and (ended := self._folder.exit()) is not None:
            self._end = ended
            self._leave_at = time.monotonic() + self._linger
            processes.fault("boot_before_told")
            self._on_exit(ended)
            processes.fault("boot_after_told")


def _launch(folder: Path, recover: bool, keeper: tuple[int, int]) -> NoReturn:
    status = 1
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGURG,))  # ignored there, and by the ranks
    try:
        status = launcher.run(folder, recover, keeper)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(status)
