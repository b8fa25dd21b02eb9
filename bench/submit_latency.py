"""Submit to the user's first line: Muster against `ray job submit`, both servers warm, on one machine in one run.

The job prints one line and exits. Two views: the command line (what a person waits for) and a program that holds a
client (what a sweep waits for), each less the time that a bare interpreter needs to print the same line.
Ray listens on every interface, so with root both run in a network namespace that has only loopback.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from _first_line import CODE, first_line, repeat, through_client
from _machine import write
from muster.client import Client

REPEATS = 15
RAY_REPEATS = 5
RAY = Path(__file__).parent / ".peers" / "ray"
RAY_VERSION = "2.60.0"

# Both ways take a snapshot of these files, some nine hundred, with every job.
PROJECT = Path(__file__).parents[1]


def main() -> None:
    if "--inside" not in sys.argv and os.geteuid() == 0:
        inside = 'ip link set lo up; exec "$@"'
        namespace = ["unshare", "--net", "--pid", "--fork", "--mount-proc", "--kill-child"]
        os.execvp("unshare", [*namespace, "bash", "-c", inside, "_", sys.executable, __file__, "--inside"])
    bare = repeat(lambda: first_line([sys.executable, "-c", CODE]), REPEATS)
    with tempfile.TemporaryDirectory() as home, muster_server(Path(home)) as client:
        sdk = repeat(lambda: through_client(client, str(PROJECT)), REPEATS)
        words = [sys.executable, "-m", "muster", "run", "--", sys.executable, "-c", CODE]
        cli = repeat(lambda: first_line(words), REPEATS)
    ray = ray_latency()
    result = {
        "bare_interpreter_s": bare,
        "muster_client_s": sdk,
        "muster_client_over_bare_ms": round((sdk - bare) * 1000, 1),
        "muster_cli_s": cli,
        "ray_job_submit_s": ray,
        "ray_version": RAY_VERSION,
        "ratio_cli": round(ray / cli, 1),
        "ratio_client": round(ray / sdk, 1),
    }
    print(f"bare interpreter            {bare * 1000:8.1f} ms")
    print(f"muster, client in a program {sdk * 1000:8.1f} ms  ({result['muster_client_over_bare_ms']} ms over bare)")
    print(f"muster run                  {cli * 1000:8.1f} ms")
    print(f"ray job submit              {ray * 1000:8.1f} ms  ({result['ratio_cli']}x the command line)")
    write("submit_latency", result)


@contextlib.contextmanager
def muster_server(home: Path) -> Iterator[Client]:
    os.environ["MUSTER_HOME"] = str(home)
    up = [sys.executable, "-m", "muster", "up", "-d", "--port", "0"]
    subprocess.run(up, check=True, stdout=subprocess.DEVNULL)
    try:
        yield Client(home=home)
    finally:
        subprocess.run([sys.executable, "-m", "muster", "down"], check=True, stdout=subprocess.DEVNULL)


def ray_latency() -> float:
    """`ray job submit` on a running local Ray, in an environment of its own."""
    if not (RAY / "bin" / "ray").exists():
        subprocess.run([sys.executable, "-m", "venv", str(RAY)], check=True)
        subprocess.run([RAY / "bin" / "pip", "install", "--quiet", f"ray[default]=={RAY_VERSION}"], check=True)
    env = {**os.environ, "RAY_USAGE_STATS_ENABLED": "0", "PATH": f"{RAY / 'bin'}:{os.environ['PATH']}"}
    ray = str(RAY / "bin" / "ray")
    start = [ray, "start", "--head", "--node-ip-address=127.0.0.1", "--dashboard-host=127.0.0.1", "--num-cpus=2"]
    subprocess.run(start, check=True, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    os.environ.update(env)
    address = "http://127.0.0.1:8265"
    submit = [ray, "job", "submit", "--address", address, "--", str(RAY / "bin" / "python"), "-c", CODE]
    try:
        return repeat(lambda: first_line(submit), RAY_REPEATS)
    finally:
        subprocess.run(
            [ray, "stop", "--force"], check=False, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )


if __name__ == "__main__":
    main()
