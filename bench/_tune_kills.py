"""A server that runs a study on this machine, killed (SIGKILL) again and again while trials run."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import httpx

from _server import client_of

KILLS, TRIALS, STEPS, STEP = 20, 60, 10, 0.1  # seconds of a step
WAIT = 300.0
PROGRAM = f"""
import os, time
from muster import runtime
with open("began", "a") as began:
    began.write(os.environ["MUSTER_TRIAL"] + "\\n")
x = runtime.trial_params()["x"]
for step in range(1, {STEPS} + 1):
    time.sleep({STEP})
    runtime.report(step=step, loss=abs(x - 0.3) + 1 / step)
"""
STUDY = f"""
study: kills
space: {{x: {{float: [0, 1]}}}}
objective: {{minimize: loss}}
search: random
stop: fifo
seed: 7
budget: {{trials: {TRIALS}, parallel: 4}}
"""


def killed_for_real(folder: Path, trials: int) -> dict[str, Any]:
    whole, _, _ = _run(folder / "whole", 0)
    found, starts, began = _run(folder / "killed", KILLS)
    same = [(one["number"], one["params"], one["values"]) for one in whole] == [
        (one["number"], one["params"], one["values"]) for one in found
    ]
    return {
        "killed": len(starts), "trials": len(found), "same_decisions": same,
        "states": dict(Counter(one["state"] for one in found)),
        "steps": dict(Counter(one["step"] for one in found)),
        "programs_begun_twice": sum(count - 1 for count in began.values()),
        "most_seconds_until_the_server_answers": max(starts, default=0.0),
    }  # fmt: skip


def _run(home: Path, kills: int) -> tuple[list[dict[str, Any]], list[float], Counter[str]]:
    """The trials, how long each start after a kill took, and how often the program of each trial began."""
    home.mkdir()
    work = home / "work"
    work.mkdir()
    (work / "train.py").write_text(textwrap.dedent(PROGRAM))
    random, starts = Random(5), list[float]()
    server, http = _start(home)
    try:
        job = {"run": f"{sys.executable} train.py", "workdir": str(work), "resources": {"cpus": 1}}
        study = http.post("/v1/studies", json={"text": STUDY, "job": job}).raise_for_status().json()["id"]
        until = time.monotonic() + WAIT
        while _state(http, study) != "ended" and time.monotonic() < until:
            time.sleep(random.uniform(0.1, 0.8))
            if len(starts) < kills:
                server.kill()
                server.wait()
                (home / "server.json").unlink()
                http.close()
                began = time.perf_counter()
                server, http = _start(home)
                starts.append(round(time.perf_counter() - began, 2))
        assert _state(http, study) == "ended", f"the study did not end in {WAIT:.0f} s"
        trials = http.get(f"/v1/studies/{study}/trials").raise_for_status().json()["trials"]
    finally:
        http.close()
        server.terminate()
        server.wait(60)
    return trials, starts, Counter((work / "began").read_text().split())


def _start(home: Path) -> tuple[subprocess.Popen[bytes], httpx.Client]:
    env = {**os.environ, "MUSTER_HOME": str(home)}
    for name in ("MUSTER_URL", "MUSTER_TOKEN"):
        env.pop(name, None)
    command = [sys.executable, "-m", "muster", "up", "--port", "0", "--cpus", "4"]
    server = subprocess.Popen(command, env=env, cwd=home, stdout=subprocess.DEVNULL)
    return server, client_of(home)


def _state(http: httpx.Client, study: str) -> str:
    answer: dict[str, Any] = http.get(f"/v1/studies/{study}").raise_for_status().json()
    return str(answer["study"]["state"])
