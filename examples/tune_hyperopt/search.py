"""HyperOpt as one job; every trial is a run below the job's."""

import math

from hyperopt import STATUS_OK, fmin, hp, tpe

from muster.adapters.hyperopt import MusterObjective

SPACE = {"lr": hp.loguniform("lr", math.log(1e-4), math.log(1e-1)), "width": hp.choice("width", [16, 32, 64])}
TRIALS, STEPS = 12, 8


def objective(params: dict) -> dict:
    """A curve as a training has it: the nearer `lr` is to 0.01, the lower it ends."""
    off = abs(math.log10(params["lr"] / 1e-2)) + 8 / params["width"]
    for step in range(1, STEPS + 1):
        logged.trial.log({"loss": off + 1 / step}, step)
    return {"loss": off + 1 / STEPS, "status": STATUS_OK}


logged = MusterObjective(objective)
best = fmin(logged, SPACE, algo=tpe.suggest, max_evals=TRIALS, show_progressbar=False)
print("best", best)  # noqa: T201
