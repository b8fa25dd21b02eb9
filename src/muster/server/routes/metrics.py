"""Metrics of a run: its series with their summaries, and curves with a limited number of buckets."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import Annotated, Final, cast

from fastapi import Path, Query

from muster.api.metrics import CurveView, SeriesList, SeriesView
from muster.core.errors import NotFound
from muster.core.suggest import close_matches
from muster.server.context import HEAVY, Caller, Leading, Tracked
from muster.server.record_context import RunRef, find_run
from muster.server.typed_routes import needs, typed_router
from muster.track.metrics.shapes import Axis, Curve, Series
from muster.track.metrics.smooth import WEIGHT_MAX
from muster.track.metrics.store import BUCKETS_MAX
from muster.wire import NAME_MAX

_HARDWARE: Final = "system/"
_BOOKKEEPING: Final = "ledger"  # of muster.train: proves something, and measures nothing
router = typed_router(prefix="/v1/runs/{ref}/metrics", tags=["metrics"])

MetricName = Annotated[str, Path(min_length=1, max_length=NAME_MAX, pattern=r"^[^\x00]*$")]
Rank = Annotated[int | None, Query(ge=0, le=2**31 - 1, description="the lowest that reported the metric when left out")]
Attempt = Annotated[int | None, Query(ge=0, le=2**31 - 1, description="one attempt, all of it")]
Edge = Annotated[float | None, Query(ge=-(2**63), le=2**63, allow_inf_nan=False)]


@router.get("", dependencies=HEAVY, openapi_extra=needs("viewer"))
def series(
    ref: RunRef,
    leader: Leading,
    track: Tracked,
    caller: Caller,
    rank: Rank = None,
    curves: Annotated[int, Query(ge=0, le=8, description="to add: those that a page shows first")] = 0,
    buckets: Annotated[int, Query(ge=1, le=BUCKETS_MAX, description="of these curves")] = 600,
) -> SeriesList:
    """Every series with its last value, extremes and counts; the series of the run itself come first."""
    run = find_run(leader, track, caller, ref)
    found = track.metrics.series(run.id, rank)
    answer: SeriesList = {"id": run.id, "series": [_series_view(one) for one in found]}
    if curves:
        names = _shown_first({one.name for one in found})[:curves]
        drawn = [track.metrics.curve(run.id, name, rank=rank, buckets=buckets) for name in names]
        answer["curves"] = [curve_view(run.id, one) for one in drawn]
    return answer


@router.get("/{name:path}", dependencies=HEAVY, openapi_extra=needs("viewer"))
def curve(
    ref: RunRef,
    name: MetricName,
    leader: Leading,
    track: Tracked,
    caller: Caller,
    buckets: Annotated[int, Query(ge=1, le=BUCKETS_MAX)] = 2000,
    start: Edge = None,
    stop: Annotated[Edge, Query(description="where the range ends; itself not in it")] = None,
    axis: Axis = "step",
    rank: Rank = None,
    attempt: Attempt = None,
    superseded: Annotated[bool, Query(description="with what a restart went back behind")] = False,
    smooth: Annotated[
        float,
        Query(ge=0, le=WEIGHT_MAX, description="weight of what was before, in a moving average over all points"),
    ] = 0,
) -> CurveView:
    """At most `buckets` buckets in the order of the axis, as arrays of equal length; a bucket of one is the point
    itself. With `smooth`, also a moving average: over all points, also those before the range, and not over buckets.

    Numbers that JSON does not have are text: "NaN", "Infinity", "-Infinity".
    """
    run = find_run(leader, track, caller, ref)
    found = track.metrics.curve(
        run.id, name, rank=rank, attempt=attempt, buckets=buckets, start=start, stop=stop, axis=axis,
        superseded=superseded, smooth=smooth,
    )  # fmt: skip
    if not len(found.buckets):
        _check_there(track.metrics.series(run.id), name, rank)
    return curve_view(run.id, found)


def curve_view(run: str, curve: Curve) -> CurveView:
    arrays = {field.name: getattr(curve.buckets, field.name).tolist() for field in fields(curve.buckets)}
    view = {
        "id": run,
        "name": curve.name,
        "rank": curve.rank,
        "axis": curve.axis,
        "points": curve.points,
        "raw": curve.raw,
        **arrays,
        "attempt": curve.attempt.tolist(),
        "bands": [asdict(band) for band in curve.bands],
        **({"smooth": curve.smooth.tolist()} if curve.smooth is not None else {}),
    }
    return cast(CurveView, view)


def _series_view(series: Series) -> SeriesView:
    return cast(SeriesView, {"name": series.name, "rank": series.rank, **asdict(series.summary)})


def _shown_first(names: set[str]) -> list[str]:
    """Metrics in the order of a run's page: by what stands before the first slash, losses first. Without hardware."""
    measured = [name for name in names if not name.startswith(_HARDWARE) and name != _BOOKKEEPING]
    return sorted(measured, key=lambda name: (_group(name), "loss" not in name, name.casefold()))


def _group(name: str) -> str:
    prefix, slash, _ = name.partition("/")
    return prefix.casefold() if slash else ""


def _check_there(series: list[Series], name: str, rank: int | None) -> None:
    names = sorted({one.name for one in series if rank in (None, one.rank)})
    if name in names:
        return
    near = close_matches(name, names) or names[:5]
    of = "" if rank is None else f" of rank {rank}"
    hint = f"There is {', '.join(near)}." if near else "It has none yet."
    raise NotFound(f"The run has no metric {name!r}{of}.", hint)
