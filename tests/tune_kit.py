"""Whole studies without jobs: trials with learning curves that fail, are lost and are stopped, in virtual time.

`StudyPlay` is the controller of a study without anything around it: reports become events, the plan of each round
becomes events in the same words, and the state is folded from them alone. What happens to a trial depends on the
world's seed, its parameters and its number, and not on when anybody looks.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from itertools import count
from random import Random
from typing import Any

from muster.core.entities.study import (
    Rung,
    StudyChanged,
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
from muster.core.payload import decode
from muster.core.reasons import reason
from muster.core.state import State, apply
from muster.tune.decisions import Decision, End, Facts, Finish, Leave, Plan, Promote, Start
from muster.tune.plan import Planner
from muster.tune.plugin import with_defaults
from muster.tune.searchers import SEARCHERS
from muster.tune.space import Parameter, Space
from muster.tune.spec import Objective, Plugin, StudySpec
from muster.tune.stopping import STOPPING
from muster.tune.stopping.base import Stopping
from muster.tune.view import StudyView

STUDY = "lr-1"
SPACE = Space((
    Parameter("lr", "float", 1e-4, 1.0, log=True),
    Parameter("depth", "int", 2, 20, step=2),
    Parameter("model", "choice", choices=("plain", "deep")),
    Parameter("width", "choice", choices=(64, 128, 256), when="model == 'deep'"),
))  # fmt: skip


def spec_of(stop: str = "asha", search: str = "random", **given: Any) -> StudySpec:
    options = given.pop("options", {})
    values: dict[str, Any] = {"job": {"run": "true"}, "trials": 12, "parallel": 4, **given}
    objectives = values.pop("objectives", (Objective("loss"),))
    return StudySpec(
        "lr", values.pop("space", SPACE), objectives, search=(Plugin(search),), stop=Plugin(stop, options), **values
    )


def rule_of(spec: StudySpec) -> Stopping:
    found = STOPPING.get(spec.stop.name)
    return found(spec, with_defaults(found, spec.stop.options))


@dataclass(frozen=True)
class World:
    """What trials do. Chances are for each report."""

    seed: int = 0
    length: int = 9  # reports of a program from its beginning to its end
    fails: float = 0.0
    lost: float = 0.0
    by_hand: float = 0.0  # somebody stops the trial
    diverges: float = 0.0
    stubborn: float = 0.0  # a trial that was told to leave goes on to its next report
    leaves: float = 0.1  # seconds in which a trial saves and leaves
    price: int = 0  # of a second, in millionths
    pace: int = 0  # another one: trials take other times, and all else is the same
    loss: Callable[[Trial, int], float] | None = None

    def value(self, trial: Trial, step: int) -> float:
        """The objective at a step."""
        if self._chance(self.diverges, "diverges", trial, step):
            return math.nan
        if self.loss is not None:
            return self.loss(trial, step)
        lr, depth = trial.params.get("lr", 0.1), trial.params.get("depth", 2)
        off = abs(math.log10(float(lr)) + 2) + 0.05 * abs(depth - 10)
        noise = self._random("noise", trial.number, trial.seed, step).gauss(0, 0.05)
        return off + 3 / (step + 1) + noise

    def happens(self, trial: Trial, step: int) -> str:
        """What becomes of a trial on its way to a step."""
        for what in ("lost", "fails", "by_hand"):
            if self._chance(getattr(self, what), what, trial, step):
                return what
        return ""

    def takes(self, trial: Trial, step: int) -> float:
        """Seconds."""
        slow = self._random("slow", trial.number, self.pace).uniform(0.5, 2.0)
        return round(slow * self._random("takes", trial.number, step, self.pace).uniform(0.8, 1.2), 6)

    def goes_on(self, trial: Trial) -> bool:
        return self._random("stubborn", trial.number, trial.step, trial.starts).random() < self.stubborn

    def _chance(self, chance: float, what: str, trial: Trial, step: int) -> bool:
        return chance > 0 and self._random(what, trial.number, step).random() < chance

    def _random(self, *parts: object) -> Random:
        return Random(f"{self.seed}/{parts}")


@dataclass
class Running:
    """What the world knows of a trial's program. Its last report is its checkpoint."""

    step: int = 0
    seconds: float = 0.0
    reported: int = 0  # by this trial itself
    last: float | None = None
    start: int = 0  # how often it was started: events of an earlier start are void
    since: float | None = None  # when it began to run


