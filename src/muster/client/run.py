"""A run as the client returns it: its captured data, metrics and notes, and its curves as numbers and data frames."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Literal
from urllib.parse import quote

from muster.core.errors import Unavailable
from muster.core.terms import FINAL

if TYPE_CHECKING:
    from muster.client.client import Client

FrameKind = Literal["pandas", "polars"]
_POINT_BYTES: Final = 28  # step i64, time f64, value f64, attempt i32
_PATIENCE: Final = 120.0  # seconds without a byte
_SPECIAL: Final = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


@dataclass(frozen=True, slots=True)
class Curve:
    """At most as many buckets as requested, ordered along the axis; lists of equal length.

    A bucket of a single point has that point's value in `low`, `high`, `mean` and `last`. `bands`: which attempt
    contributed which steps, and from where on a later attempt superseded it.
    """

    name: str
    axis: str
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
    bands: list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Points:
    """Every point of a series, ordered by step; `numpy.asarray` uses the arrays without a copy."""

    step: array[int]
    time: array[float]
    value: array[float]
    attempt: array[int]

    def __len__(self) -> int:
        return len(self.step)


@dataclass(slots=True)
class Run:
    """One run. Times are seconds since the epoch; `metrics` are the last values; `raw` is the JSON itself."""

    id: str
    name: str
    project: str
    user: str
    kind: str
    source: str
    phase: str
    created_at: float
    started_at: float | None
    ended_at: float | None
    parent: str | None
    valid: bool
    problems: list[str]
    purpose: str
    attempts: int
    params: dict[str, str]
    tags: dict[str, str]
    metrics: dict[str, float]
    data: list[str]
    raw: dict[str, Any] = field(repr=False, compare=False)
    client: Client = field(repr=False, compare=False)

    @classmethod
    def from_view(cls, view: dict[str, Any], client: Client) -> Run:
        """Builds it from a search result, or from the full view of a run."""
        metrics = {name: number(last_of(value)) for name, value in view.get("metrics", {}).items()}
        data = [one["ref"].removeprefix("data:") if isinstance(one, dict) else one for one in view.get("data", ())]
        facts = {name: view[name] for name in _FACTS}
        given = {"params": view.get("params", {}), "tags": view.get("tags", {}), "problems": list(view["problems"])}
        return cls(**facts, **given, metrics=metrics, data=data, raw=view, client=client)

    @property
    def final(self) -> bool:
        return self.phase in FINAL

    @property
    def cells(self) -> dict[str, Any]:
        """The values requested with `columns`."""
        found: dict[str, Any] = self.raw.get("cells", {})
        return found

    def refresh(self) -> Run:
        """The current run, with everything that was captured in `raw`."""
        return self.client.run(self.id)

    def series(self, rank: int | None = None) -> list[dict[str, Any]]:
        """Every series: name, rank, last value, extremes, counts."""
        return list(self.client.call("GET", self._path("metrics"), rank=rank)["series"])

    def curve(
        self,
        name: str,
        buckets: int = 2000,
        *,
        start: float | None = None,
        stop: float | None = None,
        axis: Literal["step", "time"] = "step",
        rank: int | None = None,
        attempt: int | None = None,
        superseded: bool = False,
    ) -> Curve:
        """The valid points of a metric in at most `buckets` buckets; `superseded` adds what restarts superseded."""
        where = {"start": start, "stop": stop, "rank": rank, "attempt": attempt}
        shown = {"buckets": buckets, "axis": axis, "superseded": superseded or None}
        view = self.client.call("GET", self._path("metrics", name), **where, **shown)
        view |= {key: [number(one) for one in view[key]] for key in ("low", "high", "mean", "last")}
        return Curve(**{key: view[key] for key in _CURVE})

    def points(
        self,
        name: str,
        *,
        rank: int | None = None,
        start: int | None = None,
        stop: int | None = None,
        superseded: bool = False,
    ) -> Points:
        """All points, without rounding; `start` and `stop` are steps."""
        params = {"rank": rank, "start": start, "stop": stop, "part": "all" if superseded else None}
        body = self.client.read(self._path("points", name), params, _PATIENCE)
        count, rest = divmod(len(body), _POINT_BYTES)
        if rest:
            raise Unavailable(f"The points of {name!r} of {self.id} came cut off.", "Ask again.")
        columns = (array("q"), array("d"), array("d"), array("i"))
        at = 0
        for column in columns:
            column.frombytes(body[at : at + count * column.itemsize])
            at += count * column.itemsize
        return Points(*columns)

    def frame(self, names: Sequence[str] | None = None, kind: FrameKind = "pandas", *, superseded: bool = False) -> Any:
        """One row per step of each attempt, one column per metric; all metrics of the run unless `names` is given."""
        wanted = [one["name"] for one in self.series() if not _of_system(one["name"])] if names is None else list(names)
        points = {name: self.points(name, superseded=superseded) for name in dict.fromkeys(wanted)}
        frames = import_module("muster.client.frames")  # imported late: it needs NumPy, which few calls need
        return frames.of_points(points, kind)

    def notes(self, search: str | None = None) -> Iterator[dict[str, Any]]:
        """The logbook, oldest first."""
        return self.client.notes(self.id, search=search)

    def note(self, text: str, step: int | None = None) -> dict[str, Any]:
        return self.client.note(self.id, text, step=step)

    def artifacts(self, prefix: str = "") -> list[dict[str, Any]]:
        return self.client.artifacts(self.id, prefix)

    def checkpoints(self) -> list[dict[str, Any]]:
        return self.client.run_checkpoints(self.id)

    def tag(self, **values: str | None) -> Run:
        """Sets tags; None removes one."""
        self.tags = self.client.set_tags(self.id, values)
        return self

    def _path(self, *parts: str) -> str:
        return "/".join(["/v1/runs", *(quote(one, safe="") for one in (self.id, *parts))])


def number(value: Any) -> float:
    """A number that JSON can't represent is sent as text."""
    return _SPECIAL[value] if isinstance(value, str) else float("nan") if value is None else value


def last_of(value: Any) -> Any:
    return value["last"] if isinstance(value, Mapping) else value


def _of_system(name: str) -> bool:
    """Metrics of the platform have other steps: seconds since the launch."""
    return name.startswith("system/")


_FACTS: Final = (
    "id", "name", "project", "user", "kind", "source", "phase", "created_at", "started_at", "ended_at", "parent",
    "valid", "purpose", "attempts",
)  # fmt: skip
_CURVE: Final = (
    "name", "axis", "points", "first_step", "last_step", "first_time", "last_time", "count", "nans", "low", "high",
    "mean", "last", "attempt", "bands",
)  # fmt: skip
