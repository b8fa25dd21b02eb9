"""A Muster server for a measurement: with a home of its own, on loopback, and with a client of its API."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import httpx

WAIT = 300.0  # seconds for its start


@contextmanager
def serving(home: Path, *options: str) -> Iterator[httpx.Client]:
    """Starts a server, whose home may be there with settings. Stops it at the end; its jobs must be over by then."""
    home.mkdir(exist_ok=True)
    env = {**os.environ, "MUSTER_HOME": str(home)}
    for name in ("MUSTER_URL", "MUSTER_TOKEN"):
        env.pop(name, None)
    command = [sys.executable, "-m", "muster", "up", "--port", "0", *options]
    server = subprocess.Popen(command, env=env, cwd=home, stdout=subprocess.DEVNULL)
    try:
        with closing(client_of(home)) as http:
            yield http
    finally:
        server.terminate()
        server.wait(60)


def client_of(home: Path) -> httpx.Client:
    until = time.monotonic() + WAIT
    while time.monotonic() < until:
        try:
            url = json.loads((home / "server.json").read_text())["urls"][0]
            headers = {"Authorization": f"Bearer {(home / 'token').read_text().strip()}"}
            made = httpx.Client(base_url=url, headers=headers, timeout=60, trust_env=False)
            if made.get("/readyz").status_code == 200:
                return made
        except (OSError, ValueError, httpx.TransportError):
            pass
        time.sleep(0.2)
    raise SystemExit("the server did not start")
