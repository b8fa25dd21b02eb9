"""How long it takes from a submission to the line that its job prints: by a command, and by a program with a client."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

from muster.client import Client

CODE = "print('first-line', flush=True)"


def repeat(measure: Callable[[], float], times: int) -> float:
    """The median; the first is thrown away."""
    measure()
    return round(statistics.median(measure() for _ in range(times)), 4)


def first_line(command: list[str]) -> float:
    """Seconds from the start of a command to the line that the job prints."""
    begun = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        seen = []
        for line in process.stdout:
            seen.append(line)
            # Ray echoes the command that it was given, so only a line of its own counts.
            if line.strip().endswith("first-line") and CODE not in line:
                taken = time.perf_counter() - begun
                process.stdout.read()
                return taken
    raise SystemExit(f"{command} never printed the line:\n{''.join(seen)}")


def through_client(client: Client, workdir: str, **spec: Any) -> float:
    """Seconds until a program that holds a client has the line."""
    job_file = {"name": "latency", "run": f'exec {sys.executable} -c "{CODE}"', "workdir": workdir, **spec}
    begun = time.perf_counter()
    job = client.submit(job_file)
    for line in client.logs(job.id, follow=True):
        if "first-line" in line.text:
            taken = time.perf_counter() - begun
            client.wait(job.id)
            return taken
    raise SystemExit("the job ended without its line")
