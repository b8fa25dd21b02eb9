"""What the measurements of studies share: study specs, a cluster for simulations, and the work of others on it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random
from typing import Any

from muster.core.parse import parse_job
from muster.sim.model import Cluster, Costs, PoolShape, Setup, SimStudy, StudyResult, TraceJob
from muster.sim.task import Task
from muster.tune.space import Space
from muster.tune.spec import Objective, Plugin, StudySpec

WORKERS = 64
CLUSTER = Cluster((PoolShape("gpu", WORKERS // 8, 8),))
# Each node fails once in two days, and a new attempt takes 40 s to start. Trials save every ten minutes and when told
# to leave, which takes 5 s.
COSTS = Costs(checkpoint_every=600.0, checkpoint_cost=5.0, node_failures=0.5, repair=3600.0)


def study(stop: str, space: Space, metric: str = "loss", *, search: str = "random", **given: Any) -> StudySpec:
    options = {name: given.pop(name) for name in list(given) if name in ("options", "search_options")}
    job = parse_job({"name": "trial", "run": "true", "gpus": 1}).model_dump(mode="json", exclude_defaults=True)
    return StudySpec(
        stop, space, (Objective(metric),), job=job,
        search=(Plugin(search, options.get("search_options", {})),), stop=Plugin(stop, options.get("options", {})),
        **given,
    )  # fmt: skip


def setup(spec: StudySpec, task: Task, seed: int, **given: Any) -> Setup:
    costs = Costs(**{**{name: getattr(COSTS, name) for name in COSTS.__slots__}, "seed": seed})
    study_ = SimStudy(spec, task, seed=seed)
    return Setup(spec.name, given.pop("rules"), CLUSTER, costs, studies=(study_,), **given)


def others(seed: int, hours: float = 96.0) -> list[TraceJob]:
    """Urgent jobs of others, one each twenty minutes, which take trials' places for ten minutes to an hour."""
    random, at, found = Random(seed), 0.0, list[TraceJob]()
    while at < hours * 3600:
        at += random.expovariate(1 / 1200)
        found.append(TraceJob(
            f"job{len(found)}", at, random.uniform(600, 3600), 1, random.choice([1, 2, 4, 8]), user="ada", priority=90,
        ))  # fmt: skip
    return found


def reached(result: StudyResult, goal: float) -> float:
    """When a trial had run to its end with a value not above this; inf for never."""
    return min((time for time, _, value, whole in result.values if whole and value <= goal), default=math.inf)


def best(result: StudyResult) -> float:
    return min((value for _, _, value, whole in result.values if whole), default=math.inf)


def quartiles(some: Sequence[float]) -> list[float]:
    """The lower quartile, the median and the upper quartile; values that are not finite are the largest."""
    ordered = sorted(some)
    found = [ordered[round((len(ordered) - 1) * part)] for part in (0.25, 0.5, 0.75)]
    return [round(one, 3) if math.isfinite(one) else -1.0 for one in found]
