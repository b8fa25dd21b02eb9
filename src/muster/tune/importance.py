"""Importance of parameters: how much of what the model of a study explains each of them changes.

A parameter's share is what the expected value varies by when that parameter alone is drawn anew and the others stay, on
the average over the space (its total effect, of Sobol's analysis of variance). A parameter counts with what it does
together with others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from muster.tune.model.cube import Array, Cube
from muster.tune.model.gaussian import Gaussian, NotComputable
from muster.tune.model.surrogate import Surrogate
from muster.tune.sequence import sobol_point
from muster.tune.view import StudyView

FEWEST: Final = 10  # trials with values
_POINTS: Final = 512
_SHAPES: Final = 8
_SPREAD: Final = 0.3  # of the logarithms of a shape's numbers
_SEED: Final = 0  # of the points: the same trials always have the same importance


@dataclass(frozen=True, slots=True)
class Explained:
    """`shares` by parameter, which add up to 1, with the least and the most that shapes of the model bring which fit
    nearly as well. `part`: of the differences between trials, how much the model foretells of each from the others."""

    shares: Mapping[str, tuple[float, float, float]]
    part: float


def importance(view: StudyView) -> Mapping[str, float]:
    """The share of each parameter; nothing while too few trials have values."""
    found = explained(view)
    return {name: share for name, (share, _, _) in found.shares.items()} if found is not None else {}


def explained(view: StudyView) -> Explained | None:
    """Of the first objective. None while too few trials have values, or if all of them are the same."""
    surrogate = Surrogate(replace(view.spec, objectives=view.spec.objectives[:1]))
    evidence = surrogate.evidence(view)
    losses = evidence.losses[~np.isnan(evidence.losses[:, 0]), 0]
    if len(losses) < FEWEST or np.ptp(losses) == 0.0:
        return None
    try:
        process = surrogate.fitted(view, evidence, np.ones(1)).value
        return _explained(surrogate.records.cube, process)
    except NotComputable:
        return None


def _explained(cube: Cube, process: Gaussian) -> Explained | None:
    random = np.random.default_rng(_SEED)
    steps = random.normal(0.0, _SPREAD, size=(_SHAPES, len(process.shape.lengths) + 2))
    found = [_shares(cube, process)] + [_shares(cube, process.shaped(process.shape.moved(one))) for one in steps]
    if not found[0].any():
        return None
    columns = zip([one.name for one in cube.space.parameters], np.array(found).T.tolist(), strict=True)
    unforeseen = float(np.mean(process.surprises() ** 2) / max(float(process.values.var()), 1e-12))
    shares = {name: (of[0], min(of), max(of)) for name, of in columns}
    return Explained(shares, min(max(1.0 - unforeseen, 0.0), 1.0))


def _shares(cube: Cube, process: Gaussian) -> Array:
    """Of each parameter, by two sets of points: one of them with one parameter of the other after another."""
    both = np.array([sobol_point(2 * cube.width, index, _SEED) for index in range(_POINTS)])
    here, there = both[:, : cube.width], both[:, cube.width :]
    base, effects = _expected(cube, process, here), np.zeros(cube.width)
    for index in range(cube.width):
        moved = here.copy()
        moved[:, index] = there[:, index]
        effects[index] = 0.5 * float(np.mean((base - _expected(cube, process, moved)) ** 2))
    return np.asarray(effects / effects.sum() if effects.sum() > 1e-12 else effects)


def _expected(cube: Cube, process: Gaussian, raw: Array) -> Array:
    return process.mean(process.likeness(cube.coordinates(*cube.fitted(raw))))
