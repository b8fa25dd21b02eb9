"""Parameters that are a little different from others: what a population changes when a trial takes another's state."""

from __future__ import annotations

import numpy as np

from muster.tune.space import Parameter, Params, Space, Value, is_there


def mutated(
    space: Space, params: Params, random: np.random.Generator, factor: float, resample: float
) -> dict[str, Value]:
    """A point of the space. Each parameter is drawn anew with the probability `resample`; else a number is multiplied
    or divided by `factor`, or becomes its neighbour if that changes nothing; choices that are numbers become a
    neighbour, and others stay. A parameter that is there only by the new values of others is drawn.
    """
    chosen: dict[str, Value] = {}
    for one in space.parameters:
        # So many draws for each, so that no parameter depends on what became of another.
        again, place, up = random.random(3).tolist()
        if not is_there(one, chosen):
            continue
        if one.name not in params or again < resample:
            chosen[one.name] = one.at(place)
        else:
            chosen[one.name] = _moved(one, params[one.name], factor, up < 0.5)
    return chosen


def _moved(parameter: Parameter, value: Value, factor: float, up: bool) -> Value:
    if parameter.kind == "choice":
        return _neighbour(parameter.choices, value, up) if parameter.ordered else value
    assert isinstance(value, int | float)
    if parameter.low > 0:
        moved = value * factor if up else value / factor
    else:  # a factor would never pass zero: a part of the range instead
        moved = value + (factor - 1) / 2 * (parameter.high - parameter.low) * (1 if up else -1)
    found = parameter.at(parameter.place(min(max(moved, parameter.low), parameter.high)))
    if found == value and parameter.values is not None:
        return _neighbour(parameter.values, value, up)
    return found


def _neighbour(values: tuple[Value, ...], value: Value, up: bool) -> Value:
    """The next or the last one; at an end the other way."""
    index = values.index(value)
    moved = index + (1 if up else -1)
    return values[moved] if 0 <= moved < len(values) else values[max(min(2 * index - moved, len(values) - 1), 0)]
