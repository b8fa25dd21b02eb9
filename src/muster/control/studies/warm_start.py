"""What a study begins with: points that were tried elsewhere, and the region of its space that was good there."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from muster.core.entities.study import Trial, trials_of
from muster.core.errors import Invalid, NotFound
from muster.core.state import State
from muster.store.base import JobFilter, Store
from muster.track.tracking import Tracking
from muster.tune.point_file import point_of_texts
from muster.tune.space import Parameter, Space
from muster.tune.spec import StudySpec

MOST: Final = 500  # points
GOOD: Final = 0.2  # the part of a study's best trials whose region counts
LEAST_GOOD: Final = 5
LEAST_WIDTH: Final = 0.1  # of a parameter's range that is kept in any case

Prior = list[dict[str, Any]]  # see `Study.prior`


def warmed(
    store: Store, track: Tracking, state: State, projects: Sequence[str] | None, spec: StudySpec
) -> tuple[StudySpec, Prior, list[str]]:
    """The spec, with a smaller space where the file asks for that; the points; and what is worth saying of them.

    `projects`: those whose runs may be read; None: all.
    """
    kind, _, rest = spec.warm_start.partition(" ")
    if kind == "runs":
        return _of_runs(track, projects, spec, rest.strip().removeprefix("where").strip())
    if kind == "study":
        return _of_study(store, state, projects, spec, rest.strip())
    return spec, [], []


def _of_runs(
    track: Tracking, projects: Sequence[str] | None, spec: StudySpec, query: str
) -> tuple[StudySpec, Prior, list[str]]:
    found = track.search.find(query, projects=projects, limit=1000)
    params, summaries = track.runs.params(found.ids), track.metrics.summaries(found.ids)
    prior: Prior = []
    for run in found.ids:
        point = point_of_texts(spec.space, params.get(run, {}))
        known = summaries.get(run, {})
        if point is None or any(one.metric not in known for one in spec.objectives):
            continue
        values = []
        for one in spec.objectives:
            summary = known[one.metric]
            best = summary.low if one.direction == "minimize" else summary.high
            values.append(summary.last if one.take == "last" or best is None else best)
        if all(map(math.isfinite, values)):
            prior.append({"params": point, "values": values, "from": run})
    return spec, _most(spec, prior), [_told(len(found.ids), "runs", len(prior), query)]


def _of_study(
    store: Store, state: State, projects: Sequence[str] | None, spec: StudySpec, name: str
) -> tuple[StudySpec, Prior, list[str]]:
    study = state.studies.get(name) or _by_name(store, state, projects, name)
    if study is None or (projects is not None and study.project not in projects):
        raise NotFound(f"There is no study {name!r} that you can see, for `warm_start`.", "See `muster tune ls --all`.")
    other = StudySpec.of(study.doc)
    if [one.metric for one in other.objectives] != [one.metric for one in spec.objectives]:
        raise Invalid(
            f"Study {study.id} has another objective: {', '.join(one.metric for one in other.objectives)}.",
            "Warm start from a study of the same metrics.",
        )
    sign = other.objective.sign
    done = [one for one in trials_of(state, study.id).values() if one.outcome == "complete" and one.values]
    done = sorted(done, key=lambda one: sign * (one.values or (0.0,))[0])
    notes = []
    if spec.widen:
        good = done[: max(LEAST_GOOD, int(GOOD * len(done)))]
        spec = replace(spec, space=narrowed(spec.space, good, spec.widen))
        notes.append(f"the space is the region of the {len(good)} best trials of {study.id}, times {spec.widen:g}")
    prior: Prior = [
        {"params": dict(one.params), "values": list(one.values or ()), "from": one.job or one.key}
        for one in done
        if spec.space.fits(one.params)
    ]
    return spec, _most(spec, prior), [*notes, _told(len(done), "trials", len(prior), study.id)]


def narrowed(space: Space, good: Sequence[Trial], widen: float) -> Space:
    """Numbers get the range of the good trials, `widen` times as wide, within their own; choices stay."""
    if len(good) < LEAST_GOOD:
        return space
    return Space(tuple(_narrowed(one, good, widen) for one in space.parameters))


def _narrowed(one: Parameter, good: Sequence[Trial], widen: float) -> Parameter:
    values = [trial.params[one.name] for trial in good if one.name in trial.params]
    if one.kind == "choice" or len(values) < LEAST_GOOD or not all(map(one.fits, values)) or one.high <= one.low:
        return one
    places = [_along(one, float(value)) for value in values]
    middle, half = (min(places) + max(places)) / 2, max((max(places) - min(places)) * widen, LEAST_WIDTH) / 2
    low, high = _back(one, max(middle - half, 0.0)), _back(one, min(middle + half, 1.0))
    if one.step is not None:
        low = one.low + math.floor((low - one.low) / one.step + 1e-9) * one.step
        high = min(one.low + math.ceil((high - one.low) / one.step - 1e-9) * one.step, one.high)
    if one.kind == "int":
        low, high = math.floor(low), math.ceil(high)
    return replace(one, low=float(max(low, one.low)), high=float(min(high, one.high)))


def _along(one: Parameter, value: float) -> float:
    if one.log:
        return math.log(value / one.low) / math.log(one.high / one.low)
    return (value - one.low) / (one.high - one.low)


def _back(one: Parameter, place: float) -> float:
    return one.low * (one.high / one.low) ** place if one.log else one.low + place * (one.high - one.low)


def _by_name(store: Store, state: State, projects: Sequence[str] | None, name: str) -> Any:
    found = store.jobs(JobFilter(projects=projects, name=name, limit=20))
    return next((state.studies[job.id] for job in found if job.id in state.studies), None)


def _most(spec: StudySpec, prior: Prior) -> Prior:
    """The best ones, if there are many."""
    sign = spec.objective.sign
    return sorted(prior, key=lambda one: sign * one["values"][0])[:MOST]


def _told(found: int, what: str, used: int, where: str) -> str:
    return f"warm start: {used} of {found} {what} ({where}) are points of the space with values of the objective"
