"""Scans artifacts in a process of their own, which is ended when it takes too long; it reads through the caller.

A scanner that crashes, hangs or is killed has not passed anything: its artifact is told as not scanned.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import BinaryIO, Final, cast

from muster.scan.findings import Finding
from muster.scan.frames import BYTES, receive, send, send_json
from muster.scan.limits import SECONDS

Read = Callable[[int, int], bytes]  # start and stop → the bytes
_PASSED: Final = ("PATH", "TMPDIR", "LANG", "PYTHONPATH")
_SPARE: Final = 5.0  # seconds beyond what the scanner allows itself
AGAIN: Final = "Upload it again; if it is told again, look at it with `muster scan FILE`."


class Scanner:
    """One process, started for the first artifact and again after a crash. For one thread at a time."""

    def __init__(self, seconds: float = SECONDS, command: tuple[str, ...] = ()) -> None:
        self._seconds = seconds
        self._command = command or (sys.executable, "-m", "muster.scan.process")
        self._process: subprocess.Popen[bytes] | None = None

    def scan(self, name: str, size: int, read: Read) -> list[Finding]:
        """Raises what `read` raises; then nothing is known of the artifact."""
        process = self._process = self._process or self._start()
        late = threading.Event()
        timer = threading.Timer(self._seconds + _SPARE, _ending(process, late))
        timer.daemon = True
        timer.start()
        try:
            return self._converse(process, name, size, read)
        except (EOFError, OSError, ValueError, KeyError):
            self.close()
            why = f"took more than {self._seconds + _SPARE:g} seconds" if late.is_set() else "ended while it looked"
            return [Finding("not_scanned", name, f"the scanner {why} at it", AGAIN)]
        except BaseException:
            self.close()
            raise
        finally:
            timer.cancel()

    def close(self) -> None:
        if self._process is not None:
            process, self._process = self._process, None
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    try:
                        pipe.close()
                    except OSError:
                        pass

    def _start(self) -> subprocess.Popen[bytes]:
        environment = {
            name: os.environ[name] for name in ("PATH", "TMPDIR", "LANG", "PYTHONPATH") if name in os.environ
        }
        return subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
        )

    def _converse(self, process: subprocess.Popen[bytes], name: str, size: int, read: Read) -> list[Finding]:
        orders, answers = cast(BinaryIO, process.stdin), cast(BinaryIO, process.stdout)
        send_json(orders, {"name": name[-500:], "size": size, "seconds": self._seconds})
        while True:
            _, raw = receive(answers)
            answer = json.loads(raw)
            if "findings" in answer:
                return [Finding.of(one) for one in answer["findings"]]
            start, count = answer["read"]
            try:
                data = read(start, start + count)
            except (EOFError, OSError, ValueError, KeyError) as error:
                raise RuntimeError(f"{name}: {error}") from error
            send(orders, data, BYTES)


def _ending(process: subprocess.Popen[bytes], late: threading.Event) -> Callable[[], None]:
    def end() -> None:
        late.set()
        process.kill()

    return end
