"""The point that a model suggests next: where the most is to be gained, by time or money if that differs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import numpy as np

from muster.tune.evidence import Evidence
from muster.tune.model.candidates import MOST_LISTED, anywhere, around
from muster.tune.model.cube import Array, Cube
from muster.tune.model.gaussian import NotComputable, Watched
from muster.tune.model.surrogate import Surrogate
from muster.tune.plugin import Suggestion
from muster.tune.records import Records
from muster.tune.sequence import sobol_point
from muster.tune.space import Value
from muster.tune.spec import StudySpec
from muster.tune.untried import drawn, left
from muster.tune.view import StudyView

Score = Callable[[Array], Array]  # of coordinates, the larger the better
DRAWN: Final = 400
CENTERS: Final = 5
EACH: Final = 50  # neighbours of a center
CLIMBS: Final = 3
_DIGITS: Final = 9  # of scores: what differs by less is equal, and the first one counts


@dataclass(frozen=True, slots=True)
class Settings:
    """`start`: points that are spread evenly before the model is asked. `thrift`: the power of 1 + a trial's cost, by
    the usual cost, that its gain is divided by."""

    start: int
    thrift: float


class ModelSearch:
    def __init__(self, spec: StudySpec, settings: Settings, name: str) -> None:
        self.spec, self.settings, self.name = spec, settings, name
        self.surrogate = Surrogate(spec)

    def ask(self, view: StudyView, number: int) -> Suggestion | None:
        random = np.random.default_rng((view.seed, number))
        evidence = self.surrogate.evidence(view)
        if np.sum(~np.isnan(evidence.losses[:, 0])) < self.settings.start:
            return self._suggestion(self._even(view, number, random))
        try:
            return self._suggestion(self._modelled(view, evidence, random))
        except NotComputable:
            return self._suggestion(
                drawn(self.surrogate.records, random), "the model could not be computed: drawn at random"
            )

    def _suggestion(self, params: dict[str, Value] | None, note: str = "") -> Suggestion | None:
        return Suggestion(params, self.name, note) if params is not None else None

    def _even(self, view: StudyView, number: int, random: np.random.Generator) -> dict[str, Value] | None:
        cube = self.surrogate.records.cube
        params = cube.point(sobol_point(cube.width, number, view.seed))
        return params if self.surrogate.records.may_try(params) else drawn(self.surrogate.records, random)

    def _modelled(self, view: StudyView, evidence: Evidence, random: np.random.Generator) -> dict[str, Value] | None:
        surrogate = self.surrogate
        fitted = surrogate.fitted(view, evidence, random.dirichlet(np.ones(len(self.spec.objectives))))
        watched = Watched(fitted.value, surrogate.pending(evidence))

        def score(coordinates: Array) -> Array:
            gain = fitted.log_gain(coordinates, watched) + fitted.log_allowed(coordinates)
            return gain - self.settings.thrift * fitted.log_cost(coordinates)

        places, scores = searched(surrogate.records, evidence, score, random)
        for index in np.argsort(-scores, kind="stable"):
            params = surrogate.records.cube.point(places[index])
            if surrogate.records.may_try(params):
                return params
        return drawn(surrogate.records, random)


def searched(records: Records, evidence: Evidence, score: Score, random: np.random.Generator) -> tuple[Array, Array]:
    """Places and scores of points: of all that are left, in a small space; else of some anywhere, and of neighbours of
    the best trials and of the best of those, several times."""
    cube, size = records.cube, records.spec.space.size
    if size is not None and size <= MOST_LISTED:
        places = np.array([cube.place(params) for params in left(records)]).reshape(-1, cube.width)
        return places, _scored(cube, places, score)[1]
    raw = [anywhere(cube, random, DRAWN), around(cube, random, _best_places(records, evidence), EACH)]
    places, scores = _scored(cube, np.concatenate(raw), score)
    for _ in range(CLIMBS):
        best = np.argsort(-scores, kind="stable")[:CENTERS]
        more, gained = _scored(cube, around(cube, random, places[best], EACH // 2), score, places)
        places, scores = np.concatenate([places, more]), np.concatenate([scores, gained])
    return places, scores


def _scored(cube: Cube, raw: Array, score: Score, known: Array | None = None) -> tuple[Array, Array]:
    """Each point once, and none of those that are known: small steps often lead to the same few."""
    places, there = cube.fitted(raw)
    seen = {row.tobytes(): -1 for row in known} if known is not None else {}
    for index, row in enumerate(places):
        seen.setdefault(row.tobytes(), index)
    first = [index for index in seen.values() if index >= 0]
    places, there = places[first], there[first]
    return places, np.round(score(cube.coordinates(places, there)), _DIGITS)


def _best_places(records: Records, evidence: Evidence) -> Array:
    losses = np.where(evidence.refused | (evidence.numbers < 0), np.inf, evidence.losses[:, 0])
    order = np.argsort(np.where(np.isnan(losses), np.inf, losses), kind="stable")[:CENTERS]
    numbers = evidence.numbers[order]
    return np.asarray(records.rows.places[numbers[numbers >= 0]])
