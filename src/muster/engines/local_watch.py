"""Detects at once that a launcher has died or that a worker's folder has a new file."""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import select
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

TELLING: Final = (b"launcher.json", b"exit.json", b"done")

_EVENT: Final = struct.Struct("iIII")  # watch, mask, cookie, length of the name that follows
_IN_MOVED_TO: Final = 0x80
_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_log = logging.getLogger(__name__)


class Watcher:
    """One thread watches all workers and calls `changed`."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._epoll: select.epoll | None = None
        self._inotify = -1
        self._leave: tuple[int, int] = (-1, -1)
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._epoll = select.epoll()
        self._leave = os.pipe()
        self._epoll.register(self._leave[0], select.EPOLLIN)
        self._inotify = _LIBC.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        if self._inotify >= 0:
            self._epoll.register(self._inotify, select.EPOLLIN)
        else:  # the launchers' reports over the network still wake the controller, only later
            _log.warning("inotify is not to be had (%s): ends are noticed by polling", os.strerror(ctypes.get_errno()))
        self._thread = threading.Thread(target=self._run, name="launcher-watcher", daemon=True)
        self._thread.start()

    def watch_folder(self, folder: Path) -> None:
        """Watches a folder until it is removed."""
        if self._inotify >= 0:
            _LIBC.inotify_add_watch(self._inotify, os.fsencode(folder), _IN_MOVED_TO)

    def watch_process(self, pidfd: int) -> None:
        """Watches a process, once, until it ends or the descriptor is closed."""
        if self._epoll is not None:
            with contextlib.suppress(FileExistsError):
                self._epoll.register(pidfd, select.EPOLLIN | select.EPOLLONESHOT)

    def close(self) -> None:
        if self._epoll is None or self._thread is None:
            return
        os.write(self._leave[1], b"\0")
        self._thread.join()
        self._epoll.close()
        self._epoll = None
        for fd in (self._inotify, *self._leave):
            if fd >= 0:
                os.close(fd)

    def _run(self) -> None:
        assert self._epoll is not None
        while True:
            news = False
            for fd, _ in self._epoll.poll():
                if fd == self._leave[0]:
                    return
                news = self._read_events() or news if fd == self._inotify else True
            if news:
                try:
                    self._changed()
                except Exception:
                    _log.exception("the controller could not be woken")

    def _read_events(self) -> bool:
        """Whether one of the relevant files has appeared."""
        try:
            raw = os.read(self._inotify, 64 << 10)
        except BlockingIOError:
            return False
        at, telling = 0, False
        while at < len(raw):
            watch, _, _, length = _EVENT.unpack_from(raw, at)
            name = raw[at + _EVENT.size : at + _EVENT.size + length].rstrip(b"\0")
            telling = (
                telling or name in TELLING or watch < 0
            )  # below 0: events were lost, so anything may have happened
            at += _EVENT.size + length
        return telling
