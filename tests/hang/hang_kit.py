"""Gangs that hang on command: ranks in lockstep over plain sockets, and files that tell one of them to misbehave."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from pathlib import Path
from typing import Any

from live import LiveServer, until

LITTLE: dict[str, float] = {"cpus": 0.01}
# Ranks meet at a barrier in every step, as in a collective: rank 0 waits for a byte of each, then answers each.
LOCKSTEP = r"""
import os, socket, sys, time
from pathlib import Path
from muster import runtime

rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
address, folder = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])), Path(sys.argv[1])
attempt = os.environ["MUSTER_ATTEMPT"]
if rank == 0:
    listener = socket.create_server(address)
    peers = [listener.accept()[0] for _ in range(world - 1)]
else:
    for _ in range(6000):
        try:
            peers = [socket.create_connection(address)]
            break
        except OSError:
            time.sleep(0.01)

def barrier():
    if rank == 0:
        for peer in peers:
            peer.recv(1)
        for peer in peers:
            peer.sendall(b"x")
    else:
        peers[0].sendall(b"x")
        peers[0].recv(1)

(folder / f"pid-{attempt}-{rank}").write_text(str(os.getpid()))
step = 0
while not (world == 1 and runtime.should_stop()):
    step += 1
    if (folder / f"loader-{attempt}-{rank}").exists():
        time.sleep(10_000)
    if step == 60 and "PAUSE" in os.environ:  # an evaluation that says so, and waits
        with runtime.phase("evaluating"):
            time.sleep(float(os.environ["PAUSE"]))
    if step == 90 and "PAUSE" in os.environ:  # a slow step, which works
        end = time.monotonic() + float(os.environ["PAUSE"])
        while time.monotonic() < end:
            sum(range(500_000))
            time.sleep(0.01)
    if "SLOW" in os.environ:  # one rank works longer, and all of them tell how long they wait
        time.sleep(0.5 if rank == int(os.environ["SLOW"]) else 0.1)
        with runtime.phase("waiting"):
            barrier()
    else:
        barrier()
    time.sleep(0.02)
    if step == int(os.environ.get("STEPS", "0")) or (attempt != "1" and step > 3):
        break
    runtime.report(step=step, loss=1.0 / step)
"""

# Ranks of torch.distributed that report nothing. One of them does not come to the last all-reduce; it waits as the
# others do, so that only the number of its collectives tells it apart.
COLLECTIVE = r"""
import threading, torch, torch.distributed as dist

dist.init_process_group("gloo")
for _ in range(20):
    dist.all_reduce(torch.ones(1))
print("all here", flush=True)
if dist.get_rank() == 1:
    threading.Event().wait()
dist.all_reduce(torch.ones(1))
"""


def submit(live: LiveServer, folder: Path, hang: Any, ranks: int = 3, **spec: Any) -> str:
    """A gang in lockstep on one node; its id once it makes steps."""
    folder.mkdir(parents=True, exist_ok=True)
    script = folder / "lockstep.py"
    script.write_text(LOCKSTEP)
    run = f"exec {sys.executable} {script} {shlex.quote(str(folder))}"
    retry = {"max_restarts": 2, "backoff": 0}
    made = live.submit(run, nproc=ranks, resources=LITTLE, hang=hang, retry=retry, **spec)
    job = str(made["id"])
    until(lambda: (live.job(job)["progress"] or {}).get("step", 0) > 20, "steps")
    return job


def pid_of(folder: Path, rank: int, attempt: int = 1) -> int:
    return int((folder / f"pid-{attempt}-{rank}").read_text())


def stop_process(pid: int) -> None:
    os.kill(pid, signal.SIGSTOP)


def hangs(live: LiveServer, job: str) -> list[dict[str, Any]]:
    """The verdicts on a job so far."""
    events = live.get("/v1/events", job=job, limit=1000)["events"]
    return [event["data"] for event in events if event["kind"] == "attempt.hung"]


def verdict(live: LiveServer, job: str) -> dict[str, Any]:
    """The first verdict on a job, once there is one."""
    return until(lambda: hangs(live, job), "a verdict")[0]
