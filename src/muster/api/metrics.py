"""Metrics of a run: series with their summaries, and curves."""

from muster.api.numbers import JsonFloat
from muster.api.typed import NotRequired, TypedDict
from muster.api.words import Axis


class SummaryView(TypedDict):
    """`last` is the value with the highest (attempt, step, time). Extremes are null if every value was NaN."""

    points: int
    nans: int
    last: JsonFloat
    last_step: int
    last_time: float
    last_attempt: int
    low: JsonFloat | None
    low_step: int | None
    high: JsonFloat | None
    high_step: int | None


class SeriesView(SummaryView):
    name: str
    rank: int


class BandView(TypedDict):
    """The part of a curve that one attempt reported."""

    attempt: int
    first_step: int | None
    last_step: int | None
    superseded_from: int | None


class CurveView(TypedDict):
    """Buckets along the axis as arrays of equal length; a bucket of one is the point itself."""

    id: str
    name: str
    rank: int
    axis: Axis
    points: int
    raw: bool
    first_step: list[int]
    last_step: list[int]
    first_time: list[float]
    last_time: list[float]
    count: list[int]
    nans: list[int]
    low: list[JsonFloat]
    high: list[JsonFloat]
    mean: list[JsonFloat]
    last: list[JsonFloat]
    attempt: list[int]
    bands: list[BandView]
    smooth: NotRequired[list[JsonFloat]]  # the moving average in each bucket, if it was asked for


class SeriesList(TypedDict):
    id: str
    series: list[SeriesView]
    curves: NotRequired[list[CurveView]]  # that were asked for
