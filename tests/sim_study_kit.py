"""Simulated studies for tests: a program with troubles, a small cluster, and what a study's log has to keep."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from muster.core.entities.study import Study, Trial, trials_of
from muster.core.event import Event
from muster.core.parse import parse_job
from muster.core.prices import Price, PriceBook
from muster.core.rules import Preemption, Rules
from muster.sim.kills import KillingCommit, When, run_killed
from muster.sim.model import Cluster, Costs, PoolShape, Setup, SimStudy, TraceJob
from muster.sim.run import Simulation
from muster.sim.task import Learnt, Program
from muster.store.base import EventFilter, Store
from muster.store.memory import MemoryStore
from muster.tune.space import Parameter, Params, Space
from muster.tune.spec import Objective, Plugin, StudySpec

SPACE = Space((
    Parameter("lr", "float", 1e-4, 1.0, log=True),
    Parameter("depth", "int", 2, 20, step=2),
    Parameter("width", "choice", choices=(64, 128, 256), when="depth > 8"),
))  # fmt: skip
GB = 10**9
PRICE = 3_600_000  # millionths for an hour of an accelerator: a second costs a thousand
PRICES = PriceBook(
    version=1, currency="EUR", pools={"gpu": (Price(accelerator=PRICE * 1000),)}, assumed_run=300.0
)  # fmt: skip
CALM = Rules(preemption=Preemption(enabled=False))
# Options of rules whose own do not fit, or do not decide much, in a program of nine reports.
OPTIONS: Mapping[str, dict[str, Any]] = {
    "asha": {"max": 9}, "halving": {"max": 9, "cohort": 6}, "hyperband": {"max": 9}, "pbt": {"interval": 2},
    "rule": {"when": "value > 2 * best and report > 1"}, "median": {"trials": 3},
}  # fmt: skip


@dataclass(frozen=True)
class Toy:
    """A program whose loss falls with its steps, by its parameters. Chances of troubles are for each trial."""

    seed: int = 0
    steps: int = 27
    seconds: float = 10.0  # of a step, more or less
    fails: float = 0.0
    diverges: float = 0.0
    memory: int = 40 * GB  # of the widest

    def program(self, params: Params, seed: int) -> Program:
        random = Random(f"{self.seed}/{seed}")
        lr, depth = float(params["lr"]), int(params["depth"])
        off = abs(math.log10(lr) + 2) + 0.05 * abs(depth - 10)
        nan_from = random.randint(1, self.steps) if random.random() < self.diverges else math.inf
        fails_at = random.randint(1, self.steps) if random.random() < self.fails else None

        def figures(step: int, learnt: Learnt) -> dict[str, float]:
            noise = Random(f"{self.seed}/{seed}/{step}").gauss(0, 0.05)
            loss = math.nan if step >= nan_from else off + learnt[0] + noise
            return {"loss": loss, "memory": depth * 4.0}

        def learn(learnt: Learnt, step: int) -> Learnt:
            return (learnt[0] * (0.95 - 0.1 * min(lr, 0.1)),)

        seconds = self.seconds * random.uniform(0.5, 2.0)
        memory = round(self.memory * int(params.get("width", 64)) / 256)
        return Program(self.steps, seconds, figures, learn, (3.0,), every=3, memory=memory, fails_at=fails_at)


def spec_of(stop: str = "asha", search: str = "random", **given: Any) -> StudySpec:
    job = parse_job({"name": "train", "run": "true", "gpus": 1, **given.pop("job", {})})
    values: dict[str, Any] = {"trials": 12, "parallel": 4, "space": SPACE, "objectives": (Objective("loss"),), **given}
    options = values.pop("options", OPTIONS.get(stop, {}))
    doc = job.model_dump(mode="json", exclude_defaults=True)
    return StudySpec("lr", job=doc, search=(Plugin(search),), stop=Plugin(stop, options), **values)


def setup_of(spec: StudySpec, toy: Toy | None = None, **given: Any) -> Setup:
    """Four nodes of two accelerators, of which trials save each minute. `given`: fields of the setup, or its costs."""
    study = SimStudy(spec, toy or Toy(), seed=given.pop("seed", 0), memory=given.pop("memory", math.inf))
    costs = given.pop("costs", Costs(restart=5.0, checkpoint_every=60.0, checkpoint_cost=2.0))
    values: dict[str, Any] = {"rules": CALM, "cluster": Cluster((PoolShape("gpu", 4, 2),)), **given}
    return Setup("test", costs=costs, studies=(study,), **values)


TROUBLE = Costs(
    restart=5.0, checkpoint_every=60.0, checkpoint_cost=2.0, node_failures=100.0, repair=60.0, seed=3
)  # fmt: skip


def others(seed: int, count: int = 6) -> list[TraceJob]:
    """Jobs of others, some of which go before all trials."""
    random = Random(seed)
    return [
        TraceJob(
            str(number), random.randint(0, 900), random.randint(30, 400), 1, random.randint(1, 2), user="ada",
            priority=random.choice([20, 50, 90]),
        )
        for number in range(count)
    ]  # fmt: skip


@dataclass
class Played:
    """A simulation that is over."""

    simulation: Simulation
    commit: KillingCommit

    @property
    def study(self) -> Study:
        (found,) = self.simulation.store.state().studies.values()
        return found

    @property
    def trials(self) -> dict[int, Trial]:
        return trials_of(self.simulation.store.state(), self.study.id)

    @property
    def outcomes(self) -> Counter[str]:
        return Counter(one.outcome for one in self.trials.values())

    @property
    def events(self) -> list[Event]:
        return self.simulation.store.events(EventFilter(limit=10**6))

    def story(self) -> list[tuple[float, str, str, str]]:
        """What was decided, and when."""
        return [
            (round(one.time, 6), one.kind, one.job, json.dumps(one.data.to_doc(), sort_keys=True))
            for one in self.events
            if one.kind.startswith(("study.", "trial."))
        ]

    def check(self) -> None:
        """No trial is lost, doubled or left behind, and no job of one runs any more."""
        trials, state = self.trials, self.simulation.store.state()
        assert sorted(trials) == list(range(len(trials)))
        assert self.study.ended_at is not None
        over = ("ended", "paused") if self.study.stopped is not None else ("ended",)
        assert all(one.phase in over for one in trials.values()), [one for one in trials.values() if one.live]
        jobs = [one.job for one in trials.values()]
        assert len(set(jobs)) == len(jobs)
        assert not state.jobs.keys() & {*jobs, self.study.id}
        submitted = Counter(one.job for one in self.events if one.kind == "job.submitted")
        assert all(submitted[job] == 1 for job in jobs)
        children = {one.job for one in self.events if one.kind == "job.submitted" and one.job.startswith("lr-")}
        assert children == {*jobs, self.study.id}, "a job that is no trial's"
        runs = self.simulation.studies.trials.runs
        assert not any(run.attempt for run in runs.values()), "a zombie"
        replaced = [one.replaces for one in trials.values() if one.replaces is not None]
        assert len(set(replaced)) == len(replaced)


Script = Mapping[float, Callable[[Simulation], Any]]  # what people do, by the time


def play(
    setup: Setup, kills: Mapping[int, When] | None = None, trace: list[TraceJob] | None = None,
    script: Script | None = None, store: Store | None = None,
) -> Played:  # fmt: skip
    simulation = Simulation(trace or [], setup, store=store or MemoryStore())
    for at, do in (script or {}).items():
        simulation.at(at, lambda do=do: do(simulation))
    _, commit = run_killed(simulation, kills or {})
    return Played(simulation, commit)


def with_trouble(setup: Setup, seed: int = 3) -> Setup:
    """Nodes fail, and jobs of others go before trials."""
    return replace(setup, costs=replace(TROUBLE, seed=seed), rules=Rules(preemption=Preemption(min_run=0.0)))
