"""MLflow's calls for logging metrics, params and tags, one by one or in batches. Each call is one transaction."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import select

from muster.core.event import Event
from muster.core.record_events import RunTags
from muster.store.base import Column, Record
from muster.store.codec import check_text
from muster.store.record_tables import metric_series, run_params
from muster.track.mlflow.context import MlflowContext, Target
from muster.track.mlflow.faults import Fault
from muster.track.mlflow.find import WRITER
from muster.track.mlflow.limits import check_batch, check_given, check_metric, check_param, check_run_id, check_tag
from muster.track.mlflow.names import RUN_NAME
from muster.track.mlflow.run_calls import Request, run_id
from muster.track.record_db import named
from muster.track.rows import patch_run
from muster.track.values import params_record, tags_record

Point = tuple[int, float, float]  # step, time in seconds, value


def log_metric(context: MlflowContext, request: Request) -> dict[str, Any]:
    metric = check_metric(request)
    target = context.target(run_id(request))
    with context.track.db.holding(target.run):
        _write(context, _metrics(context, target, [metric]))
    return {}


def log_param(context: MlflowContext, request: Request) -> dict[str, Any]:
    key, value = check_param(request["key"], request.get("value"))
    target = context.target(run_id(request))
    with context.track.db.holding(target.run):
        known = _known_params(context, target.run, [key])
        if known.get(key, value) != value:
            raise Fault(
                f"Changing param values is not allowed. Param with key='{key}' was already logged with "
                f"value='{known[key]}' for run ID='{target.run}'. Attempted logging new value '{value}'."
            )
        _write(
            context,
            _params(context, target, {key: value} if key not in known else {}),
            _recheck_required(context, target),
        )
    return {}


def set_tag(context: MlflowContext, request: Request) -> dict[str, Any]:
    key, value = check_tag(request["key"], request.get("value"))
    target = context.target(run_id(request))
    with context.track.db.holding(target.run):
        told = context.track.db.event(named(RunTags, [key]), context.caller.user, target.project, target.run)
        _write(context, _tags(context, target, {key: value}), _recheck_required(context, target), told=told)
    return {}


def log_batch(context: MlflowContext, request: Request) -> dict[str, Any]:
    metrics, params, tags = (request.get(name) or [] for name in ("metrics", "params", "tags"))
    check_given(metrics, "metrics", ("key", "value", "timestamp"))
    check_given(params, "params", ("key",))
    check_given(tags, "tags", ("key",))
    run = check_run_id(run_id(request))
    points = [check_metric(one, f"metrics[{index}]") for index, one in enumerate(metrics)]
    values = [check_param(one["key"], one.get("value"), f"params[{index}]") for index, one in enumerate(params)]
    labels = [check_tag(one["key"], one.get("value"), f"tags[{index}]") for index, one in enumerate(tags)]
    check_batch(metrics, params, tags)
    _check_unique([key for key, _ in values])
    target = context.target(run)
    with context.track.db.holding(run):
        fresh = _new_params(context, run, dict(values))
        rechecked = _recheck_required(context, target) if values or labels else []
        _write(
            context,
            _params(context, target, fresh),
            _metrics(context, target, points),
            _tags(context, target, dict(labels)),
            rechecked,
        )
    return {}


def _write(context: MlflowContext, *records: Iterable[Record], told: Event | None = None) -> None:
    """Writes the records. `told` is an event that names the actor; what a running program logs has no event."""
    found = [record for part in records for record in part]
    if found:
        context.track.db.write(*found, events=[told] if told is not None else [])


def _recheck_required(context: MlflowContext, target: Target) -> list[Record]:
    """Checks required fields again if some were missing: the call may have set them."""
    return [] if target.valid else [context.track.runs.check_required(target.run, target.project)]


def _metrics(context: MlflowContext, target: Target, metrics: Sequence[tuple[str, float, int, int]]) -> list[Record]:
    wanted: dict[str, list[Point]] = defaultdict(list)
    for key, value, stamp, step in metrics:
        wanted[key].append((step, stamp / 1000, value))
    fresh = _unknown(context, target.run, wanted)
    columns = {
        key: Column(
            array("q", [step for step, _, _ in points]),
            array("d", [time for _, time, _ in points]),
            array("d", [value for _, _, value in points]),
        )
        for key, points in fresh.items()
        if points
    }
    return [context.track.metrics.append(target.run, target.attempt, WRITER, columns)] if columns else []


def _unknown(context: MlflowContext, run: str, wanted: Mapping[str, list[Point]]) -> dict[str, list[Point]]:
    """The points that are not stored yet: MLflow stores a point once, even if a client retries."""
    table = metric_series.c
    query = select(table.name, table.last_step, table.last_time).where(
        table.run == run, table.rank == WRITER, table.name.in_(list(wanted))
    )
    with context.track.db.reading() as connection:
        ends = {name: (step, time) for name, step, time in connection.execute(query)}
    fresh: dict[str, list[Point]] = {}
    for name, points in wanted.items():
        once = list({_key(point): point for point in points}.values())
        end = ends.get(name)
        if end is not None and any((step, time) <= end for step, time, _ in once):
            steps = [step for step, _, _ in once]
            found = context.track.metrics.points(
                run, name, rank=WRITER, start=min(steps), stop=max(steps) + 1, superseded=True
            )
            known = {
                _key(point)
                for point in zip(found.step.tolist(), found.time.tolist(), found.value.tolist(), strict=True)
            }
            once = [point for point in once if _key(point) not in known]
        fresh[name] = once
    return fresh


def _key(point: Point) -> tuple[int, int, float | None]:
    step, time, value = point
    return step, round(time * 1000), None if value != value else value


def _params(context: MlflowContext, target: Target, values: Mapping[str, str]) -> list[Record]:
    if not values:
        return []
    check_text(*values.keys(), *values.values())
    now = context.track.db.now()
    return [params_record(target.run, values, attempt=0, actor=context.caller.user, now=now)]


def _tags(context: MlflowContext, target: Target, given: Mapping[str, str]) -> list[Record]:
    """The tag for the run's name sets the name itself."""
    check_text(*given.keys(), *given.values())
    rest = {key: value for key, value in given.items() if key != RUN_NAME}
    records: list[Record] = []
    if rest:
        records.append(tags_record(target.run, rest, actor=context.caller.user, now=context.track.db.now()))
    if given.get(RUN_NAME):
        name = given[RUN_NAME][:500]
        records.append(lambda connection: patch_run(connection, target.run, name=name))
    return records


def _new_params(context: MlflowContext, run: str, values: Mapping[str, str]) -> dict[str, str]:
    known = _known_params(context, run, list(values))
    changed = [
        {"key": key, "old_value": known[key], "new_value": value}
        for key, value in values.items()
        if known.get(key, value) != value
    ]
    if changed:
        raise Fault(f"Changing param values is not allowed. Params were already logged='{changed}' for run ID='{run}'.")
    return {key: value for key, value in values.items() if key not in known}


def _known_params(context: MlflowContext, run: str, keys: Sequence[str]) -> dict[str, str]:
    if not keys:
        return {}
    table = run_params.c
    query = select(table.key, table.value).where(table.run == run, table.key.in_(keys))
    with context.track.db.reading() as connection:
        return {row.key: row.value for row in connection.execute(query)}


def _check_unique(keys: Sequence[str]) -> None:
    twice = [key for index, key in enumerate(keys) if key in keys[:index]]
    if twice:
        raise Fault(
            f"Duplicate parameter keys have been submitted: {twice}. Please ensure "
            "the request contains only one param value per param key."
        )
