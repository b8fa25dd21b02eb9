"""For the tests of exec sessions: a job that only waits, the command line in a process, and what runs of a session."""

from __future__ import annotations

import os
import subprocess
import sys
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
