"""What a study does next: a round, decided from its view, its stopping rule and a few facts. A pure function.

1. Trials that have just passed a level get the verdict of the rule. One that would be paused, and would be the next to
   go on, stays.
2. When the money or the time is spent, or the study was stopped, no trial starts or goes on; when it is spent, all that
   run are told to leave.
3. Places that are free go to trials that ran when the study was stopped, to those that the platform lost, to paused
   trials that the rule promotes, then to new ones.
   Where money or time is limited, a trial starts or goes on only if its way to the end still fits into what is left,
   and a new trial goes before a promotion that is expected to improve less for its time.
4. When nothing runs and nothing can start, the winners are run again with other seeds, and then the study is over.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from muster.core.entities.study import Origin, Trial
from muster.tune import draft, expected
from muster.tune.confirm import winners
from muster.tune.decisions import End, Facts, Finish, Leave, Plan, Promote, Start
from muster.tune.draft import Draft
from muster.tune.expected import next_gain
from muster.tune.left import spent
from muster.tune.spec import StudySpec
from muster.tune.stopping.base import Promotion, Stopping, Verdict
from muster.tune.summary import summary
from muster.tune.tables import Tables
from muster.tune.view import StudyView

MOST_REPEATS: Final = 3  # of a trial that the platform lost
MOST_PASSED_OVER: Final = 16  # promotions that do not fit, before none is looked for


class Planner:
    """Made for one study. It keeps tables of the trials, which follow the views that it is given; a new one decides the
    same."""

    def __init__(self, spec: StudySpec, stopping: Stopping) -> None:
        self.spec, self.stopping = spec, stopping
        sign = spec.objective.sign
        self._tables, self._measured = Tables(draft.entries(sign)), Tables(expected.entries(sign))

    def decide(self, view: StudyView, facts: Facts, passed: Iterable[int] = ()) -> Plan:
        """`passed`: trials that have passed levels since the last round; what they reported is in the view.

        Three things belong into one transaction: a report and the verdict on it, a trial that is replaced and the one
        that replaces it, and all decisions of a round that ends the study. Others may be carried out one by one.
        """
        made = Draft(view, facts, self.stopping, self._tables, self._measured)
        try:
            return _Round(self.spec, self.stopping, made).plan(passed)
        finally:
            made.take_back()


class _Round:
    def __init__(self, spec: StudySpec, stopping: Stopping, made: Draft) -> None:
        self.spec, self.stopping, self.draft, self.facts = spec, stopping, made, made.facts
        self.spent = spent(made.facts)

    def plan(self, passed: Iterable[int]) -> Plan:
        made = self.draft
        for number in sorted(set(passed)):
            self.judge(made.view.trials[number])
        if self.spent:
            for _, number in list(made.rows("running")):
                made.do(Leave(number, "stopped", self.spent))
        while made.free > 0 and (found := self.next()) is not None:
            made.do(found)
        if not made.rows("live") and self.next() is None:
            self.finish()
        return Plan(tuple(made.decisions), self.waits())

    def judge(self, trial: Trial) -> None:
        if trial.phase != "running" or self.spent:
            return
        verdict = self.stopping.verdict(self.draft.view, trial)
        if verdict.do == "stop":
            diverged = not math.isfinite(trial.rungs[-1].values[0])
            self.draft.do(Leave(trial.number, "diverged" if diverged else "stopped", verdict.note))
        elif verdict.do == "pause" and not self.would_go_on(trial):
            self.draft.do(Leave(trial.number, "", verdict.note))
        elif verdict.do == "exploit" and not self.facts.stopped:
            self.exploit(trial, verdict)

    def would_go_on(self, trial: Trial) -> bool:
        """Whether a trial that would be paused would be the next to go on."""
        self.draft.put(replace(trial, phase="paused"))
        found = self.next()
        self.draft.put(trial)
        return isinstance(found, Promote) and found.number == trial.number

    def exploit(self, trial: Trial, verdict: Verdict) -> None:
        self.draft.do(Leave(trial.number, "replaced", verdict.note))
        note = f"{verdict.note}: from the checkpoint of trial {verdict.source}"
        made = replace(self.new("exploit", trial.bracket), params=verdict.params, by=self.stopping.NAME, note=note)
        self.draft.do(replace(made, of=verdict.source, replaces=trial.number))

    def next(self) -> Start | Promote | None:
        """What a free place is used for."""
        if self.facts.stopped or self.spent:
            return None
        if (again := self.held() or self.lost()) is not None:
            return again
        closed = self.closed()
        self.draft.close(bool(closed))
        view = self.draft.view
        asks = not closed and self.stopping.may_ask(view)
        if (found := self.promotion()) is not None and not (asks and self.new_is_better(view.trials[found.number])):
            return Promote(found.number, self.stopping.rung_of(view.trials[found.number]), found.note)
        if not asks:
            return None
        origin: Origin = "enqueued" if self.draft.enqueued > 0 else "search"
        return self.new(origin, self.stopping.bracket(view, len(view.trials)))

    def promotion(self) -> Promotion | None:
        """What the rule promotes, of the trials that can be finished."""
        passed_over: list[Trial] = []
        found = self.stopping.promote(self.draft.view)
        while found is not None and not self.can_finish(trial := self.draft.view.trials[found.number]):
            passed_over.append(trial)
            self.draft.put(replace(trial, phase="ended", outcome="stopped"))
            found = self.stopping.promote(self.draft.view) if len(passed_over) < MOST_PASSED_OVER else None
        for trial in passed_over:
            self.draft.put(trial)
        return found

    def new(self, origin: Origin, bracket: int) -> Start:
        view = self.draft.view
        number = len(view.trials)
        return Start(number, origin, bracket, self.stopping.rung_of(Trial(view.id, number, {}, bracket=bracket)))

    def held(self) -> Promote | None:
        """The first trial that was paused because its study was stopped, and has been resumed since."""
        for _, number in self.draft.rows("held"):
            trial = self.draft.view.trials[number]
            if self.draft.fits(trial, self.stopping.next_level(trial)):
                return Promote(number, self.stopping.rung_of(trial), "it ran when its study was stopped")
        return None

    def lost(self) -> Start | None:
        """The first trial that the platform lost, again."""
        for _, number in self.draft.rows("lost"):
            trial = self.draft.view.trials[number]
            if self.draft.is_repeated(number) or self.times_lost(trial) > MOST_REPEATS:
                continue
            if self.draft.fits(None):
                made = replace(self.new(trial.origin, trial.bracket), params=trial.params, by=trial.by, of=trial.of)
                return replace(made, seed=trial.seed, replaces=number, note=f"trial {number} was lost")
        return None

    def times_lost(self, trial: Trial) -> int:
        times = 1
        while trial.replaces is not None and self.draft.view.trials[trial.replaces].outcome == "lost":
            trial, times = self.draft.view.trials[trial.replaces], times + 1
        return times

    def closed(self) -> str:
        """Why no trial is asked for any more; "": one may be."""
        if self.facts.stopped:
            return "it was stopped"
        if self.spec.trials is not None and len(self.draft.rows("counted")) >= self.spec.trials:
            return f"{self.spec.trials} trials were tried"
        if self.facts.exhausted and self.draft.enqueued <= 0:
            return "no point of its space is left to try"
        if not self.draft.fits(None):
            return "another trial does not fit into what is left of its money or time"
        cost = self.draft.expected().whole().cost if self.spec.worth is not None else None
        if self.spec.worth is not None and cost is not None:
            gain = self.facts.gain if self.facts.gain is not None else next_gain(self.draft.losses())
            if gain is not None and gain * self.spec.worth < cost:
                return f"another trial is expected to gain {gain:.2g}, which is worth less than it costs"
        return ""

    def can_finish(self, trial: Trial) -> bool:
        """Whether the way of a paused trial to its end fits; while no trial has ended yet, that to its next level."""
        if not self.draft.limited:
            return True
        return self.draft.fits(trial, None if self.draft.expected().ends else self.stopping.next_level(trial))

    def new_is_better(self, trial: Trial) -> bool:
        """Whether a new trial is expected to improve more, for its time, than one that could be promoted."""
        level = self.stopping.next_level(trial)
        if level is None or not self.draft.limited:
            return False
        known = self.draft.expected()
        if (going_on := known.improvement(trial, level)) is None:
            return False
        new = known.improvement_of_new(level)
        return new is not None and new > going_on

    def finish(self) -> None:
        """The search is over: its winners run with other seeds, as far as that fits, and then it ends."""
        made = self.draft
        started = self.facts.stopped or bool(self.spent) or self.confirm()
        if not started or made.rows("confirming"):
            return
        why = self.spent or self.closed() or "no trial can go on"
        # Those of a study that was stopped go on when it is resumed.
        for _, number in [] if self.facts.stopped else list(made.rows("paused")):
            made.do(End(number, made.view.trials[number].latest, f"the study is over: {why}"))
        made.do(Finish(why, summary(made.view, why)))

    def confirm(self) -> bool:
        """Whether all runs that confirm winners have started, of those for which there is money and time."""
        confirm, view = self.spec.confirm, self.draft.view
        if confirm is None:
            return True
        known = {(one.of, one.seed) for one in view.trials.values() if one.origin == "confirm"}
        missing = [
            (trial, seed)
            for trial in winners(view, confirm.top)
            for seed in range(1, confirm.seeds + 1)
            if (trial.number, seed) not in known
        ]
        for trial, seed in missing:
            if not self.draft.fits_to_confirm():
                return True
            if self.draft.free <= 0:
                return False
            made = replace(self.new("confirm", 0), params=trial.params, by="confirm", of=trial.number, seed=seed)
            last = max(len(self.spec.pools) - 1, 0)  # the pool of winners
            self.draft.do(replace(made, rung=last, note=f"trial {trial.number} with another seed"))
        return True

    def waits(self) -> str:
        done = self.facts.stopped or self.spent or self.draft.view.closed or self.draft.free <= 0
        return "" if done else f"`{self.stopping.NAME}` waits for trials that run"
