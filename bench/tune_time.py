"""How much sooner does ASHA find what full runs find, and what does a trial cost beside itself?

Simulated: 64 accelerators, nodes that fail, urgent jobs of others that take trials' places; learning curves of 1,024
networks that were really trained (`_trainings.py`), and functions of several fidelities. A study of 1,024 trials that
run to their ends against ASHA on the same points in the same order, which pauses and promotes at 1, 3, 9 and 27 of 81
epochs: the time until each has a whole trial as good as the best of the full runs, as the third and as the tenth best
of them (1,024 on 64 accelerators: full runs find one of the ten best about each two hours), and until it is over.

Real: Muster's local server and Ray Tune on this machine, one after the other in turn, with four workers and trials of
two seconds that only sleep: time of the whole study, and time per trial beyond its own.
"""

from __future__ import annotations

import argparse
import math
from bisect import bisect_left
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from _machine import write
from _studies import best, others, quartiles, reached, setup, study
from _trainings import EPOCHS, METRIC, NUMBERS, trainings
from _tune_peers import compare_with_ray
from muster.core.rules import Preemption, Rules
from muster.sim.run import replay
from muster.sim.task import Task
from muster.sim.tasks import KNOWN, STEPS, FunctionTask
from muster.tune.space import Parameter, Space

SEEDS, TRIALS, PROCESSES = 5, 1024, 2
GOALS = {"best": 1, "third_best": 3, "tenth_best": 10}  # places among the full runs
PARALLEL = 64
RULES = Rules(preemption=Preemption(min_run=60.0))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--no-peer", action="store_true", help="leave Ray Tune out")
    parser.add_argument("--no-simulation", action="store_true")
    args = parser.parse_args()
    result: dict[str, Any] = {}
    if not args.no_simulation:
        result["simulated"] = simulated(args.seeds)
    if not args.no_peer:
        result["real"] = compare_with_ray()
    write("tune_time", result)


def simulated(seeds: int) -> dict[str, Any]:
    found: dict[str, Any] = {"seeds": seeds, "trials": TRIALS, "workers": PARALLEL}
    names = list(tasks())
    with ProcessPoolExecutor(PROCESSES) as pool:
        runs = {name: [pool.submit(compared, name, seed) for seed in range(seeds)] for name in names}
        for name in names:
            found[name] = _summary([one.result() for one in runs[name]])
            told = ", ".join(
                f"{goal.replace('_', ' ')}: {found[name][goal]['speed_up'][1]} times as fast"
                f" ({found[name][goal]['reached']} of {seeds})"
                for goal in GOALS
            )
            print(f"{name:10} {told}; the whole study: {found[name]['whole_speed_up'][1]} times as fast", flush=True)
    return found


def _summary(figures: list[dict[str, float]]) -> dict[str, Any]:
    """Of a goal that ASHA does not reach, the time is infinite, and the speed-up 0."""
    goals = {
        goal: {
            "speed_up": quartiles([one[f"full_{goal}"] / one[f"asha_{goal}"] for one in figures]),
            "reached": sum(math.isfinite(one[f"asha_{goal}"]) for one in figures),
            "full_hours": quartiles([one[f"full_{goal}"] for one in figures]),
            "asha_hours": quartiles([one[f"asha_{goal}"] for one in figures]),
        }
        for goal in GOALS
    }
    whole = quartiles([one["full_hours"] / one["asha_hours"] for one in figures])
    return {
        **goals,
        "whole_speed_up": whole,
        "place_of_winner": quartiles([one["place"] for one in figures]),
        "interruptions": sum(round(one["interruptions"]) for one in figures),
    }


def tasks() -> dict[str, tuple[Task, Space, int, str]]:
    """What is trained, its space, how many steps it has, and its metric."""
    known: dict[str, tuple[Task, Space, int, str]] = {"networks": (trainings(), NUMBERS, EPOCHS, METRIC)}
    for name in KNOWN:
        function = KNOWN.get(name)
        space = Space(tuple(Parameter(f"x{index}", "float", 0.0, 1.0) for index in range(function.width)))
        known[name] = (FunctionTask(function, space, "loss"), space, STEPS, "loss")
    return known


def compared(name: str, seed: int) -> dict[str, float]:
    """Hours of both studies until each goal, and until they are over; and the place that ASHA's winner has among the
    full runs."""
    task, space, steps, metric = tasks()[name]
    trace = others(seed)
    asha = {"by": "step", "min": 1, "max": steps, "eta": 3.0}
    specs = {
        "full": study("fifo", space, metric, trials=TRIALS, parallel=PARALLEL),
        "asha": study("asha", space, metric, trials=TRIALS, parallel=PARALLEL, options=asha),
    }
    results = {kind: replay(trace, setup(spec, task, seed, rules=RULES)).studies[0] for kind, spec in specs.items()}
    values = sorted(value for _, _, value, whole in results["full"].values if whole)
    found = {"interruptions": 0.0, "place": 1.0 + bisect_left(values, best(results["asha"]))}
    for kind, result in results.items():
        assert result.ended is not None, result.outcomes
        found["interruptions"] += result.interruptions
        found[f"{kind}_hours"] = result.ended / 3600
        found |= {f"{kind}_{goal}": reached(result, values[place - 1]) / 3600 for goal, place in GOALS.items()}
    return found


if __name__ == "__main__":
    main()
