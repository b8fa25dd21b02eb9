"""For tests of exec sessions: a job that only waits, the command line in a process or terminal, and what runs of it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import termios
from pathlib import Path
from typing import Any

from live import LiveServer, until
from muster.client import Client

HELD = "touch up-$RANK; exec sleep 1000"


def client_of(server: LiveServer, token: str | None = None) -> Client:
    return Client(server.url, token=token or server.token)


def held(server: LiveServer, **spec: Any) -> str:
    """A job that runs until it is stopped."""
    job = str(server.submit(HELD, **spec)["id"])
    server.wait(job, "running")

    def all_run() -> bool:
        workers = server.get(f"/v1/jobs/{job}/attempts")["attempts"][-1]["workers"]
        return all(worker["state"] == "running" for worker in workers)

    until(all_run, "every worker to run")
    return job


def muster(server: LiveServer, *words: str, **options: Any) -> subprocess.Popen[bytes]:
    """The command line, as a person or a script calls it."""
    env = {**os.environ, "MUSTER_HOME": str(server.home), "MUSTER_URL": server.url, "MUSTER_TOKEN": server.token}
    return subprocess.Popen([sys.executable, "-m", "muster", *words], env={**env, **options.pop("env", {})}, **options)


class Screen:
    """A terminal of 30 rows and 100 columns with `muster` in it."""

    def __init__(self, server: LiveServer, *words: str) -> None:
        self.fd, inner = os.openpty()
        self.before = termios.tcgetattr(self.fd)
        termios.tcsetwinsize(self.fd, (30, 100))
        env = {"TERM": "dumb", "PS1": "$ "}
        self.process = muster(server, *words, stdin=inner, stdout=inner, stderr=inner, env=env, start_new_session=True)
        os.close(inner)
        os.set_blocking(self.fd, False)
        self.seen = ""

    def shows(self, pattern: str) -> str:
        """Waits until what was shown since the last call has this, and returns it."""

        def found() -> re.Match[str] | None:
            try:
                self.seen += os.read(self.fd, 65536).decode(errors="replace")
            except (BlockingIOError, OSError):  # nothing now; or nobody has the terminal open
                pass
            return re.search(pattern, self.seen)

        try:
            match = until(found, f"{pattern!r}", 60)
        except AssertionError as error:
            raise AssertionError(f"{error}; shown was {self.seen!r}") from None
        self.seen = self.seen[match.end() :]
        return match[0]

    def types(self, text: str) -> None:
        os.write(self.fd, text.encode())

    def resize(self, rows: int, columns: int) -> None:
        termios.tcsetwinsize(self.fd, (rows, columns))
        os.kill(self.process.pid, signal.SIGWINCH)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.fd)


def processes_with(mark: str) -> list[int]:
    """Processes of exec sessions whose environment or command line has this text."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            env, line = (place / "environ").read_bytes(), (place / "cmdline").read_bytes()
        except OSError:
            continue
        if b"MUSTER_EXEC=" in env and mark.encode() in env + line:
            found.append(int(place.name))
    return found


def until_gone(mark: str) -> None:
    until(lambda: not processes_with(mark), f"no process of {mark} to be left")


def ends(server: LiveServer, job: str) -> list[dict[str, Any]]:
    """How sessions of the job ended, by the event log."""
    events = server.get("/v1/events", job=job, kind="exec.ended")["events"]
    return [event["data"] for event in events]
