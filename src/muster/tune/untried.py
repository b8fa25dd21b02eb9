"""Points of a space that a study may try once more."""

from __future__ import annotations

from typing import Final

import numpy as np

from muster.tune.records import Records
from muster.tune.space import Value

_TRIES: Final = 100  # draws before the points that are left are listed


def drawn(records: Records, random: np.random.Generator) -> dict[str, Value] | None:
    """One at random; None if there is none."""
    for _ in range(_TRIES):
        params = records.cube.point(random.random(records.cube.width))
        if records.may_try(params):
            return params
    points = left(records)
    return points[int(random.integers(len(points)))] if points else None


def left(records: Records) -> list[dict[str, Value]]:
    """All of them, if the space has few enough points to be listed."""
    space = records.spec.space
    return [params for params in space.points() if records.may_try(params)] if space.size is not None else []
