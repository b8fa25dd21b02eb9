"""One study on this machine by Muster's local server and by Ray Tune, in turn: four workers, trials that sleep for two
seconds in twenty steps and report each."""

from __future__ import annotations

import os
import sys
import tempfile
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import httpx

from _server import serving

WORKERS, TRIALS, STEPS, STEP = 4, 32, 20, 0.1  # seconds of a step
TURNS = 3
SECONDS = STEPS * STEP
PROGRAM = f"""
import json, time
from muster import runtime
lr, done = runtime.trial_params()["lr"], 0
if folder := runtime.last_checkpoint():
    done = json.loads((folder / "state.json").read_text())["done"]
for step in range(done + 1, {STEPS} + 1):
    time.sleep({STEP})
    runtime.report(step=step, loss=abs(lr - 0.3) + 1 / step)
    if runtime.should_stop():
        with runtime.checkpoint(step) as folder:
            (folder / "state.json").write_text(json.dumps({{"done": step}}))
        break
"""
Study = Callable[[str], dict[str, float]]  # what one study took, by its stopping rule


def compare_with_ray() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        with serving(folder / "home", "--cpus", str(WORKERS)) as http:
            ray, started = _start_ray(folder)
            studies: dict[str, Study] = {"muster": lambda stop: _muster(http, folder, stop), "ray": ray}
            for name, run in studies.items():  # what is loaded at first
                run("warm up")
                print(f"{name} is warm", flush=True)
            taken: dict[str, dict[str, list[dict[str, float]]]] = {name: {"fifo": [], "asha": []} for name in studies}
            for _ in range(TURNS):
                for stop in ("fifo", "asha"):
                    for name, run in studies.items():
                        taken[name][stop].append(run(stop))
                        print(name, stop, taken[name][stop][-1], flush=True)
    found: dict[str, Any] = {
        "workers": WORKERS, "trials": TRIALS, "seconds_of_a_trial": SECONDS, "turns": TURNS, "ray_start_s": started,
    }  # fmt: skip
    for name, of in taken.items():
        whole = median(one["wall_s"] for one in of["fifo"])
        found[name] = {
            "fifo_wall_s": round(whole, 2),
            "overhead_of_a_trial_s": round(whole * WORKERS / TRIALS - SECONDS, 3),
            "asha_wall_s": round(median(one["wall_s"] for one in of["asha"]), 2),
            "asha_steps": median(one["steps"] for one in of["asha"]),
            "all": of,
        }
    mine, theirs = found["muster"], found["ray"]
    found["asha_ratio"] = round(theirs["asha_wall_s"] / mine["asha_wall_s"], 2)
    found["overhead_ratio"] = round(theirs["overhead_of_a_trial_s"] / mine["overhead_of_a_trial_s"], 2)
    print(f"overhead of a trial: {mine['overhead_of_a_trial_s']} s, Ray {theirs['overhead_of_a_trial_s']} s"
          f" ({found['overhead_ratio']}×); ASHA: {mine['asha_wall_s']} s, Ray {theirs['asha_wall_s']} s"
          f" ({found['asha_ratio']}×)")  # fmt: skip
    return found


def _muster(http: httpx.Client, folder: Path, stop: str) -> dict[str, float]:
    work = folder / "work"
    work.mkdir(exist_ok=True)
    (work / "train.py").write_text(textwrap.dedent(PROGRAM))
    trials = WORKERS if stop == "warm up" else TRIALS
    rule = f"{{asha: {{by: step, min: 1, max: {STEPS}, eta: 3, pause: no}}}}" if stop == "asha" else "fifo"
    text = f"""
        study: peer
        space: {{lr: {{float: [0, 1]}}}}
        objective: {{minimize: loss}}
        search: random
        stop: {rule}
        budget: {{trials: {trials}, parallel: {WORKERS}}}
    """
    job = {"run": f"{sys.executable} train.py", "workdir": str(work), "resources": {"cpus": 1}}
    began = time.perf_counter()
    answer = http.post("/v1/studies", json={"text": textwrap.dedent(text), "job": job}).raise_for_status()
    study = answer.json()["id"]
    while http.get(f"/v1/studies/{study}").json()["study"]["state"] != "ended":
        time.sleep(0.02)
    wall = time.perf_counter() - began
    rows = http.get(f"/v1/studies/{study}/trials").json()["trials"]
    assert len(rows) == trials, rows
    return {"wall_s": round(wall, 3), "steps": sum(row["step"] for row in rows)}


def _start_ray(folder: Path) -> tuple[Study, float]:
    """Ray's own start is not part of a study: a server that runs is compared with a cluster that runs."""
    os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")
    import ray
    from ray import tune
    from ray.tune.schedulers import ASHAScheduler, FIFOScheduler

    began = time.perf_counter()
    ray.init(num_cpus=WORKERS, include_dashboard=False, log_to_driver=False, _temp_dir=str(folder / "ray"))
    started = round(time.perf_counter() - began, 2)

    def train(config: dict[str, float]) -> None:
        for step in range(1, STEPS + 1):
            time.sleep(STEP)
            tune.report({"loss": abs(config["lr"] - 0.3) + 1 / step})

    def run(stop: str) -> dict[str, float]:
        asha = ASHAScheduler(max_t=STEPS, grace_period=1, reduction_factor=3)
        tuner = tune.Tuner(
            tune.with_resources(train, {"cpu": 1}),
            param_space={"lr": tune.uniform(0, 1)},
            tune_config=tune.TuneConfig(
                metric="loss", mode="min", num_samples=WORKERS if stop == "warm up" else TRIALS,
                scheduler=asha if stop == "asha" else FIFOScheduler(), max_concurrent_trials=WORKERS,
            ),
            run_config=tune.RunConfig(storage_path=str(folder / "results"), verbose=0),
        )  # fmt: skip
        began = time.perf_counter()
        results = tuner.fit()
        wall = time.perf_counter() - began
        steps = sum(int(one.metrics["training_iteration"]) for one in results if one.metrics)
        return {"wall_s": round(wall, 3), "steps": steps}

    return run, started
