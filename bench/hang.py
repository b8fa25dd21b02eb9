"""Hangs: ten drills with real gangs on this machine, and ten thousand ordinary steps through the judge alone.

A drill is right if the verdict names the rank that was made to hang; the time counts from the fault to the verdict and
is compared with max(30 s, 3 x the p99 of the run's steps). The ordinary run has long evaluations, compilations and
saves between its steps, announced and not; every verdict on it is a false alarm.
"""

from __future__ import annotations

import argparse
import os
import random
import shlex
import signal
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from _machine import write
from _server import serving
from muster.monitor.activity import GangActivity
from muster.monitor.hang import FACTOR, judge
from muster.wire import Pulse

RANKS = 4
BEAT = 2.0  # seconds between pulses
SEED = 7
WAIT = 240.0  # seconds for a verdict
# Ranks that meet in every step over plain sockets; a file tells one to sleep in its loader.
PROGRAM = r"""
import os, socket, sys, time
from pathlib import Path
from muster import runtime
rank, world, folder = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), Path(sys.argv[1])
address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if rank == 0:
    listener = socket.create_server(address)
    peers = [listener.accept()[0] for _ in range(world - 1)]
else:
    while True:
        try:
            peers = [socket.create_connection(address)]
            break
        except OSError:
            time.sleep(0.05)
(folder / f"pid-{rank}").write_text(str(os.getpid()))
for step in range(1_000_000):
    if (folder / f"loader-{rank}").exists():
        time.sleep(100_000)
    if rank == 0:
        for peer in peers:
            peer.recv(1)
        for peer in peers:
            peer.sendall(b"x")
    else:
        peers[0].sendall(b"x")
        peers[0].recv(1)
    time.sleep(0.1)
    runtime.report(step=step, loss=1.0)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--drills", type=int, default=10)
    parser.add_argument("--steps", type=int, default=10_000)
    given = parser.parse_args()
    ordinary = run_ordinary(given.steps)
    drills = run_drills(given.drills) if given.drills else []
    right, times = sum(one["right"] for one in drills), sorted(one["seconds"] for one in drills)
    write("hang", {
        "ordinary": ordinary, "drills": len(drills), "right_rank": right,
        "seconds_to_verdict": {"median": times[len(times) // 2], "longest": times[-1]} if times else None,
        "in_time": sum(one["seconds"] <= max(30.0, 3 / FACTOR * one["limit"]) for one in drills), "each": drills,
    })  # fmt: skip
    sys.exit(1 if ordinary["false_alarms"] or right < 0.9 * len(drills) else 0)


# --- ordinary work, in virtual time -----------------------------------------------------------------------------------
@dataclass
class Ordinary:
    gang: GangActivity = field(default_factory=GangActivity)
    now: float = 0.0
    beat: float = 0.0
    alarms: int = 0
    cpu: dict[int, float] = field(default_factory=lambda: dict.fromkeys(range(RANKS), 0.0))

    def go(self, seconds: float, busy: tuple[int, ...]) -> None:
        end = self.now + seconds
        while self.beat <= end:
            self.now, self.beat = self.beat, self.beat + BEAT
            for rank in busy:
                self.cpu[rank] += BEAT
            self.gang.look(self.now)
            pulses = [Pulse(rank, 0, 0, self.cpu[rank], 0, "R" if rank in busy else "S") for rank in range(RANKS)]
            self.gang.hear(0, self.now, pulses, {}, self.now)
            self.alarms += judge(self.gang) is not None
        self.now = end

    def tell(self, step: int | None = None, phase: str | None = None) -> None:
        for rank in range(RANKS):
            steps = [(self.now, step)] if step is not None else []
            self.gang.report(0, rank, steps, [(self.now, phase)] if phase is not None else [], self.now)


def run_ordinary(steps: int) -> dict[str, Any]:
    """Steps of 0.2 to 20 s, in the median 1 s. Announced phases may rest; what is not announced works."""
    dice, run, every = random.Random(SEED), Ordinary(), tuple(range(RANKS))
    run.tell(phase="compile")
    run.go(1500.0, ())
    run.tell(phase="training")
    for step in range(steps):
        run.go(min(20.0, dice.lognormvariate(0.0, 0.8)), every)
        run.tell(step=step)
        if step % 250 == 249:
            phase, longest = dice.choice([("saving", 900.0), ("evaluating", 1600.0), ("compile", 1200.0)])
            run.tell(phase=phase)
            run.go(dice.uniform(10.0, longest), dice.choice([(), (0,), every]))
            run.tell(phase="training")
        if step % 400 == 399:  # an evaluation or a compilation without a word: all work, or all wait for rank 0
            run.go(dice.uniform(60.0, 1500.0), dice.choice([(0,), every]))
    return {"steps": steps, "virtual_hours": round(run.now / 3600, 1), "false_alarms": run.alarms}


# --- drills, on this machine ------------------------------------------------------------------------------------------
def run_drills(count: int) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory(prefix="muster-hang-") as name, serving(Path(name) / "home") as http:
        return _drills(http, Path(name), count)


def _drills(http: httpx.Client, folder: Path, count: int) -> list[dict[str, Any]]:
    """All gangs at once; odd ones get a rank that sleeps in its loader, even ones a stopped process."""
    (folder / "program.py").write_text(PROGRAM)
    jobs = []
    for number in range(count):
        place = folder / f"drill-{number}"
        place.mkdir()
        run = f"exec {sys.executable} {folder / 'program.py'} {shlex.quote(str(place))}"
        spec = {"name": f"drill-{number}", "run": run, "workdir": str(folder), "nproc": RANKS,
                "resources": {"cpus": 0.01}, "hang": {"action": "report"}}  # fmt: skip
        jobs.append((http.post("/v1/jobs", json={"spec": spec}).raise_for_status().json()["id"], place))
    for job, _ in jobs:
        _until(lambda job=job: (http.get(f"/v1/jobs/{job}").json()["progress"] or {}).get("step", 0) > 30)
    dice, began = random.Random(SEED), {}
    for number, (job, place) in enumerate(jobs):
        rank = dice.randrange(RANKS)
        began[job] = (rank, "loader" if number % 2 else "stopped", time.time())
        if number % 2:
            (place / f"loader-{rank}").touch()
        else:
            os.kill(int((place / f"pid-{rank}").read_text()), signal.SIGSTOP)
    found = []
    for job, _ in jobs:
        rank, fault, at = began[job]
        event = _until(lambda job=job: _verdict(http, job))
        said = event["data"]["verdict"] if event else {"behind": [], "limit": 0.0}
        seconds = round(event["time"] - at, 1) if event else WAIT
        found.append({"fault": fault, "rank": rank, "named": said["behind"], "right": said["behind"] == [rank],
                      "seconds": seconds, "limit": said["limit"]})  # fmt: skip
    for job, _ in jobs:
        http.post(f"/v1/jobs/{job}/stop", json={"grace": 0})
    for job, _ in jobs:
        _until(lambda job=job: http.get(f"/v1/jobs/{job}").json()["phase"] == "stopped")
    return found


def _verdict(http: httpx.Client, job: str) -> dict[str, Any] | None:
    events = http.get("/v1/events", params={"job": job, "limit": 1000}).json()["events"]
    return next((event for event in events if event["kind"] == "attempt.hung"), None)


def _until(check: Any) -> Any:
    until = time.monotonic() + WAIT
    while not (found := check()) and time.monotonic() < until:
        time.sleep(0.5)
    return found


if __name__ == "__main__":
    main()
