"""Trials by their state, and by what suggested them. Every trial is counted once in each."""

from __future__ import annotations

from muster.api.numbers import json_number
from muster.api.studies import TRIAL_STATES, SourceCount, StateCount, TrialState
from muster.core.entities.study import Trial
from muster.tune.report.facts import StudyFacts
from muster.tune.report.ranking import Ranking
from muster.tune.view import StudyView


def state_of(trial: Trial, facts: StudyFacts) -> TrialState:
    if trial.phase == "ended":
        return trial.outcome or "lost"
    if trial.phase == "running" and facts.run(trial).waits:
        return "queued"
    return trial.phase


def states(view: StudyView, facts: StudyFacts) -> list[StateCount]:
    """Those that have trials, in the order of `TRIAL_STATES`."""
    found: dict[TrialState, StateCount] = {
        state: {"state": state, "trials": 0, "cost": 0, "seconds": 0.0} for state in TRIAL_STATES
    }
    for trial in view.trials.values():
        one = found[state_of(trial, facts)]
        one["trials"] += 1
        one["cost"] += facts.cost(trial)
        one["seconds"] += facts.seconds(trial)
    return [one for one in found.values() if one["trials"]]


def sources(view: StudyView, ranks: Ranking) -> list[SourceCount]:
    """The most trials first."""
    found: dict[tuple[str, str], SourceCount] = {}
    for trial in view.trials.values():
        made: SourceCount = {"by": trial.by, "origin": trial.origin, "trials": 0, "complete": 0, "best": None}
        one = found.setdefault((trial.by, trial.origin), made)
        one["trials"] += 1
        one["complete"] += trial.outcome == "complete" and trial.phase == "ended"
    for trial in reversed(ranks.finished):
        assert trial.values is not None, "it has a rank among the complete ones"
        found[(trial.by, trial.origin)]["best"] = json_number(trial.values[0])
    return sorted(found.values(), key=lambda one: (-one["trials"], one["by"], one["origin"]))
