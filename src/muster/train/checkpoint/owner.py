"""Only one run at a time may write checkpoints to a store: a file lock on a disk, a lease in object storage."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol, TypedDict

from muster.runtime import rank_info
from muster.train.errors import CheckpointError, CheckpointHeld

OWNER: Final = ".owner"
LEASE: Final = 60.0  # seconds after the last renewal until another run may take the lease
RENEWALS: Final = 3  # renewals within the lifetime of a lease


class Tag(TypedDict, total=False):
    """A version of an object, as object stores name it: some by the one, some by the other."""

    e_tag: str
    version: str


class Hold(Protocol):
    """Exclusive ownership of a store."""

    def take(self) -> None:
        """Takes the ownership. Raises CheckpointHeld, with the current holder."""

    def check(self) -> None:
        """Raises CheckpointHeld if another run has taken the ownership meanwhile."""

    def release(self) -> None: ...


@dataclass
class FileHold:
    """A locked file that contains the holder's name. The operating system releases the lock when the process ends."""

    folder: Path
    _fd: int = -1

    def take(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        fd = os.open(self.folder / OWNER, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            text = os.read(fd, 4096)
            os.close(fd)
            raise CheckpointHeld(_refusal(str(self.folder), _parse(text), "It ends with that process.")) from None
        except OSError as error:
            os.close(fd)
            raise CheckpointError(
                f"{self.folder}: its file system has no locks ({error.strerror}), so two runs could damage each "
                "other's checkpoints there. Use another one, or object storage."
            ) from error
        os.ftruncate(fd, 0)
        os.pwrite(fd, _identity(), 0)
        self._fd = fd
        os.register_at_fork(after_in_child=self._forget)  # a data loader that outlives the run must not keep it

    def check(self) -> None:
        """Does nothing: a file lock can't be taken by another process."""

    def release(self) -> None:
        if self._fd >= 0:
            os.ftruncate(self._fd, 0)
            fcntl.flock(self._fd, fcntl.LOCK_UN)  # also effective for a child that is being forked now
        self._forget()

    def _forget(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


@dataclass(frozen=True, slots=True)
class Seen:
    """A lease as it is stored."""

    data: bytes
    tag: Tag
    age: float  # seconds since it was last renewed, by the server's own clock


class Register(Protocol):
    """The object store operations that a lease needs."""

    def peek(self, name: str) -> Seen | None: ...

    def swap(self, name: str, data: bytes, tag: Tag | None) -> Tag | None:
        """Writes only if the object has this tag (None: only if there is no object). Returns the new tag, or None."""

    def drop(self, name: str) -> None: ...


@dataclass
class LeaseHold:
    """A lease object that its holder renews. Another run may take a lease that was not renewed during its lifetime."""

    register: Register
    where: str
    seconds: float = LEASE
    _tag: Tag | None = None
    _mine: bytes = b""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _leave: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def take(self) -> None:
        self._mine = _identity()
        seen = self.register.peek(OWNER)
        if seen is not None and seen.age < self.seconds and not _gone(_parse(seen.data)):
            left = self.seconds - seen.age
            hint = f"If it is dead, the place is free in {left:.0f} s."
            raise CheckpointHeld(_refusal(self.where, _parse(seen.data), hint))
        self._tag = self.register.swap(OWNER, self._mine, seen.tag if seen else None)
        if self._tag is None:
            now = self.register.peek(OWNER)
            if now is None or now.data != self._mine:  # otherwise a retry has found its own first try
                raise CheckpointHeld(_refusal(self.where, _parse(now.data if now else b""), "It came first just now."))
            self._tag = now.tag
        self._thread = threading.Thread(target=self._keep, name="muster-lease", daemon=True)
        self._thread.start()

    def check(self) -> None:
        with self._lock:
            self._renew()

    def release(self) -> None:
        self._leave.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        with self._lock, suppress(CheckpointError, OSError):
            if self._tag is not None:
                self._renew()
                self.register.drop(OWNER)
        self._tag = None

    def _keep(self) -> None:
        while not self._leave.wait(self.seconds / RENEWALS):
            with self._lock, suppress(OSError, CheckpointError):  # the next `check` reports it
                self._renew()

    def _renew(self) -> None:
        tag = self.register.swap(OWNER, self._mine, self._tag) if self._tag is not None else None
        if tag is None:
            seen = self.register.peek(OWNER)
            if seen is None or seen.data != self._mine:
                self._tag = None
                who = _parse(seen.data if seen else b"")
                raise CheckpointHeld(_refusal(self.where, who, "This run was out of touch for longer than its lease."))
            tag = seen.tag
        self._tag = tag


def _identity() -> bytes:
    who = {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "space": _process_space(),
        "job": rank_info.job(),
        "attempt": rank_info.attempt(),
        "since": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
        "id": os.urandom(8).hex(),
    }
    return json.dumps(who).encode()


def _parse(text: bytes) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _gone(who: dict[str, Any]) -> bool:
    """Whether the holder certainly no longer exists: an earlier attempt of this job, or a dead process of this host."""
    if who.get("job") is not None and who.get("job") == rank_info.job():
        return int(who.get("attempt", 0)) < rank_info.attempt()
    here = who.get("host") == socket.gethostname() and who.get("space") == _process_space()
    if not here or not isinstance(who.get("pid"), int):
        return False
    return not Path(f"/proc/{who['pid']}").exists()


def _process_space() -> str:
    """An id of the PID namespace: containers with the same host name may have different PID namespaces."""
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return os.urandom(8).hex()


def _refusal(where: str, who: dict[str, Any], hint: str) -> str:
    if not who:
        holder = "another run"
    else:
        job = f"job {who['job']}, attempt {who.get('attempt')}, " if who.get("job") else ""
        holder = f"another run ({job}process {who.get('pid')} on {who.get('host')}, since {who.get('since')})"
    return f"{where} is held by {holder}. {hint} Give this run a folder of its own, or stop the other."