@dataclass
class StudyPlay:
    """`rebuild`: the state, the rule and the plan are made anew from the log before each round, as if the server had
    been killed after each event. `check`: each round is also cut off after each of its decisions and decided anew."""

    spec: StudySpec
    world: World = field(default_factory=World)
    seed: int = 0
    rebuild: bool = False
    check: bool = False
    stop_at: float | None = None  # somebody stops the study
    resume_at: float | None = None  # and resumes it

    def __post_init__(self) -> None:
        self.log: list[Event] = []
        self.state = State()
        self.now = 0.0
        self.programs: dict[int, Running] = {}
        self.finished: Finish | None = None
        self.told: list[tuple[float, Decision]] = []
        self._heap: list[tuple[float, int, Callable[[], Any]]] = []
        self._order = count()
        self._planner = self._new_planner()

    def run(self, most: int = 200_000) -> StudyPlay:
        self._append(StudyStarted("lr", self.spec.to_doc(), "", self.seed, []))
        if self.stop_at is not None:
            self._at(self.stop_at, self._stop)
        if self.resume_at is not None:
            self._at(self.resume_at, self._resume)
        if self.spec.until is not None:
            self._at(self.spec.until, lambda: self.round())
        self.round()
        for _ in range(most):
            if self.finished is not None and (self.resume_at is None or self.now >= self.resume_at):
                break
            assert self._heap, f"nothing runs, and the study is not over:\n{self.table()}"
            self.now, _, then = heappop(self._heap)
            then()
        assert self.finished is not None, f"no end after {most} steps"
        stopped = self.state.studies[STUDY].stopped is not None
        assert all(one.phase == "ended" or (stopped and one.phase == "paused") for one in self.trials.values()), self
        return self

    @property
    def trials(self) -> dict[int, Trial]:
        return trials_of(self.state, STUDY)

    @property
    def outcomes(self) -> dict[int, str]:
        return {number: trial.outcome for number, trial in sorted(self.trials.items())}

    def view(self) -> StudyView:
        return StudyView(
            STUDY, self.spec, self.seed, self.trials, changes=progress_of(self.state, STUDY).changes,
            checkpoints={number: one.step for number, one in self.programs.items() if one.last is not None},
        )  # fmt: skip

    def facts(self, exhausted: bool = False) -> Facts:
        progress = progress_of(self.state, STUDY)
        live = {number: self._ran(number) for number, one in self.trials.items() if one.live}
        runs = sum(int(seconds * self.world.price) - self.trials[number].cost for number, seconds in live.items())
        return Facts(
            self.now, 0.0, self.spec.until, progress.spent + runs, self.spec.cost,
            self.state.studies[STUDY].stopped is not None, len(progress.enqueued), exhausted, ran=live,
        )  # fmt: skip

    def round(self, passed: tuple[int, ...] = (), reported: TrialReported | None = None) -> None:
        """The reports of a round and the verdicts on them are in one transaction."""
        if self.finished is not None:
            return
        if reported is not None:
            self._append(reported)
        if self.rebuild:
            self.state, self._planner = folded(self.log), self._new_planner()
        exhausted = False
        while True:
            plan = self._planner.decide(self.view(), self.facts(exhausted), passed)
            if self._carry_out(plan, exhausted):
                break
            passed, exhausted = (), True
        facts = self.facts()
        if facts.limit is not None and self.world.price and facts.ran and facts.spent < facts.limit:
            self._at(self.now + (facts.limit - facts.spent) / self.world.price / len(facts.ran) + 1e-6, self.round)

    def table(self) -> str:
        return "\n".join(
            f"{one.number} {one.phase} {one.outcome} {one.rungs} {one.note}" for one in self.trials.values()
        )

    def _carry_out(self, plan: Plan, exhausted: bool) -> bool:
        """Whether all of it was: the searcher may have nothing to suggest."""
        for index, decision in enumerate(plan.decisions):
            self.told.append((self.now, decision))
            if not self._do(decision):
                return False
            follows = plan.decisions[index + 1 :]
            # What belongs into one transaction is not cut off: see `Planner.decide`.
            rest = [one for one in follows if isinstance(one, Leave)]
            whole = not (isinstance(decision, Leave) and decision.outcome == "replaced")
            ends = isinstance(plan.decisions[-1], Finish)
            if self.check and not rest and whole and not ends:
                again = Planner(self.spec, rule_of(self.spec)).decide(self.view(), self.facts(exhausted)).decisions
                assert again == follows, f"after {decision}:\n{again}\ninstead of\n{follows}"
        return True

    def _do(self, decision: Decision) -> bool:
        match decision:
            case Leave():
                self._leave(decision)
            case Promote():
                trial = self.trials[decision.number]
                assert trial.phase == "paused", f"{decision} of {trial}"
                self._append(TrialPromoted(STUDY, decision.number, decision.note))
                self._go_on(decision.number)
            case Start():
                return self._start(decision)
            case End():
                trial = self.trials[decision.number]
                assert trial.phase == "paused"
                values = list(decision.values) if decision.values is not None else None
                how = (trial.step, trial.cost, trial.seconds)
                self._append(TrialEnded(STUDY, decision.number, "stopped", values, decision.note, *how))
            case Finish():
                assert not any(one.live for one in self.trials.values())
                self._append(StudyEnded(decision.summary))
                self.finished = decision
        return True

    def _leave(self, leave: Leave, held: bool = False) -> None:
        assert self.trials[leave.number].phase == "running"
        self._append(TrialLeaving(STUDY, leave.number, leave.outcome, leave.note, held))
        if not self.world.goes_on(self.trials[leave.number]):
            self.programs[leave.number].start += 1
            self._at(self.now + self.world.leaves, lambda: self._left(leave.number))

    def _start(self, start: Start) -> bool:
        assert start.number == len(self.trials)
        params, by = start.params, start.by
        if start.origin == "enqueued" and params is None:
            params, by = progress_of(self.state, STUDY).enqueued[0], "ada"
        elif params is None:
            chosen = SEARCHERS.get(self.spec.search[0].name)
            suggestion = chosen(self.spec, with_defaults(chosen, {})).ask(self.view(), start.number)
            if suggestion is None:
                return False
            params, by = suggestion.params, suggestion.by
        assert self.spec.space.fits(params)
        program = Running()
        if start.origin == "exploit":
            assert start.of is not None
            source = self.programs[start.of]
            assert self.trials[start.of].rungs, "a source has passed a level"
            assert start.replaces is not None
            if self.trials[start.replaces].outcome != "lost":
                assert self.trials[start.of].phase != "ended", "a source has something left to train"
            program = Running(source.step, source.seconds, last=source.last)
        self._append(TrialStarted(
            STUDY, start.number, dict(params), start.origin, by, start.of, start.seed, start.bracket, start.note,
            start.replaces, program.step,
        ))  # fmt: skip
        live = [one for one in self.trials.values() if one.live and (one.phase, one.outcome) != ("leaving", "replaced")]
        assert len(live) <= self.spec.parallel
        program.seconds = 0.0
        self.programs[start.number] = program
        self._go_on(start.number)
        return True

    def _go_on(self, number: int) -> None:
        trial, program = self.trials[number], self.programs[number]
        step, start, program.since = program.step + 1, program.start, self.now
        if step > self.world.length:  # it starts from a checkpoint of the end
            self._at(
                self.now + self.world.leaves,
                lambda: program.start == start and self._end(number, "complete", program.last),
            )
            return
        takes = self.world.takes(trial, step)
        self._at(self.now + takes, lambda: program.start == start and self._report(number, step))

    def _ran(self, number: int) -> float:
        program = self.programs[number]
        return program.seconds + (self.now - program.since if program.since is not None else 0.0)

    def _settle(self, number: int, runs: bool = False) -> Running:
        """Its seconds so far."""
        program = self.programs[number]
        program.seconds, program.since = self._ran(number), self.now if runs else None
        return program

    def _report(self, number: int, step: int) -> None:
        trial, program = self.trials[number], self._settle(number, runs=True)
        if what := self.world.happens(trial, step):
            program.start += 1
            outcome = {"lost": "lost", "fails": "failed", "by_hand": "stopped"}[what]
            self._end(number, outcome, program.last if what == "by_hand" else None)
            return
        value = self.world.value(trial, step)
        program.step, program.reported, program.last = step, program.reported + 1, value
        reported = self._reported(number)
        if trial.phase == "leaving":  # it was slow to leave
            program.start += 1
            if reported is not None:
                self._append(reported)
            if step >= self.world.length:
                self._end(number, "complete", value)
            else:
                self._left(number)
            return
        if reported is not None:
            self.round((number,), reported)
        if self.trials[number].phase == "running" or step >= self.world.length:
            if step >= self.world.length:
                program.start += 1
                self._end(number, "complete", value)
            else:
                self._go_on(number)
        elif self.trials[number].phase == "leaving" and self.world.goes_on(self.trials[number]):
            self._go_on(number)

    def _reported(self, number: int) -> TrialReported | None:
        trial, program = self.trials[number], self.programs[number]
        assert program.last is not None
        rule, rungs = self._planner.stopping, list[tuple[float, int, list[float]]]()
        reached = program.step if rule.by == "step" else program.reported
        while (level := rule.next_level(trial)) is not None and level <= reached:
            rungs.append((level, program.step, [program.last]))
            trial = replace(trial, rungs=(*trial.rungs, Rung(level, program.step, (program.last,))))
        return TrialReported(STUDY, number, rungs, program.seconds) if rungs else None

    def _left(self, number: int) -> None:
        trial = self.trials[number]
        if trial.phase != "leaving":
            return
        program = self._settle(number)
        if trial.outcome == "":
            cost = int(program.seconds * self.world.price)
            self._append(TrialPaused(STUDY, number, program.step, cost, program.seconds))
            self.round()
        else:
            self._end(number, trial.outcome, None if trial.outcome == "diverged" else program.last)

    def _end(self, number: int, outcome: str, value: float | None) -> None:
        program = self._settle(number)
        if value is not None and not math.isfinite(value):
            outcome, value = "diverged" if outcome == "complete" else outcome, None
        values = [value] if value is not None else None
        cost = int(program.seconds * self.world.price)
        self._append(TrialEnded(STUDY, number, outcome, values, "", program.step, cost, program.seconds))
        self.round()

    def _stop(self) -> None:
        if self.finished is None:
            self._append(StudyStopped(reason("user_stop")))
            for number in [number for number, one in self.trials.items() if one.phase == "running"]:
                self._leave(Leave(number, "", "the study was stopped"), held=True)
            self.round()

    def _resume(self) -> None:
        if self.state.studies[STUDY].stopped is not None:
            self._append(StudyChanged(self.spec.to_doc(), "", "resumed"))
            self.finished = None
            self.round()

    def _append(self, data: Any) -> None:
        event = Event(decode(data.KIND, json.loads(json.dumps(data.to_log()))), self.now, "muster", "red", STUDY)
        self.log.append(event.stamped(len(self.log) + 1))
        apply(self.state, self.log[-1])

    def _at(self, time: float, then: Callable[[], Any]) -> None:
        heappush(self._heap, (time, next(self._order), then))

    def _new_planner(self) -> Planner:
        return Planner(self.spec, rule_of(self.spec))


def folded(log: list[Event]) -> State:
    state = State()
    for event in log:
        apply(state, event)
    return state


def promotions(play: StudyPlay) -> Iterator[Promote]:
    return (one for _, one in play.told if isinstance(one, Promote))


def a_trial(number: int, at: dict[int, float] | None = None, phase: str = "running", **given: Any) -> Trial:
    """A trial that has these values at levels, which are its steps too; a second passes at each."""
    rungs = tuple(Rung(float(level), level, (value,), float(level)) for level, value in (at or {}).items())
    made: dict[str, Any] = {"params": {"lr": 0.1, "depth": 4, "model": "plain"}, "step": max(at or {0: 0}), **given}
    if phase == "ended" and made.get("outcome") == "complete" and "values" not in made:
        made["values"] = rungs[-1].values if rungs else (1.0,)
    return Trial(STUDY, number, phase=phase, rungs=rungs, **made)  # type: ignore[arg-type]


def a_view(spec: StudySpec, *trials: Trial, **given: Any) -> StudyView:
    return StudyView(STUDY, spec, 7, {one.number: one for one in trials}, **given)
