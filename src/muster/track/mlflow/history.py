"""MLflow's calls for points of metrics: all points, those of several runs, or a sample for a chart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from muster.track.metrics.shapes import Points
from muster.track.mlflow.context import MlflowContext
from muster.track.mlflow.faults import Fault
from muster.track.mlflow.find import WRITER
from muster.track.mlflow.find_experiments import page_offset, page_token
from muster.track.mlflow.limits import page_size
from muster.track.mlflow.run_calls import Json, Request, run_id
from muster.track.mlflow.views import metric_json

_RUNS: Final = 100  # per request
_BULK: Final = 25_000  # points per answer
_SAMPLE: Final = 2_500  # points per run


def get(context: MlflowContext, request: Request) -> Json:
    """All points, sorted by time; in pages if `max_results` is given."""
    key, limit = request["metric_key"], request.get("max_results")
    if limit is not None:
        limit = page_size(limit)
    offset = page_offset(request.get("page_token"))
    points = by_time(read(context, run_id(request), key))
    count = len(points.step)
    stop = count if limit is None else min(count, offset + limit)
    found = _json(points, key, range(offset, stop))
    parts = [f'"metrics":[{",".join(found)}]'] if found else []
    if stop < count:
        parts.append(f'"next_page_token":"{page_token(stop)}"')
    return "{" + ",".join(parts) + "}"


def bulk(context: MlflowContext, request: Request) -> Json:
    runs, key = request.get("run_id") or [], request.get("metric_key")
    if not runs:
        raise Fault("GetMetricHistoryBulk request must specify at least one run_id.")
    if len(runs) > _RUNS:
        raise Fault(
            f"GetMetricHistoryBulk request cannot specify more than {_RUNS} run_ids. Received {len(runs)} run_ids."
        )
    if key is None:
        raise Fault("GetMetricHistoryBulk request must specify a metric_key.")
    left = min(page_size(request.get("max_results", _BULK)), _BULK)
    found: list[str] = []
    for run in sorted(runs):
        points = by_time(read(context, run, key))
        found += _of_run(_json(points, key, range(min(len(points.step), left - len(found)))), run)
    return f'{{"metrics":[{",".join(found)}]}}'


def interval(context: MlflowContext, request: Request) -> Json:
    runs, key = request.get("run_ids") or [], request["metric_key"]
    if not runs:
        raise Fault(
            "Missing value for required parameter 'run_ids'."
            " See the API docs for more information about request parameters."
        )
    if len(runs) > _RUNS:
        raise Fault(
            f"GetMetricHistoryBulkInterval request must specify at most {_RUNS} run_ids. Received {len(runs)} run_ids."
            " See the API docs for more information about request parameters."
        )
    limit = int(request.get("max_results", _SAMPLE))
    if not 1 <= limit <= _SAMPLE:
        raise Fault(
            f"max_results must be between 1 and {_SAMPLE}."
            " See the API docs for more information about request parameters."
        )
    start, stop = _bounds(request)
    found: list[str] = []
    for run in runs:
        points = read(context, run, key, start, stop)
        order = np.lexsort((points.value, points.time, points.step))
        found += _of_run(_json(points, key, order[_sample(len(order), limit)].tolist()), run)
    return f'{{"metrics":[{",".join(found)}]}}' if found else "{}"


def read(context: MlflowContext, run: str, key: str, start: int | None = None, stop: int | None = None) -> Points:
    """The points of a run's series that are not superseded; empty if there is no such series."""
    context.row(run)
    return context.track.metrics.points(run, key, rank=WRITER, start=start, stop=None if stop is None else stop + 1)


def by_time(points: Points) -> Points:
    order = np.lexsort((points.value, points.step, np.round(points.time * 1000)))
    return Points(points.step[order], points.time[order], points.value[order], points.attempt[order])


def _bounds(request: Request) -> tuple[int | None, int | None]:
    start, stop = request.get("start_step"), request.get("end_step")
    if start is None and stop is None:
        return None, None
    if start is None or stop is None:
        raise Fault("If either start step or end step are specified, both must be specified.")
    if int(start) > int(stop):
        raise Fault(f"end_step must be greater than start_step. Found start_step={start} and end_step={stop}.")
    return int(start), int(stop)


def _sample(count: int, limit: int) -> Any:
    """The first of each of `limit` equal parts, as in MLflow; the very last point replaces the last of them."""
    if count <= limit:
        return slice(None)
    small, larger = divmod(count, limit)
    sizes = np.full(limit, small)
    sizes[:larger] += 1  # the remainder goes to the first parts
    starts = np.concatenate(([0], np.cumsum(sizes)[:-1]))
    starts[-1] = count - 1
    return starts


def _json(points: Points, key: str, which: Any) -> list[str]:
    steps, times, values = points.step.tolist(), points.time.tolist(), points.value.tolist()
    return [metric_json(key, values[index], times[index], steps[index]) for index in which]


def _of_run(found: Sequence[str], run: str) -> list[str]:
    return [f'{one[:-1]},"run_id":"{run}"}}' for one in found]
