"""How a study stands, and its report, from the state, the jobs of its trials and their curves in the record."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from muster.api.numbers import json_number
from muster.api.studies import StudyLine, StudyReport, StudyStatus, TrialRow
from muster.core.entities.price_book import book_of, prices_of
from muster.core.entities.study import Study, StudyProgress, Trial, progress_of, trials_of
from muster.core.job import Job
from muster.core.state import State
from muster.cost.charge import accrued_at
from muster.track.metrics import Metrics
from muster.tune.report import (
    Importance,
    LearningCurve,
    StudyFacts,
    TrialRun,
    curve_numbers,
    limits,
    marks_of,
    study_report,
    study_status,
)
from muster.tune.report.ranking import ranking
from muster.tune.report.rows import row
from muster.tune.spec import StudySpec
from muster.tune.view import StudyView, view_of

POINTS: Final = 400  # of a curve that is read
_QUEUED: Final = frozenset({"queued", "starting"})


@dataclass(frozen=True, slots=True)
class Seen:
    """A study as it was between two commits; nothing of it changes any more."""

    study: Study
    progress: StudyProgress
    trials: Mapping[int, Trial]
    runs: Mapping[int, TrialRun]
    currency: str

    def view(self) -> StudyView:
        return view_of(StudySpec.of(self.study.doc), self.study, self.trials, self.progress.changes)

    def facts(self, now: float, curves: Mapping[int, LearningCurve]) -> StudyFacts:
        return StudyFacts(self.study, now, self.progress.wait, self.currency, self.runs, curves)


def see(state: State, study: Study, now: float) -> Seen:
    trials = dict(trials_of(state, study.id))
    runs = {}
    for number in state.live_trials.get(study.id, ()):
        job = state.jobs.get(trials[number].job)
        if job is not None:
            runs[number] = _run(state, trials[number], job, now)
    return Seen(study, progress_of(state, study.id), trials, runs, book_of(state).currency)


def status_of(seen: Seen, now: float, importance: Importance | None) -> StudyStatus:
    """Without `importance` that of the parameters is left out, which costs more than all else together."""
    return study_status(seen.view(), seen.facts(now, {}), importance or _unknown)


def report_of(seen: Seen, now: float, metrics: Metrics, importance: Importance | None) -> StudyReport:
    view = seen.view()
    curves = {number: _curve(view.trials[number], view, metrics) for number in curve_numbers(view)}
    return study_report(view, seen.facts(now, curves), importance or _unknown)


def rows_of(
    seen: Seen, now: float, wanted: Callable[[Trial], bool], after: int, limit: int, best_first: bool = False
) -> tuple[list[TrialRow], int | None]:
    """Trials by number after `after`, and where the next page begins.

    With `best_first` those that have a rank come first, and `after` is a place in that order.
    """
    view, facts = seen.view(), seen.facts(now, {})
    ranks = ranking(view)
    if best_first:
        last = len(ranks.order) + 1
        every = sorted(view.trials.values(), key=lambda one: (ranks.ranks.get(one.number, last), one.number))
        some = [one for one in every if wanted(one)][after + 1 :]
        return [row(one, facts, ranks) for one in some[:limit]], after + limit if len(some) > limit else None
    found = [one for number, one in sorted(view.trials.items()) if number > after and wanted(one)]
    shown = found[:limit]
    return [row(one, facts, ranks) for one in shown], shown[-1].number if len(found) > limit else None


def line_of(seen: Seen, phase: str, why: str, now: float) -> StudyLine:
    study, view = seen.study, seen.view()
    best = view.best()
    cost = seen.progress.spent + sum(one.cost for one in seen.runs.values())
    return {
        "id": study.id,
        "name": study.name,
        "project": study.project,
        "user": study.user,
        "state": "ended" if study.ended_at is not None else "stopping" if study.stopped is not None else "running",
        "phase": phase,
        "began": study.created_at,
        "ended": study.ended_at,
        "objective": view.spec.objective.metric,
        "direction": view.spec.objective.direction,
        "best": json_number(best.latest[0]) if best is not None and best.latest is not None else None,
        "best_trial": best.number if best is not None else None,
        "trials": len(seen.trials),
        "live": sum(one.live for one in seen.trials.values()),
        "limit": view.spec.trials,
        "cost": cost,
        "currency": seen.currency,
        "ends_in": limits(view, seen.facts(now, {}))["ends_in"] if study.ended_at is None else None,
        "why": why,
    }


def see_all(state: State, studies: Iterable[Study], now: float) -> list[Seen]:
    return [see(state, one, now) for one in studies]


def _unknown(view: StudyView) -> Mapping[str, float]:
    return {}


def _run(state: State, trial: Trial, job: Job, now: float) -> TrialRun:
    attempt, cost = job.attempt, job.spent + accrued_at(prices_of(state), job, now) - trial.cost
    ran = job.ran
    if attempt is not None and attempt.running_at is not None and attempt.ended_at is None:
        ran += now - attempt.running_at
    pool = attempt.pool if attempt is not None and job.active else job.pool or ""
    number = attempt.number if attempt is not None else 0
    return TrialRun(job.phase in _QUEUED, pool, number, cost, ran - trial.seconds)


def _curve(trial: Trial, view: StudyView, metrics: Metrics) -> LearningCurve:
    if not trial.job:
        return LearningCurve(())
    curve = metrics.curve(trial.job, view.spec.objective.metric, buckets=POINTS)
    found = curve.buckets
    points = [(float(step), float(value)) for step, value in zip(found.last_step, found.last, strict=True)]
    firsts = [float(one.first_step) for one in curve.bands if one.first_step is not None]
    return LearningCurve(points, marks_of(trial, firsts))
