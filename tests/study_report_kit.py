"""Studies for tests of reports, made of events that the real folds apply: a small ASHA on a virtual clock."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from hypothesis import strategies as st

from muster.core.entities.study import (
    Study,
    StudyEnded,
    StudyStarted,
    StudyStopped,
    Trial,
    TrialEnded,
    TrialLeaving,
    TrialPaused,
    TrialPromoted,
    TrialReported,
    TrialStarted,
    progress_of,
    trials_of,
)
from muster.core.event import Event
from muster.core.payload import Payload
from muster.core.reasons import reason
from muster.core.state import State, apply
from muster.tune.confirm import winners
from muster.tune.report import LearningCurve, StudyFacts, TrialRun
from muster.tune.space import Parameter, Space
from muster.tune.spec import Confirm, Objective, Plugin, StudySpec
from muster.tune.summary import summary
from muster.tune.view import StudyView, view_of

BEGAN = 1_790_000_000.0
LEVELS = (10, 30, 90)
LAST = 270  # steps of a complete trial
SPACE = Space(
    (
        Parameter("lr", "float", 1e-5, 1e-1, log=True),
        Parameter("wd", "float", 1e-6, 1e-1, log=True),
        Parameter("batch", "choice", choices=(64, 128, 256)),
        Parameter("model", "choice", choices=("shallow", "deep")),
        Parameter("depth", "int", 4, 24, step=4, when="model == 'deep'"),
        Parameter("dropout", "float", 0.0, 0.5),
    )
)
SPEC = StudySpec(
    "lr-and-decay", SPACE, (Objective("val_loss"),), ("memory < 70GB",), None,
    search=(Plugin("tpe", {"multivariate": True}), Plugin("random")), stop=Plugin("asha", {"eta": 3, "grace": 10}),
    trials=200, parallel=16, cost=300_000_000, until=172_800.0, confirm=Confirm(3, 5),
)  # fmt: skip


@dataclass
class StudyLog:
    """Appends events of one study to a state."""

    spec: StudySpec
    state: State = field(default_factory=State)
    now: float = BEGAN
    seq: int = 0
    id: str = "study-1"

    def __post_init__(self) -> None:
        self.add(StudyStarted(self.spec.name, self.spec.to_doc(), "study: it", 7, []))

    def add(self, data: Payload, job: str = "") -> None:
        self.seq += 1
        apply(self.state, Event(data, self.now, "ada", "language", job or self.id).stamped(self.seq))

    def start(self, number: int, params: Mapping[str, Any], **more: Any) -> None:
        given = {"by": "tpe", **more}
        self.add(TrialStarted(self.id, number, dict(params), **given), f"{self.spec.name}-{number}")

    def end(self, number: int, outcome: str, values: Sequence[float] | None, **more: Any) -> None:
        self.add(TrialEnded(self.id, number, outcome, list(values) if values is not None else None, **more))

    @property
    def study(self) -> Study:
        return self.state.studies[self.id]

    @property
    def trials(self) -> Mapping[int, Trial]:
        return trials_of(self.state, self.id)

    def view(self) -> StudyView:
        changes = progress_of(self.state, self.id).changes
        return view_of(StudySpec.of(self.study.doc), self.study, self.trials, changes)

    def facts(self, **more: Any) -> StudyFacts:
        return StudyFacts(self.study, self.now, **{"currency": "USD", **more})


Values = Callable[[Mapping[str, Any], float, np.random.Generator], list[float]]


def losses(params: Mapping[str, Any], done: float, random: np.random.Generator) -> list[float]:
    """A loss that falls with the share of the steps that are done; `lr` near 1e-3 is the best, `wd` hardly matters."""
    off = 0.05 * (math.log10(params["lr"]) + 3) ** 2 + 0.004 * (math.log10(params["wd"]) + 4) ** 2
    off += 0.02 if params["model"] == "shallow" else 0.002 * abs(params["depth"] - 16)
    off += 0.01 * params["batch"] / 256 + 0.05 * params["dropout"] ** 2
    return [0.3 + off + 2.0 * math.exp(-4 * done) + 0.004 * float(random.standard_normal())]


def two_losses(params: Mapping[str, Any], done: float, random: np.random.Generator) -> list[float]:
    """A loss, and a throughput that falls with the size of the model."""
    size = params.get("depth", 2)
    return [losses(params, done, random)[0] - 0.004 * size, 4000 / (size + 4) * (1 + 0.05 * float(random.random()))]


def asha(trials: int, *, spec: StudySpec = SPEC, values: Values = losses, seed: int = 0, over: bool = True) -> StudyLog:
    """A study of so many trials. Of a hundred three fail, two diverge, one needs too much memory, and one is lost."""
    return _Run(StudyLog(spec), trials, values, np.random.default_rng(seed)).run(over)


@dataclass
class _Run:
    log: StudyLog
    trials: int
    values: Values
    random: np.random.Generator
    due: list[tuple[float, int]] = field(default_factory=list)  # when trials reach their next level
    reached: dict[int, list[float]] = field(default_factory=lambda: {level: [] for level in LEVELS})

    def run(self, over: bool) -> StudyLog:
        stop_at = self.trials if over else self.trials + 1
        asked = 0
        while asked < stop_at or self.due:
            while len(self.due) < self.log.spec.parallel and asked < self.trials:
                if not self._promote():
                    self._ask(asked)
                    asked += 1
            if asked == self.trials and not over:
                break
            if self.due:
                self.log.now, number = heapq.heappop(self.due)
                self._arrive(self.log.trials[number])
        if over:
            self._finish()
        return self.log

    def _ask(self, number: int) -> None:
        space = self.log.spec.space
        by = "random" if number % 5 == 4 else "tpe"
        places = self.random.random(len(space.parameters))
        if by == "tpe" and number > 20:  # closer to what is good
            places[:2] = 0.5 + (places[:2] - 0.5) * 0.5
        self.log.start(number, space.at(places.tolist()), by=by)
        self._continue(number, 0)

    def _continue(self, number: int, step: int) -> None:
        after = next((one for one in LEVELS if one > step), LAST)
        heapq.heappush(self.due, (self.log.now + (after - step) * (1.0 + 0.2 * self.random.random()), number))

    def _arrive(self, trial: Trial) -> None:
        log, step = self.log, next((one for one in LEVELS if one > trial.step), LAST)
        luck = float(self.random.random())
        spent = {"step": step, "cost": step * 12_345, "seconds": step * 1.1}
        bad = next((name for share, name in _BAD if luck < share), "")
        if bad and trial.step < LEVELS[1]:
            return log.end(trial.number, bad, None, note=f"it {bad}", **spent)
        found = self.values(trial.params, step / LAST, self.random)
        if step == LAST:
            memory = 1e9 * float(self.random.integers(30, 75))
            broken = ["memory < 70GB"] if memory >= 70e9 else []
            return log.end(trial.number, "complete", found, extra={"memory": memory}, violated=broken, **spent)
        log.add(TrialReported(log.id, trial.number, [(step, step, found)], spent["seconds"]))
        ranked = self.reached[step]
        ranked.append(log.spec.objective.sign * found[0])
        if ranked[-1] <= sorted(ranked)[len(ranked) // 3]:
            return self._continue(trial.number, step)
        log.add(TrialLeaving(log.id, trial.number, note="not in the best third"))
        return log.add(TrialPaused(log.id, trial.number, step, spent["cost"], spent["seconds"]))

    def _promote(self) -> bool:
        for level in reversed(LEVELS):
            best = sorted(self.reached[level])[: len(self.reached[level]) // 3]
            for trial in self.log.trials.values():
                sign = self.log.spec.objective.sign
                if trial.phase == "paused" and trial.saved == level and sign * trial.rungs[-1].values[0] in best:
                    self.log.add(TrialPromoted(self.log.id, trial.number, "in the best third by now"))
                    self._continue(trial.number, level)
                    return True
        return False

    def _finish(self) -> None:
        for trial in list(self.log.trials.values()):
            if trial.phase == "paused":
                spent = {"step": trial.step, "cost": trial.cost, "seconds": trial.seconds}
                self.log.end(trial.number, "stopped", None, note="the study is over", **spent)
        self.log.add(StudyStopped(reason("user_stop")))
        self._confirm()
        self.log.add(StudyEnded(summary(self.log.view(), "stopped by ada")))

    def _confirm(self) -> None:
        """The winners with other seeds, whose values are somewhat worse than what made them winners."""
        number = len(self.log.trials)
        for trial in winners(self.log.view(), 3) if self.log.spec.confirm is not None else ():
            for seed in range(5):
                self.log.start(number, trial.params, origin="confirm", by="", of=trial.number, seed=seed)
                values = [one + 0.006 for one in self.values(trial.params, 1.0, self.random)]
                self.log.end(number, "complete", values, step=LAST, cost=LAST * 12_345, seconds=297.0)
                number += 1


_BAD = ((0.01, "lost"), (0.02, "infeasible"), (0.04, "diverged"), (0.07, "failed"))


def with_runs(log: StudyLog) -> StudyFacts:
    """Facts as a server has them: jobs of trials that run, and measured curves of all that have a value."""
    random = np.random.default_rng(3)
    runs = {
        one.number: TrialRun(
            waits=one.number % 4 == 0, pool="spot", attempts=1 + one.number % 2, cost=90_000, seconds=9.0
        )
        for one in log.trials.values()
        if one.live
    }
    curves = {}
    for one in log.trials.values():
        steps = range(1, one.step + 1)
        points = [(float(step), losses(one.params, step / LAST, random)[0]) for step in steps]
        marks = [(float(one.rungs[-1].step), "promoted")] if one.starts > 1 and one.rungs else []
        if points:
            curves[one.number] = LearningCurve(points, marks)  # type: ignore[arg-type]
    return log.facts(runs=runs, curves=curves)


def share_of_names(view: StudyView) -> dict[str, float]:
    """Some importance: the first parameter matters most."""
    names = [one.name for one in view.spec.space.parameters]
    return {name: 0.5 ** (place + 1) for place, name in enumerate(names)}


SMALL = Space(
    (
        Parameter("x", "float", 0.001, 1.0, log=True),
        Parameter("kind", "choice", choices=("a", "b", True, 1.5)),
        Parameter("n", "int", 1, 64, when="kind == 'a'"),
    )
)
_OUTCOMES = ("complete", "stopped", "failed", "infeasible", "diverged", "lost", "replaced")
_ORIGINS = ("search", "enqueued", "confirm", "exploit", "replicate", "asked", "imported")
_values = st.one_of(st.integers(-3, 3).map(float), st.floats(-1e6, 1e6))


@st.composite
def studies(draw: st.DrawFn) -> StudyLog:
    """Any sequence of the events of trials, in any order that their study allows."""
    count = draw(st.integers(1, 3))
    ways = st.sampled_from(("minimize", "maximize"))
    goals = tuple(Objective(f"m{place}", draw(ways)) for place in range(count))
    log = StudyLog(StudySpec("any", SMALL, goals, trials=draw(st.none() | st.integers(1, 50)), cost=10_000))
    point = st.lists(st.floats(0, 1), min_size=3, max_size=3)
    for trial in range(draw(st.integers(0, 25))):
        more = {"of": 0, "seed": 3} if (origin := draw(st.sampled_from(_ORIGINS))) == "confirm" else {}
        log.start(trial, SMALL.at(draw(point)), origin=origin, by=draw(st.sampled_from(("tpe", "ada"))), **more)
        for level in sorted(draw(st.sets(st.sampled_from((1, 3, 9)), max_size=3))):
            log.now += draw(st.floats(0, 100))
            values = draw(st.lists(_values, min_size=count, max_size=count))
            log.add(TrialReported(log.id, trial, [(level, level * 10, values)]))
            if draw(st.booleans()):
                log.add(TrialLeaving(log.id, trial))
                log.add(TrialPaused(log.id, trial, level * 10, level * 1000, float(level)))
                if draw(st.booleans()):
                    log.add(TrialPromoted(log.id, trial))
        if draw(st.booleans()):
            outcome = draw(st.sampled_from(_OUTCOMES))
            values = draw(st.lists(_values, min_size=count, max_size=count)) if outcome == "complete" else None
            broken = draw(st.lists(st.just("memory < 3"), max_size=1))
            spent = {"step": draw(st.integers(0, 200)), "cost": draw(st.integers(0, 10**7)), "seconds": 7.0}
            log.end(trial, outcome, values, violated=broken, **spent)
    return log


def many(count: int, objectives: int = 1) -> StudyLog:
    goals = tuple(Objective(f"m{place}") for place in range(objectives))
    log = StudyLog(StudySpec("large", SMALL, goals))
    for trial in range(count):
        part = trial * 0.754877666 % 1
        log.start(trial, SMALL.at([part, part * 7 % 1, part * 13 % 1]), by="tpe")
        log.now += 1.0
        values = [1 + part] if objectives == 1 else [part, 1 - part, *[part * 3 % 1] * (objectives - 2)]
        log.end(trial, "complete", values, cost=trial % 97, seconds=float(trial % 89), step=10)
    return log
