"""Submit to the user's first line on a real Slurm: through Muster against plain `sbatch`; and what one look costs.

The job prints one line and exits. Plain `sbatch` writes it to a file that is watched; Muster's comes through its log.
Both run on the same node of the same Slurm, in turns. The look is at 1,000 jobs that hold nodes: one call of `squeue`.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from _first_line import CODE, through_client
from _machine import write
from _slurm import SlurmController, wait_until
from muster.client import Client
from muster.engines.slurm.tools import Tools

REPEATS = 15
RUNNING = 1_000


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, SlurmController(Path(folder) / "slurm", nodes=1) as slurm:
        slurm.join_real_node()
        with muster_server(Path(folder) / "home", slurm) as client:
            plain, muster = [], []
            for _ in range(REPEATS + 1):  # in turns: what else the machine does, it does to both
                plain.append(through_sbatch(slurm, Path(folder)))
                muster.append(through_client(client, "/", pool="main", slurm={"nodelist": "real"}))
        version = slurm.version()
    look = look_cost()
    alone, ours = statistics.median(plain[1:]), statistics.median(muster[1:])
    result = {
        "slurm": version,
        "sbatch_s": round(alone, 4),
        "muster_s": round(ours, 4),
        "ratio": round(ours / alone, 3),
        **look,
    }
    print(f"sbatch alone           {alone * 1000:8.1f} ms")
    print(f"through Muster         {ours * 1000:8.1f} ms  ({result['ratio']}x)")
    print(f"a look, {look['look_jobs']} jobs       {look['look_s'] * 1000:8.1f} ms  ({look['look_calls']} call)")
    write("engine_slurm", result)


def through_sbatch(slurm: SlurmController, folder: Path) -> float:
    out = folder / f"out-{time.monotonic_ns()}"
    script = folder / "job.sh"
    script.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{CODE}"\n')
    begun = time.perf_counter()
    job = slurm._tool("sbatch", "--parsable", "--nodelist=real", f"--output={out}", str(script)).strip()
    wait_until(lambda: out.exists() and "first-line" in out.read_text(), "the line", 120.0, 0.002)
    taken = time.perf_counter() - begun
    wait_until(lambda: job not in slurm.on_real_node(), "the job's end", 60.0)
    return taken


@dataclass(frozen=True, slots=True)
class Counting(Tools):
    calls: list[str] = field(default_factory=list)

    def _run(self, command: Any, *given: Any, **named: Any) -> Any:
        self.calls.append(command[0])
        return Tools._run(self, command, *given, **named)


def look_cost() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder, SlurmController(Path(folder) / "slurm", nodes=RUNNING // 8) as slurm:
        slurm.submit_array(RUNNING, nodes=1, gpus=1)
        wait_until(lambda: len(slurm.running()) == RUNNING, f"{RUNNING} jobs to hold nodes", 300.0, 1.0)
        tools = Counting(slurm._env())
        times = []
        for _ in range(REPEATS):
            begun = time.perf_counter()
            rows = tools.jobs()
            times.append(time.perf_counter() - begun)
            assert len(rows) == RUNNING
    return {
        "look_jobs": RUNNING,
        "look_s": round(statistics.median(times), 4),
        "look_calls": len(tools.calls) // REPEATS,
    }


@contextlib.contextmanager
def muster_server(home: Path, slurm: SlurmController) -> Iterator[Client]:
    home.mkdir()
    (home / "config.toml").write_text(f'[engines.slurm]\npython = "{sys.executable}"\n')
    os.environ.update(slurm._env(), MUSTER_HOME=str(home))
    muster = [sys.executable, "-m", "muster"]
    subprocess.run([*muster, "up", "-d", "--port", "0"], check=True, stdout=subprocess.DEVNULL)
    try:
        client = Client(home=home)
        wait_until(lambda: any(node["pool"] == "main" for node in client.nodes()), "Slurm's nodes", 60.0)
        yield client
    finally:
        subprocess.run([*muster, "down"], check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
