"""Submit to the user's first line on a Ray cluster: through Muster, warm, against `ray job submit` on the same cluster.

The job prints one line and exits. Two views of Muster: its command line, which is what `ray job submit` is compared
with, and a program that holds a client. And what a look costs while 1,000 jobs run: one line of the bridge, made from
what the agents told before, so that Ray is asked nothing.
Ray listens on every interface, so both run in a network with only loopback.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from _first_line import CODE, first_line, repeat, through_client
from _machine import write
from muster.client import Client
from muster.engines.ray.gangs import Ledger

REPEATS = 10
RAY_REPEATS = 5
READY_SECONDS = 120.0
RAY = Path(sys.executable).parent / "ray"
ADDRESS = "127.0.0.1:6379"
DASHBOARD = "http://127.0.0.1:8265"


def main() -> None:
    if "--inside" not in sys.argv:
        inside = 'ip link set lo up; exec "$@"'
        namespace = ["unshare", "--net", "--pid", "--fork", "--mount-proc", "--kill-child"]
        os.execvp("unshare", [*namespace, "bash", "-c", inside, "_", sys.executable, __file__, "--inside"])
    with tempfile.TemporaryDirectory(prefix="mr-") as folder, cluster(Path(folder)):
        with muster_server(Path(folder)) as client:
            sdk = repeat(lambda: through_client(client, "/"), REPEATS)
            command = [sys.executable, "-m", "muster", "run", "--", sys.executable, "-c", CODE]
            cli = repeat(lambda: first_line(command), REPEATS)
        submit = [str(RAY), "job", "submit", "--address", DASHBOARD, "--", sys.executable, "-c", CODE]
        ray = repeat(lambda: first_line(submit), RAY_REPEATS)
    result = {
        "muster_client_s": sdk,
        "muster_cli_s": cli,
        "ray_job_submit_s": ray,
        "ray_version": ray_version(),
        "ratio_cli": round(ray / cli, 1),
        "ratio_client": round(ray / sdk, 1),
        "look_at_1000_jobs_ms": look_cost(1000),
    }
    print(f"muster on Ray, client in a program {sdk * 1000:8.1f} ms  ({result['ratio_client']}x faster)")
    print(f"muster run on Ray                  {cli * 1000:8.1f} ms  ({result['ratio_cli']}x faster)")
    print(f"ray job submit                     {ray * 1000:8.1f} ms")
    print(f"one look at 1,000 running jobs     {result['look_at_1000_jobs_ms']:8.1f} ms, no call to Ray")
    write("engine_ray", result)


def look_cost(jobs: int) -> float:
    """Milliseconds to write and to read the one line that a look is, with ten jobs a node."""
    ledger = Ledger()
    base = {"attempt": 1, "worker": 0, "status": "running", "exit": None, "workers": 1, "driver": False}
    for node in range(jobs // 10):
        ledger.record_reports((f"node-{node}", "plain"), [{"job": f"job-{10 * node + i}", **base} for i in range(10)])

    def look() -> float:
        begun = time.perf_counter()
        found = json.loads(json.dumps(ledger.reports()))
        assert len(found) == jobs
        return time.perf_counter() - begun

    return round(1000 * repeat(look, REPEATS), 2)


@contextlib.contextmanager
def cluster(folder: Path) -> Iterator[None]:
    """A head with two CPUs, and its dashboard: `ray job submit` asks that."""
    start = ["start", "--head", "--port=6379", "--node-ip-address=127.0.0.1", "--dashboard-host=127.0.0.1"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "env": environment()}
    options = [*start, "--num-cpus=2", f"--temp-dir={folder / 'ray'}", "--disable-usage-stats"]
    subprocess.run([RAY, *options], check=True, **quiet)  # type: ignore[call-overload]
    try:
        yield
    finally:
        subprocess.run([RAY, "stop", "--force"], check=False, **quiet)  # type: ignore[call-overload]


@contextlib.contextmanager
def muster_server(folder: Path) -> Iterator[Client]:
    """With Ray as its only engine, so that every job goes there."""
    home = folder / "home"
    home.mkdir()
    (home / "config.toml").write_text(f'[engines.ray]\naddress = "{ADDRESS}"\nscratch = "{folder / "scratch"}"\n')
    os.environ["MUSTER_HOME"] = str(home)
    up = [sys.executable, "-m", "muster", "up", "-d", "--port", "0"]
    subprocess.run(up, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        client = Client(home=home)
        deadline = time.monotonic() + READY_SECONDS
        while not client.nodes():
            if time.monotonic() > deadline:
                raise SystemExit("Ray's nodes never came")
            time.sleep(0.2)
        yield client
    finally:
        subprocess.run([sys.executable, "-m", "muster", "down"], check=True, stdout=subprocess.DEVNULL)


def environment() -> Mapping[str, str]:
    return {**os.environ, "RAY_USAGE_STATS_ENABLED": "0"}


def ray_version() -> str:
    done = subprocess.run([RAY, "--version"], capture_output=True, text=True, check=True)
    return done.stdout.split()[-1]


if __name__ == "__main__":
    main()
