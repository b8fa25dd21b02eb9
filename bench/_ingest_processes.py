"""Processes of a measurement: what they cost together, when a server answers, and how they end."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

_TICK = os.sysconf("SC_CLK_TCK")


def processor_time(root: int) -> float:
    """Seconds that a process and all its descendants have used, those that have ended among them."""
    parents: dict[int, tuple[int, float]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(entry.name)] = int(fields[1]), sum(map(int, fields[11:15])) / _TICK
    return sum(used for pid, (_, used) in parents.items() if _descends(pid, root, parents))


def rates(made: dict[str, Any], durable_s: float, cpu_s: float) -> dict[str, Any]:
    """What a process measured (see `_ingest_peer.py`), by the time until all was durable, and all processor time."""
    return {
        "points": made["points"],
        "points_per_s_durable": round(made["points"] / durable_s),
        "points_per_s_accepted": round(made["points"] / made["loop_s"]),
        "cpu_us_per_point": round(1e6 * cpu_s / made["points"], 2),
        "latency_us": made["latency_us"],
    }


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def wait_for_url(url: str, patience: float) -> None:
    deadline = time.monotonic() + patience
    while True:
        try:
            urllib.request.urlopen(url, timeout=5).close()
            return
        except (urllib.error.URLError, OSError):
            if time.monotonic() > deadline:
                raise SystemExit(f"{url} does not answer") from None
            time.sleep(0.1)


def stopped(server: subprocess.Popen[bytes]) -> None:
    """Ends a server that was started with a session of its own, and all that is in it."""
    if server.poll() is not None:
        return
    os.killpg(server.pid, signal.SIGTERM)
    try:
        server.wait(30)
    except subprocess.TimeoutExpired:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def _descends(pid: int, root: int, parents: dict[int, tuple[int, float]]) -> bool:
    while pid in parents and pid != root:
        pid = parents[pid][0]
    return pid == root
