"""Cuts the TCP connections of a rank or of its launcher, beside them. Sent with `beside`.

A copy of a connection's descriptor is taken from the process that has it (pidfd_getfd), and reset: both ends get what
they would get from a network that has failed. The process keeps running and may connect again.
"""

from __future__ import annotations

import ctypes
import os
import socket
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from muster.drill.beside import ACTIONS, processes, tell_and_wait, the_launcher

PIDFD_GETFD = 438  # the number of the system call, the same on every architecture
EVERY = 0.002  # seconds between two looks for connections that were made meanwhile
FIRST = 5.0  # seconds in which there must be one: a launcher has one at each of its heartbeats
NOWHERE = bytes(16)  # a socket address of the family AF_UNSPEC: to connect there is to disconnect
YAMA = Path("/proc/sys/kernel/yama/ptrace_scope")


def cut(rank: int, launcher: bool = False, seconds: float = 0.0) -> None:
    """Resets the connections that a rank has with others, or that its launcher has with the server; those that are made
    in the `seconds` after it too."""
    pids = [the_launcher()] if launcher else processes(rank)
    if not pids:
        raise ValueError(f"no process of rank {rank} was found")
    libc = ctypes.CDLL(None, use_errno=True)
    until = time.monotonic() + FIRST
    while not (ready := any(True for _ in connections(libc, pids))) and time.monotonic() < until:
        time.sleep(EVERY)
    if not ready:
        raise ValueError(f"{'the launcher' if launcher else f'rank {rank}'} has no TCP connection")
    tell_and_wait(pids=pids)
    until = time.monotonic() + seconds
    while True:
        for connection in connections(libc, pids):
            reset(libc, connection)
        if time.monotonic() >= until:
            return
        time.sleep(EVERY)


def connections(libc: ctypes.CDLL, pids: Sequence[int]) -> Iterator[socket.socket]:
    """Our copies of the TCP connections of these processes; each is closed when the next is asked for."""
    for pid in pids:
        try:
            handle = os.pidfd_open(pid)
            names = os.listdir(f"/proc/{pid}/fd")  # noqa: PTH208
        except OSError:  # it has ended
            continue
        try:
            for name in names:
                if is_socket(pid, name) and (found := copied(libc, handle, int(name))) is not None:
                    with found:
                        if connected(found):
                            yield found
        finally:
            os.close(handle)


def copied(libc: ctypes.CDLL, handle: int, number: int) -> socket.socket | None:
    """None if the process has closed it meanwhile. Raises ValueError where the kernel gives no process another's."""
    made = libc.syscall(PIDFD_GETFD, handle, number, 0)
    if made >= 0:
        return socket.socket(fileno=made)
    error = ctypes.get_errno()
    if error in (1, 13, 38):  # EPERM, EACCES, ENOSYS
        scope = f"; kernel.yama.ptrace_scope is {YAMA.read_text().strip()}, 0 allows it" if YAMA.exists() else ""
        raise ValueError(f"only root may cut the connections of another process here ({os.strerror(error)}{scope})")
    return None


def reset(libc: ctypes.CDLL, connection: socket.socket) -> None:
    if libc.connect(connection.fileno(), NOWHERE, len(NOWHERE)) < 0:  # some kernels refuse it while a thread waits
        try:
            connection.shutdown(socket.SHUT_RDWR)
        except OSError:  # closed meanwhile
            pass


def connected(found: socket.socket) -> bool:
    if found.family not in (socket.AF_INET, socket.AF_INET6) or found.type != socket.SOCK_STREAM:
        return False
    try:
        found.getpeername()
    except OSError:
        return False
    return True


def is_socket(pid: int, name: str) -> bool:
    try:
        return os.readlink(f"/proc/{pid}/fd/{name}").startswith("socket:")  # noqa: PTH115
    except OSError:
        return False


ACTIONS.update(cut=cut)
