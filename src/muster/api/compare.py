"""A comparison of runs."""

from typing import Literal

from muster.api.numbers import JsonFloat
from muster.api.runs import RunView
from muster.api.typed import NotRequired, TypedDict


class ValueRow(TypedDict):
    """A name with the value of each run; null where a run has none."""

    name: str
    values: list[str | None]


class MetricFigures(TypedDict):
    last: JsonFloat | None
    min: JsonFloat | None
    max: JsonFloat | None
    step: int | None
    time: float | None
    points: int
    nans: int


class MetricRow(TypedDict):
    name: str
    runs: list[MetricFigures | None]


class FileCounts(TypedDict):
    added: int
    removed: int
    changed: int


class ChangedFiles(TypedDict):
    """How one snapshot differs from another."""

    added: list[str]
    removed: list[str]
    changed: list[str]
    counts: NotRequired[FileCounts]  # not if the snapshot can't be read
    diff: str | None
    problem: str


class FileChanges(ChangedFiles):
    run: str


class ComparedFiles(TypedDict):
    base: str
    changes: list[FileChanges]


class GroupView(TypedDict):
    """Runs that differ only in their seed; `low` and `high` are the confidence interval of the mean."""

    label: str
    runs: list[str]
    best: bool
    count: int
    mean: JsonFloat | None
    deviation: JsonFloat | None
    low: JsonFloat | None
    high: JsonFloat | None


class DifferenceView(TypedDict):
    """Mean of the first group minus mean of the second; `p` is null if no test is possible."""

    first: int
    second: int
    difference: JsonFloat | None
    low: JsonFloat | None
    high: JsonFloat | None
    t: JsonFloat | None
    freedom: JsonFloat | None
    p: JsonFloat | None
    adjusted: JsonFloat | None
    why: str
    labels: list[str]


class SignificanceView(TypedDict):
    metric: str
    name: str
    mode: Literal["min", "max"]
    by: list[str]
    groups: list[GroupView]
    differences: list[DifferenceView]
    left_out: list[str]
    notes: list[str]


class Comparison(TypedDict):
    """Rows are by space: params, configuration, environment, packages, code, data."""

    runs: list[RunView]
    differences: dict[str, list[ValueRow]]
    same: dict[str, int]
    equal: NotRequired[dict[str, list[ValueRow]]]
    files: ComparedFiles | None
    metrics: list[MetricRow]
    significance: SignificanceView | None


class ComparedCurve(TypedDict):
    """Buckets along the steps, as arrays of equal length; `step` and `time` are those of the last point of each."""

    run: str
    step: list[int]
    time: list[float]
    low: list[JsonFloat]
    high: list[JsonFloat]
    mean: list[JsonFloat]


class ComparedCurves(TypedDict):
    """Without the runs that lack the metric."""

    name: str
    curves: list[ComparedCurve]
