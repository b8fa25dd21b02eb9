"""Processes of jobs that are over, on this machine."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from muster.drill.scenario import OwnServer

LEFT_SECONDS: Final = 20.0  # for the last processes to leave


def processes_left(
    jobs: Sequence[str], server: OwnServer | None = None, seconds: float = LEFT_SECONDS, saves_in: str = ""
) -> list[int]:
    """Processes of jobs that are over, on this machine. The last ones get some time to leave."""
    until = time.monotonic() + seconds
    while (left := processes_of(jobs, server, saves_in)) and time.monotonic() < until:
        time.sleep(0.25)
    return left


def processes_of(jobs: Sequence[str], server: OwnServer | None = None, saves_in: str = "") -> list[int]:
    """Processes of this machine that were started for one of these jobs. With a `server` of the drill's own, those with
    its folder in their environment alone: every server numbers its jobs, so others have jobs with the same ids. With
    `saves_in`, those that save in this folder."""
    marks, found = {f"MUSTER_JOB={job}".encode() for job in jobs}, []
    place = f"MUSTER_CHECKPOINT_DIR={saves_in}".encode()
    homes = {b""} if server is None else {os.fsencode(server.home), os.fsencode(server.home.resolve())}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                told = (entry / "environ").read_bytes()
            except OSError:  # ended meanwhile, or another user's
                continue
            words = told.split(b"\0")
            if any(home in told for home in homes) and not marks.isdisjoint(words) and (not saves_in or place in words):
                found.append(int(entry.name))
    return found


def named(pid: int) -> str:
    """A process, with the beginning of its command."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    except OSError:
        return f"process {pid}"
    return f"process {pid} ({words[:80]})"
