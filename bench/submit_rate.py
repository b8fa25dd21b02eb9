"""Durable submits through the API, in batches, on SQLite: jobs a second, each on disk when the answer comes."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from _machine import write
from submit_latency import muster_server

JOBS = 20_000
BATCH = 500


def main() -> None:
    with tempfile.TemporaryDirectory() as home, muster_server(Path(home)) as client:
        client.set_health("local-0", "draining", "so that nothing starts while it is measured")
        spec = {"name": "many", "run": "python train.py --lr $LR", "workdir": "/tmp", "envs": {"LR": "3e-4"}}
        client.submit_many([spec] * BATCH)
        begun = time.perf_counter()
        for _ in range(JOBS // BATCH):
            client.submit_many([spec] * BATCH)
        batches = JOBS / (time.perf_counter() - begun)
        begun = time.perf_counter()
        for _ in range(200):
            client.submit(spec)
        singly = 200 / (time.perf_counter() - begun)
    print(f"in batches of {BATCH}: {batches:,.0f} jobs/s;  one by one: {singly:,.0f} jobs/s")
    write("submit_rate", {"jobs": JOBS, "batch": BATCH, "jobs_per_s": round(batches), "single_per_s": round(singly)})


if __name__ == "__main__":
    main()
