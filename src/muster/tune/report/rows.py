"""The trials that a report shows one by one: of many, a sample that never lacks the best or an extreme."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from muster.api.numbers import json_number
from muster.api.studies import PlacedRow, SampleView, TrialRow
from muster.core.entities.study import Trial
from muster.tune.report.axis import Axis
from muster.tune.report.facts import StudyFacts
from muster.tune.report.ranking import Ranking
from muster.tune.report.tallies import state_of
from muster.tune.view import StudyView

BEST: Final = 500  # trials that are shown in any case
SHOWN: Final = 1000  # and at least so many, if there are; the fronts and the extremes may be more
_OF_A_STATE: Final = 10  # the newest
_DIGITS: Final = 4  # of a place on an axis


def row(trial: Trial, facts: StudyFacts, ranks: Ranking, front: frozenset[int] = frozenset()) -> TrialRow:
    run, latest = facts.run(trial), trial.latest
    return {
        "number": trial.number,
        "rank": ranks.ranks.get(trial.number),
        "state": state_of(trial, facts),
        "params": dict(trial.params),
        "values": None if latest is None else [json_number(one) for one in latest],
        "final": trial.phase == "ended" and trial.values is not None,
        "violated": list(trial.violated),
        "extra": {name: json_number(value) for name, value in trial.extra.items()},
        "levels": len(trial.rungs),
        "step": trial.step,
        "origin": trial.origin,
        "by": trial.by,
        "of": trial.of,
        "replaces": trial.replaces,
        "seed": trial.seed,
        "bracket": trial.bracket,
        "note": trial.note,
        "began": trial.created_at,
        "ended": trial.ended_at,
        "cost": facts.cost(trial),
        "seconds": facts.seconds(trial),
        "starts": trial.starts,
        "attempts": run.attempts,
        "job": trial.job,
        "pool": run.pool,
        "front": trial.number in front,
    }


def rows(
    view: StudyView,
    facts: StudyFacts,
    ranks: Ranking,
    axes: Sequence[Axis],
    over: Sequence[Trial],
    fronts: Sequence[Iterable[int]],
) -> tuple[list[PlacedRow], SampleView]:
    """`over`: those that have ended, in their order. `fronts` are shown in any case; trials of the first are marked."""
    numbers = _sample(view, facts, ranks, {one for front in fronts for one in front})
    front = frozenset(fronts[0])
    last = len(ranks.order) + 1
    ordered = sorted(numbers, key=lambda one: (ranks.ranks.get(one, last), one))
    turns = {one.number: turn for turn, one in enumerate(over, start=1)}
    found = [_placed(row(view.trials[one], facts, ranks, front), axes, turns.get(one)) for one in ordered]
    every = len(found) == len(view.trials)
    sample: SampleView = {
        "trials": len(view.trials),
        "ranked": len(ranks.order),
        "shown": len(found),
        "best": min(len(ranks.order), len(found) if every else BEST),
        "rule": "" if every else _RULE,
    }
    return found, sample


def _placed(one: TrialRow, axes: Sequence[Axis], turn: int | None) -> PlacedRow:
    places = [axis.place(one["params"].get(axis.parameter.name)) for axis in axes]
    return {**one, "places": [None if place is None else round(place, _DIGITS) for place in places], "turn": turn}


def _sample(view: StudyView, facts: StudyFacts, ranks: Ranking, fronts: set[int]) -> set[int]:
    if len(view.trials) <= SHOWN:
        return set(view.trials)
    chosen = {one.number for one in ranks.order[:BEST]} | fronts | _extremes(view, facts, ranks)
    newest: dict[str, int] = {}
    for number in sorted(view.trials, reverse=True):
        state = state_of(view.trials[number], facts)
        newest[state] = newest.get(state, 0) + 1
        if newest[state] <= _OF_A_STATE:
            chosen.add(number)
    others = [number for number in sorted(view.trials) if number not in chosen]
    left = min(max(0, SHOWN - len(chosen)), len(others))
    return chosen | {others[len(others) * part // left] for part in range(left)}


def _extremes(view: StudyView, facts: StudyFacts, ranks: Ranking) -> set[int]:
    """The lowest and the highest of each parameter, the best and the worst of each objective, the dearest and the
    longest trial, the first and the last."""
    found = {min(view.trials), max(view.trials)}
    trials = list(view.trials.values())
    for parameter in view.spec.space.parameters:
        values = {one.number: one.params[parameter.name] for one in trials if parameter.name in one.params}
        if parameter.kind != "choice":
            found |= _ends({number: one for number, one in values.items() if isinstance(one, int | float)})
    for place in range(len(view.spec.objectives)):
        found |= _ends({one.number: one.latest[place] for one in ranks.order if one.latest is not None})
    found |= _ends({one.number: float(facts.cost(one)) for one in trials})
    return found | _ends({one.number: facts.seconds(one) for one in trials})


def _ends(values: Mapping[int, float]) -> set[int]:
    return {min(values, key=values.__getitem__), max(values, key=values.__getitem__)} if values else set()


_RULE: Final = (
    f"Of more than {SHOWN:,} trials, the charts show the best {BEST}, those on a front, the extremes of every "
    "parameter, objective, cost and time, the newest of each state, and of the others every n-th in the order of their "
    f"numbers, about {SHOWN:,} in all. Counts, sums, medians and the best are those of all trials."
)
