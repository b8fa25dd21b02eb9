"""What exists must not slow down what happens: one more event with nothing in the state, and with 100,000 queued jobs
and 10,000 nodes; and how long a server that was killed takes to be ready again with all of that."""

from __future__ import annotations

import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from _machine import write
from muster.client import Client
from muster.core.errors import MusterError

NODES = 10_000
JOBS = 100_000
BATCH = 2_000
SAMPLES = 300
SMALL = {"name": "more", "run": "true", "workdir": "/tmp", "gpus": 1}


class Server:
    def __init__(self, home: Path, nodes: int) -> None:
        self.home = home
        home.mkdir(parents=True, exist_ok=True)
        settings = f"port = 0\nnodes = {nodes}\naccelerators = 'H100:8'\ncpus = 64\npolicy = 'policy.yaml'\n"
        (home / "config.toml").write_text(settings)
        # Nobody passes the first in line, so that what is queued stays queued.
        (home / "policy.yaml").write_text("defaults: {order: fifo, backfill: none, preempts: false}\n")
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> float:
        """Seconds until it is ready."""
        (self.home / "server.json").unlink(missing_ok=True)
        begun = time.perf_counter()
        env = {**os.environ, "MUSTER_HOME": str(self.home)}
        with (self.home / "server.log").open("ab") as log:
            self.process = subprocess.Popen([sys.executable, "-m", "muster", "up"], env=env, stdout=log, stderr=log)
        while True:
            try:
                if Client(home=self.home).ready()["ready"]:
                    return time.perf_counter() - begun
            except MusterError:
                pass
            time.sleep(0.01)

    def end(self, how: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(how)
        self.process.wait()


def one_more(client: Client) -> float:
    """The median of a single durable submit, in milliseconds."""
    taken = []
    for _ in range(SAMPLES):
        begun = time.perf_counter()
        client.submit(SMALL)
        taken.append(time.perf_counter() - begun)
    return round(statistics.median(taken) * 1000, 3)


def measure(folder: Path, nodes: int, jobs: int) -> dict[str, float]:
    server = Server(folder, nodes)
    cold = server.start()
    client = Client(home=folder)
    # One node is drained and the first job wants them all, so everything behind it waits.
    client.set_health("local-0", "draining", "so that everything waits")
    client.submit({**SMALL, "num_nodes": nodes, "gpus": 8, "name": "head"})
    begun = time.perf_counter()
    for _ in range(jobs // BATCH):
        client.submit_many([{**SMALL, "envs": {"LR": f"{random.random():.6f}"}} for _ in range(BATCH)])
    filled = time.perf_counter() - begun
    event = one_more(client)
    server.end(signal.SIGKILL)
    again = server.start()
    queued = sum(queue["queued"] for queue in Client(home=folder).queues())
    assert queued >= jobs, f"{queued} of {jobs} jobs came back"
    server.end(signal.SIGTERM)
    return {"start_s": round(cold, 2), "fill_s": round(filled, 2), "event_ms": event, "restart_s": round(again, 2)}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        empty = measure(Path(folder) / "empty", 1, 0)
        full = measure(Path(folder) / "full", NODES, JOBS)
    print(
        f"one event: {empty['event_ms']} ms with nothing, {full['event_ms']} ms with {JOBS:,} jobs and {NODES:,} nodes"
    )
    print(f"restart after SIGKILL: {empty['restart_s']} s with nothing, {full['restart_s']} s with all of it")
    write("scale", {"nodes": NODES, "jobs": JOBS, "empty": empty, "full": full})


if __name__ == "__main__":
    main()
