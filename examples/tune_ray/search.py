"""Ray Tune with a scheduler that ends bad trials early, as one job; every trial is a run below the job's."""

import math
import os
import sys
from pathlib import Path

import ray
from ray import tune
from ray.tune.schedulers import ASHAScheduler

from muster.adapters.ray_tune import MusterLogger

SPACE = {"lr": tune.loguniform(1e-4, 1e-1), "width": tune.choice([16, 32, 64])}
TRIALS, STEPS = int(os.environ.get("TRIALS", "8")), 16


def objective(config: dict) -> None:
    """A curve as a training has it: the nearer `lr` is to 0.01, the lower it ends."""
    off = abs(math.log10(config["lr"] / 1e-2)) + 8 / config["width"]
    for step in range(1, STEPS + 1):
        tune.report({"loss": off + 1 / step})


def main() -> None:
    # On a Ray cluster (`ray: {driver: true}`) the job is told its address; elsewhere Ray is started for this program.
    alone = {} if os.environ.get("RAY_ADDRESS") else {"num_cpus": 2, "include_dashboard": False}
    ray.init(log_to_driver=False, **alone)
    scheduler = ASHAScheduler(metric="loss", mode="min", max_t=STEPS, grace_period=4, reduction_factor=2)
    found = tune.Tuner(
        objective,
        param_space=SPACE,
        tune_config=tune.TuneConfig(num_samples=TRIALS, scheduler=scheduler, max_concurrent_trials=2),
        run_config=tune.RunConfig(callbacks=[MusterLogger()], storage_path=str(Path("results").resolve()), verbose=0),
    ).fit()
    best = found.get_best_result("loss", "min")
    print("best", best.config, best.metrics["loss"])  # noqa: T201
    sys.exit(1 if found.errors else 0)


if __name__ == "__main__":
    main()
