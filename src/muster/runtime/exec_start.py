"""Starts a process beside the ranks for each exec session that the server asks for, and clears up after it.

The process (`exec_host`) carries all bytes of its session, so that the launcher goes on as if there was none.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from muster import wire
from muster.runtime import processes
from muster.runtime.folder import Folder
from muster.runtime.sandbox import Sandbox

MOST: Final = 16  # sessions of one worker at once
_ROUNDS: Final = 50  # of killing what is left of a session
_KEPT: Final = 1000  # ids of past sessions
_HOST: Final = "import sys; sys.path.append(sys.argv[1]); from muster.runtime.exec_host import main; main()"


class Execs:
    """The exec sessions of one worker. Used by the launcher's main thread."""

    def __init__(
        self, launch: wire.Launch, folder: Folder, secrets: Mapping[str, str], sandbox: Sandbox | None
    ) -> None:
        self._launch, self._folder, self._secrets, self._sandbox = launch, folder, secrets, sandbox
        self._hosts: dict[str, subprocess.Popen[bytes]] = {}
        self._seen: dict[str, None] = {}

    def start(self, ident: str) -> None:
        """Starts a session. It is told more than once, until the process has asked the server for what to run."""
        if ident in self._seen or len(self._hosts) >= MOST:
            return
        self._seen[ident] = None
        if len(self._seen) > _KEPT:
            del self._seen[next(iter(self._seen))]
        namespaces = self._sandbox.namespaces if self._sandbox else ()
        given = {
            "exec": ident,
            "parent": os.getpid(),
            "folder": str(self._folder.path),
            "launch": self._launch.to_json(),
            "secrets": dict(self._secrets),
            "namespaces": namespaces,
        }
        root = str(Path(wire.__file__).resolve().parents[1])
        command = [sys.executable, "-I", "-S", "-c", _HOST, root]
        try:
            with _memory(json.dumps(given).encode()) as told:
                self._hosts[ident] = subprocess.Popen(
                    command, stdin=told, stdout=subprocess.DEVNULL, pass_fds=namespaces, start_new_session=True, cwd="/"
                )
        except OSError as error:
            del self._seen[ident]  # the server tells of it again, until it gives up
            processes.log_line(f"exec session {ident} could not be started: {error}")

    def sweep(self) -> None:
        """Kills what is left of sessions whose process has ended."""
        for ident, host in list(self._hosts.items()):
            found = processes.stat(host.pid)
            if found is None or found.parent != os.getpid():  # the launcher's loop has reaped it
                host.returncode = 0
                del self._hosts[ident]
                for _ in range(_ROUNDS):
                    processes.kill(left := processes.marked(ident, wire.EXEC))
                    if not left:
                        break
                    time.sleep(0.01)


@contextlib.contextmanager
def _memory(content: bytes) -> Iterator[int]:
    """A file that exists in memory only: it holds the attempt's token."""
    fd = os.memfd_create("muster-exec", os.MFD_CLOEXEC)
    try:
        with open(fd, "wb", closefd=False) as file:
            file.write(content)
        os.lseek(fd, 0, os.SEEK_SET)
        yield fd
    finally:
        os.close(fd)
