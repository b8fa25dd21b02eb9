"""A network of the test's own, with nothing but loopback: for what listens on every interface whatever it is told."""

from __future__ import annotations

import ctypes
import fcntl
import os
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from components import require_root

CLONE_NEWNET = 0x40000000
SIOCSIFFLAGS = 0x8914
IFF_UP_RUNNING = 0x1 | 0x40


def enter() -> int:
    """Moves this thread, and every process and thread that it starts from now on; a descriptor to leave with."""
    require_root("have a network of its own")
    before = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    _check(_libc().unshare(CLONE_NEWNET), "unshare")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        fcntl.ioctl(any_socket, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", IFF_UP_RUNNING))
    return before


def leave(before: int) -> None:
    """Back to where `enter` was called from."""
    _check(_libc().setns(before, CLONE_NEWNET), "setns")
    os.close(before)


@contextmanager
def own_network() -> Iterator[Path]:
    """Gives the namespace as a file, for `nsenter --net=FILE`."""
    before = enter()
    try:
        yield Path(f"/proc/{os.getpid()}/ns/net")
    finally:
        leave(before)


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
