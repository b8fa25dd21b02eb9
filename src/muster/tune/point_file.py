"""Points of a space that somebody wrote: as values of a request, or as texts of a record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from muster.core.errors import SpecError
from muster.core.field_reader import FieldReader
from muster.core.report import Plain, Report
from muster.tune.space import Space, Value, is_there
from muster.tune.space_file import read_point, read_value

HINT: Final = "Correct each and send them again."


def read_points(space: Space, raw: Sequence[Mapping[str, Any]]) -> list[dict[str, Value]]:
    """Raises SpecError with every mistake."""
    report = Report()
    reader = FieldReader(report)
    points = [read_point(reader, space, one, ("points", index)) for index, one in enumerate(raw)]
    if report.found:
        raise SpecError(report.problems(), "The points", HINT)
    return points


def point_of_texts(space: Space, texts: Mapping[str, str]) -> dict[str, Value] | None:
    """The point that recorded parameters are; None if they are none of this space. Others are passed over."""
    point: dict[str, Value] = {}
    for one in space.parameters:
        if not is_there(one, point):
            continue
        if one.name not in texts:
            return None
        value = read_value(Plain(texts[one.name]))
        fitting = [each for each in _readings(value, texts[one.name]) if one.fits(each)]
        if not fitting:
            return None
        point[one.name] = fitting[0]
    return point


def _readings(value: Value, text: str) -> list[Value]:
    """A record has texts alone: `1` may be the number, a float, a flag or the text."""
    found: list[Value] = [value, text]
    if isinstance(value, int | float) and not isinstance(value, bool):
        found.append(float(value))
        if value == int(value):
            found.append(int(value))
        if value in (0, 1):
            found.append(bool(value))
    return found
