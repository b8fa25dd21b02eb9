"""One worker of the local engine: its folder, its launcher process, and the status that follows from them."""

from __future__ import annotations

import json
import os
import select
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from muster.engines.base import WorkerReport, WorkerStatus
from muster.wire import Command, Launch, WorkerExit

RETRY_FIRST: Final = 1.0  # seconds before a launcher that died is started again, doubled each time
RETRY_LAST: Final = 60.0
LOST_TRIES: Final = 3  # launchers that failed to recover a worker before it is reported as lost


@dataclass(slots=True)
class LocalWorker:
    """A worker's state. `refresh` reads it from the folder; it is stored nowhere else."""

    job: str
    attempt: int
    number: int
    folder: Path
    watch: Callable[[int], None]  # called with the pidfd of every process that becomes its launcher
    port: int = 0  # the gang's MASTER_PORT
    wanted: bool = False  # the controller asked this engine to start it
    exit: WorkerExit | None = None
    started: bool = False  # launcher.json exists: ranks may have been started
    done: bool = False  # the server has received everything
    rebooted: bool = False  # its launcher ran before the machine's last boot
    pid: int = 0  # of the process that is, or will be, its launcher
    pidfd: int = -1
    tries: int = 0
    next_try: float = 0.0  # monotonic
    kill_by: float = float("inf")  # monotonic: the end of its grace period

    @property
    def alive(self) -> bool:
        return self.pidfd >= 0

    @property
    def settled(self) -> bool:
        """Whether nothing about it will change any more."""
        return self.done and self.exit is not None and not self.alive

    @property
    def removable(self) -> bool:
        """Whether no launcher runs and nothing is left to report."""
        return not self.alive and (self.done or not (self.started or self.exit))

    def report(self) -> WorkerReport:
        status: WorkerStatus = "starting"
        if self.exit:
            status = "ended"
        elif self.started:
            # The worker is not gone until a recovery launcher has killed the remaining ranks.
            gone = not self.alive and (self.rebooted or self.tries >= LOST_TRIES)
            status = "lost" if gone else "running"
        frozen = status == "running" and self.alive and is_stopped(self.pid)
        return WorkerReport(self.job, self.attempt, self.number, status, self.exit, frozen=frozen)

    def refresh(self) -> None:
        if self.alive and _readable(self.pidfd):
            self.let_go()
        if not self.alive and (identity := _read_json(self.folder / "launcher.json")):
            self.started = True
            self.rebooted = identity["boot_id"] != boot_id()
            if not self.rebooted:
                self._hold(identity["pid"], _open_process(identity["pid"], identity["start_ticks"]))
        elif not self.started:
            self.started = (self.folder / "launcher.json").exists()
        if self.exit is None and (raw := _read_json(self.folder / "exit.json")):
            self.exit = WorkerExit.from_dict(raw)
        self.done = self.done or (self.folder / "done").exists()

    def adopt(self, pid: int) -> None:
        """Takes over a process that was just started as its launcher."""
        self.let_go()
        with suppress(ProcessLookupError, FileNotFoundError):
            self._hold(pid, os.pidfd_open(pid))

    def needs_launcher(self, now: float) -> bool:
        if self.alive or self.settled or now < self.next_try:
            return False
        return self.started or self.exit is not None or self.wanted

    def count_try(self, now: float) -> None:
        self.next_try = now + min(RETRY_FIRST * 2**self.tries, RETRY_LAST)
        self.tries += 1

    def order(self, grace: float, reason: str) -> None:
        """Writes a stop command to the inbox and signals the launcher, if one is there to read it."""
        last = _read_json(self.folder / "inbox.json")
        command = Command(last["id"] + 1 if last else 1, "stop", reason, grace)
        write_new(self.folder / "inbox.json", json.dumps(asdict(command)), replace=True)
        self.refresh()
        identity = _read_json(self.folder / "launcher.json")
        # A launcher that has not written launcher.json yet can't take a signal; it reads the inbox after writing it.
        if self.alive and identity and identity["pid"] == self.pid:
            with suppress(ProcessLookupError, FileNotFoundError):
                signal.pidfd_send_signal(self.pidfd, signal.SIGUSR1)

    def kill_frozen(self, now: float) -> None:
        """Kills a launcher that can't obey because it is stopped. The next one recovers the worker."""
        if self.alive and self.exit is None and now >= self.kill_by and is_stopped(self.pid):
            with suppress(ProcessLookupError, FileNotFoundError):
                signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)

    def let_go(self) -> None:
        if self.pidfd >= 0:
            os.close(self.pidfd)
            self.pidfd = -1

    def _hold(self, pid: int, pidfd: int) -> None:
        self.pid, self.pidfd = pid, pidfd
        if pidfd >= 0:
            self.watch(pidfd)


def write_new(path: Path, text: str, replace: bool = False) -> bool:
    """Writes a complete file that only its owner may read.
    Returns False if the file exists and `replace` is not set."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    fd = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(fd, "w") as file:
            file.write(text)
        if replace:
            draft.replace(path)
            return True
        path.hardlink_to(draft)  # unlike a rename, this fails if another process created the file first
        return True
    except FileExistsError:
        return False
    finally:
        draft.unlink(missing_ok=True)


def read_launch(folder: Path) -> Launch:
    return Launch.from_json((folder / "launch.json").read_text())


def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _open_process(pid: int, start_ticks: int) -> int:
    """A pidfd of exactly this process; -1 when it has ended, even if its process id is in use again."""
    try:
        pidfd = os.pidfd_open(pid)
    except (ProcessLookupError, FileNotFoundError):  # newer kernels raise the second for a process being reaped
        return -1
    # Check while the pidfd is held, so that the process id can't be reused in between.
    if _readable(pidfd) or _start_ticks(pid) != start_ticks:
        os.close(pidfd)
        return -1
    return pidfd


def _start_ticks(pid: int) -> int:
    try:
        raw = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return -1
    return int(raw[raw.rindex(b")") + 2 :].split()[19])


def is_stopped(pid: int) -> bool:
    """Whether the process is stopped by a signal."""
    try:
        raw = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return False
    return raw[raw.rindex(b")") + 2 :][:1] == b"T"


def _readable(pidfd: int) -> bool:
    """Whether the process has ended: a pidfd becomes readable then."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(0))


def _read_json(path: Path) -> dict[str, Any]:
    """The file's object; empty when the file does not exist or was truncated by a power failure."""
    try:
        raw = json.loads(path.read_text())
    except (FileNotFoundError, ValueError):
        return {}
    return raw if isinstance(raw, dict) else {}
