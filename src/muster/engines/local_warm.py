"""The local engine's connection to the warm process, which forks launchers on request."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

ANSWER_SECONDS: Final = 30.0  # the first answer waits for the new process's imports, on a machine that may be busy
LEAVE_SECONDS: Final = 5.0


class WarmProcess:
    """Starts the warm process when first needed, and again when it has died. Not thread-safe."""

    def __init__(self, python: str, env: Mapping[str, str]) -> None:
        self._python = python
        self._env = env
        self._process: subprocess.Popen[bytes] | None = None
        self._unread = b""

    def start(self) -> None:
        if self._process is None or self._process.poll() is not None:
            self.close()
            command = [self._python, "-P", "-m", "muster.runtime.warm"]
            self._unread = b""
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                bufsize=0,
                start_new_session=True,
                env=self._env,
            )

    def ask(self, folder: Path, recover: bool, spare: str = "") -> int:
        """Starts a launcher for this folder and returns its process id. Raises OSError when none could be started.
        `spare`: the key of a launcher that may wait for it."""
        try:
            self.start()
            return self._ask(folder, recover, spare)
        except OSError:  # it died or hangs: try once more with a new one
            self.close()
            self.start()
            return self._ask(folder, recover, "")

    def prepare(self, spare: str, folder: Path) -> None:
        """Starts a launcher that waits for the attempt after the one in this folder."""
        self._tell({"spare": spare, "of": str(folder)})

    def drop(self, spare: str) -> None:
        """Ends a launcher that waits."""
        self._tell({"drop": spare})

    def remove(self, folder: Path) -> None:
        """Has a folder removed that has files of granted users; returns before it is. Raises OSError."""
        self.start()
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"remove": str(folder)}).encode() + b"\n")

    def close(self) -> None:
        """Ends the warm process; the launchers keep running."""
        process, self._process = self._process, None
        if process is None or process.stdin is None or process.stdout is None:
            return
        with contextlib.suppress(OSError):
            process.stdin.close()
        try:
            process.wait(LEAVE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()

    def _tell(self, request: dict[str, Any]) -> None:
        """Sends a request that has no answer. If the process has died, its launchers that waited have ended."""
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.write(json.dumps(request).encode() + b"\n")

    def _ask(self, folder: Path, recover: bool, spare: str) -> int:
        assert self._process is not None
        assert self._process.stdin is not None
        request = {"dir": str(folder), "recover": recover, "spare": spare}
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        until = time.monotonic() + ANSWER_SECONDS
        while True:
            answer = json.loads(self._line(until))
            if answer["dir"] == str(folder):
                return int(answer["pid"])

    def _line(self, until: float) -> bytes:
        assert self._process is not None
        assert self._process.stdout is not None
        out = self._process.stdout.fileno()
        while b"\n" not in self._unread:
            ready, _, _ = select.select([out], [], [], max(0.0, until - time.monotonic()))
            if not ready:
                raise TimeoutError(f"the warm process did not answer within {ANSWER_SECONDS:g} s")
            data = os.read(out, 4096)
            if not data:
                raise ConnectionError("the warm process has ended")
            self._unread += data
        line, _, self._unread = self._unread.partition(b"\n")
        return line
