"""A run as the clients return it: its captured data, metrics and notes, and its curves as numbers and data frames."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from muster.api.numbers import number
from muster.api.words import FINAL
from muster.client import artifact_calls, record_calls, run_calls
from muster.client.blocking import blocking, iterating
from muster.client.connection import Anyone, run_path
from muster.client.curves import Curve, FrameKind, Points, curve_of, points_of

if TYPE_CHECKING:
    from muster.api.artifacts import ArtifactView
    from muster.api.logbook import NoteView
    from muster.api.metrics import SeriesView
    from muster.api.runs import Cell, CheckpointView, RunCells, RunDetail, RunView
    from muster.api.words import Axis, Kind, Phase

_TIMEOUT: Final = 120.0  # seconds without a byte


@dataclass(slots=True)
class RunData:
    """One run. Times are seconds since the epoch; `metrics` are the last values; `raw` is the JSON itself."""

    id: str
    name: str
    project: str
    user: str
    kind: Kind
    source: str
    phase: Phase
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
    raw: RunDetail | RunView | RunCells = field(repr=False, compare=False)
    client: Anyone = field(repr=False, compare=False)

    @classmethod
    def from_view(cls, view: RunDetail | RunView | RunCells, client: Anyone) -> Self:
        """Builds it from a search result, or from the full view of a run."""
        whole: Mapping[str, Any] = view
        facts = {name: whole[name] for name in _FACTS}
        given = {name: whole.get(name, {}) for name in ("params", "tags")}
        metrics = {name: number(value) for name, value in whole.get("metrics", {}).items()}
        return cls(**facts, **given, metrics=metrics, data=whole.get("data", []), raw=view, client=client)

    @property
    def final(self) -> bool:
        return self.phase in FINAL

    @property
    def cells(self) -> dict[str, Cell]:
        """The values requested with `columns`."""
        whole: Mapping[str, Any] = self.raw
        return whole.get("cells", {})


_FACTS: Final = (
    "id", "name", "project", "user", "kind", "source", "phase", "created_at", "started_at", "ended_at", "parent",
    "valid", "problems", "purpose", "attempts",
)  # fmt: skip
R = TypeVar("R", bound=RunData)


async def _refresh(run: R, /) -> R:
    """The current run, with everything that was captured in `raw`."""
    found: R = await run_calls.run(run.client, run.id)
    return found


async def _series(run: RunData, /, rank: int | None = None) -> list[SeriesView]:
    """Every series: name, rank, last value, extremes, counts."""
    return (await run.client._get(run_path(run.id, "metrics"), rank=rank))["series"]


async def _curve(
    run: RunData,
    /,
    name: str,
    buckets: int = 2000,
    *,
    start: float | None = None,
    stop: float | None = None,
    axis: Axis = "step",
    rank: int | None = None,
    attempt: int | None = None,
    superseded: bool = False,
) -> Curve:
    """The valid points of a metric in at most `buckets` buckets; `superseded` adds what restarts superseded."""
    where = {"start": start, "stop": stop, "rank": rank, "attempt": attempt}
    shown = {"buckets": buckets, "axis": axis, "superseded": superseded or None}
    return curve_of(await run.client._get(run_path(run.id, "metrics", name), **where, **shown))


async def _points(
    run: RunData,
    /,
    name: str,
    *,
    rank: int | None = None,
    start: int | None = None,
    stop: int | None = None,
    superseded: bool = False,
) -> Points:
    """All points, without rounding; `start` and `stop` are steps."""
    params = {"rank": rank, "start": start, "stop": stop, "part": "all" if superseded else None}
    body = await run.client._transport.read(run_path(run.id, "points", name), params, _TIMEOUT)
    return points_of(body, f"{name!r} of {run.id}")


async def _frame(
    run: RunData, /, names: Sequence[str] | None = None, kind: FrameKind = "pandas", *, superseded: bool = False
) -> Any:
    """One row per step of each attempt, one column per metric; all metrics of the run unless `names` is given."""
    # Metrics of the platform have other steps: seconds since the launch.
    own = (
        [one["name"] for one in await _series(run) if not one["name"].startswith("system/")] if names is None else names
    )
    points = {name: await _points(run, name, superseded=superseded) for name in dict.fromkeys(own)}
    # Imported late: it needs NumPy, which few calls need.
    return await run.client._transport.work(lambda: import_module("muster.client.frames").of_points(points, kind))


def _notes(run: RunData, /, search: str | None = None) -> AsyncGenerator[NoteView, None]:
    """The logbook, oldest first."""
    return record_calls.notes(run.client, run.id, search=search)


async def _note(run: RunData, /, text: str, step: int | None = None) -> NoteView:
    """Adds a note to the logbook."""
    return await record_calls.note(run.client, run.id, text, step=step)


async def _artifacts(run: RunData, /, prefix: str = "") -> list[ArtifactView]:
    """All files at or under a path."""
    return await artifact_calls.artifacts(run.client, run.id, prefix)


async def _checkpoints(run: RunData, /) -> list[CheckpointView]:
    """The saved checkpoints and how to load them, ordered by step."""
    return await record_calls.run_checkpoints(run.client, run.id)


async def _tag(run: R, /, **values: str | None) -> R:
    """Sets tags; None removes one."""
    run.tags = await record_calls.set_tags(run.client, run.id, values)
    return run


class Run(RunData):
    """A run of a `Client`."""

    __slots__ = ()

    refresh = blocking(_refresh)
    series = blocking(_series)
    curve = blocking(_curve)
    points = blocking(_points)
    frame = blocking(_frame)
    notes = iterating(_notes)
    note = blocking(_note)
    artifacts = blocking(_artifacts)
    checkpoints = blocking(_checkpoints)
    tag = blocking(_tag)


class AsyncRun(RunData):
    """A run of an `AsyncClient`; its methods are awaited."""

    __slots__ = ()

    refresh = _refresh
    series = _series
    curve = _curve
    points = _points
    frame = _frame
    notes = _notes
    note = _note
    artifacts = _artifacts
    checkpoints = _checkpoints
    tag = _tag
