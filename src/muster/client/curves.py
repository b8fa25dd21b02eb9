"""The curves of a run as the clients return them: in buckets, or every point."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from muster.api.numbers import number
from muster.core.errors import Unavailable

if TYPE_CHECKING:
    from muster.api.metrics import BandView, CurveView
    from muster.api.words import Axis

FrameKind = Literal["pandas", "polars"]
_POINT_BYTES: Final = 28  # step i64, time f64, value f64, attempt i32


@dataclass(frozen=True, slots=True)
class Curve:
    """At most as many buckets as requested, ordered along the axis; lists of equal length.

    A bucket of a single point has that point's value in `low`, `high`, `mean` and `last`. `bands`: which attempt
    contributed which steps, and from where on a later attempt superseded it.
    """

    name: str
    axis: Axis
    points: int
    first_step: list[int]
    last_step: list[int]
    first_time: list[float]
    last_time: list[float]
    count: list[int]
    nans: list[int]
    low: list[float]
    high: list[float]
    mean: list[float]
    last: list[float]
    attempt: list[int]
    bands: list[BandView]


@dataclass(frozen=True, slots=True)
class Points:
    """Every point of a series, ordered by step; `numpy.asarray` uses the arrays without a copy."""

    step: array[int]
    time: array[float]
    value: array[float]
    attempt: array[int]

    def __len__(self) -> int:
        return len(self.step)


def curve_of(view: CurveView) -> Curve:
    """From the API's view of a curve."""
    whole: Mapping[str, Any] = view
    numbers = {key: [number(one) for one in whole[key]] for key in ("low", "high", "mean", "last")}
    return Curve(**{key: whole[key] for key in _CURVE} | numbers)


def points_of(body: bytes, what: str) -> Points:
    """From the bytes of the API, column by column; `what` names them in an error."""
    count, rest = divmod(len(body), _POINT_BYTES)
    if rest:
        raise Unavailable(f"The points of {what} came cut off.", "Ask again.")
    columns = (array("q"), array("d"), array("d"), array("i"))
    at = 0
    for column in columns:
        column.frombytes(body[at : at + count * column.itemsize])
        at += count * column.itemsize
    return Points(*columns)


_CURVE: Final = (
    "name", "axis", "points", "first_step", "last_step", "first_time", "last_time", "count", "nans", "low", "high",
    "mean", "last", "attempt", "bands",
)  # fmt: skip
