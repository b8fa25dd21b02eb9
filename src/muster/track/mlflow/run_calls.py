"""MLflow's calls on runs: create, get, search, update, delete and restore."""

from __future__ import annotations

import random
import uuid
from collections.abc import Mapping, Sequence
from typing import Any, Final

from muster.core.record_events import RunTags
from muster.store.insert import Row
from muster.store.record_tables import links
from muster.track.mlflow.context import MlflowContext
from muster.track.mlflow.experiments import view_of
from muster.track.mlflow.faults import Fault, missing
from muster.track.mlflow.filters import RUNS, parse_filter, parse_orders
from muster.track.mlflow.find import RunQuery, search_runs
from muster.track.mlflow.find_experiments import page_offset, page_token
from muster.track.mlflow.limits import check_tag, experiment_number, invalid_value, page_size, wrong_value
from muster.track.mlflow.names import (
    CONTEXT,
    IMPORTED,
    MODEL,
    PARENT,
    PHASE,
    RUN_NAME,
    SOURCE,
    STATUS_NUMBERS,
    pairs,
)
from muster.track.mlflow.views import info_json, runs_json
from muster.track.record_db import named
from muster.track.rows import adding, link_row
from muster.track.values import tags_record

Request = dict[str, Any]
Json = str  # an answer that is JSON already
_PAGE: Final = 1000
_PAGE_MAX: Final = 50_000
_FIRST: Final = (
    "amber",
    "brisk",
    "calm",
    "clever",
    "keen",
    "lively",
    "mellow",
    "noble",
    "quiet",
    "swift",
    "tidy",
    "vivid",
)
_SECOND: Final = (
    "badger",
    "crane",
    "finch",
    "heron",
    "ibex",
    "lynx",
    "marten",
    "otter",
    "plover",
    "stoat",
    "tern",
    "wren",
)


def create(context: MlflowContext, request: Request) -> Json:
    """Creates a run with a random id. An import passes the run's original id (`muster_id`) and its origin."""
    tags = dict(check_tag(key, value) for key, value in pairs(request.get("tags")).items())
    experiment = context.experiment(request.get("experiment_id") or context.default_experiment(), "member")
    if experiment.deleted_at is not None:
        raise Fault(f"The experiment {experiment.id} must be in the 'active' state. Current state is deleted.")
    name, tagged = request.get("run_name") or "", tags.pop(RUN_NAME, "")
    if name and tagged and name != tagged:
        raise Fault(
            "Both 'run_name' argument and 'mlflow.runName' tag are specified, but with "
            f"different values (run_name='{name}', mlflow.runName='{tagged}')."
        )
    began, user, origin = request.get("start_time"), request.get("user_id"), request.get("muster_origin")
    doc: dict[str, Any] = {"mlflow": {"user_id": user}} if user is not None and user != context.caller.user else {}
    made = context.track.runs.create(
        project=experiment.project,
        user=context.caller.user,
        name=name or tagged or _random_name(),
        source=IMPORTED if origin else SOURCE,
        experiment=experiment.id,
        parent=_parent(context, tags.get(PARENT)),
        started_at=int(began) / 1000 if began is not None else None,
        tags=tags,
        id=str(request.get("muster_id") or uuid.uuid4().hex),
        doc={**doc, "origin": origin} if isinstance(origin, dict) else doc,
    )
    return f'{{"run":{_whole(context, made.id)}}}'


def get(context: MlflowContext, request: Request) -> Json:
    return f'{{"run":{_whole(context, run_id(request))}}}'


def search(context: MlflowContext, request: Request) -> Json:
    limit = page_size(request.get("max_results", _PAGE), _PAGE_MAX)
    offset = page_offset(request.get("page_token"))
    want = RunQuery(
        experiments=[experiment_number(one) for one in request.get("experiment_ids") or ()],
        clauses=parse_filter(request.get("filter"), RUNS),
        orders=parse_orders(request.get("order_by") or (), RUNS),
        view=view_of(request.get("run_view_type")),
        projects=context.caller.projects(),
        limit=limit,
        offset=offset,
    )
    with context.track.db.reading() as connection:
        rows = connection.execute(search_runs(want, context.kind)).all()
        found = runs_json(connection, rows[:limit])
    parts = [f'"runs":[{",".join(found)}]'] if found else []
    if len(rows) > limit:
        parts.append(f'"next_page_token":"{page_token(offset + limit)}"')
    return "{" + ",".join(parts) + "}"


def update(context: MlflowContext, request: Request) -> Json:
    run, name, status = run_id(request), request.get("run_name"), request.get("status")
    target = context.target(run)
    status = STATUS_NUMBERS.get(status, status) if isinstance(status, int) else status
    if status is not None and status not in PHASE:
        raise wrong_value("status", status)
    end = request.get("end_time")
    if end is not None and int(end) < 0:
        raise Fault(invalid_value("end_time", end, "It must be a nonnegative number of milliseconds."))
    # A job's run follows its job: if a script in it ends its MLflow run, that is ignored, not refused.
    context.track.runs.update(
        run,
        actor=context.caller.user,
        name=name or None,
        phase=None if target.of_job else PHASE.get(str(status)),
        ended_at=None if end is None or target.of_job else int(end) / 1000,
    )
    return f'{{"run_info":{info_json(context.row(run))}}}'


def delete(context: MlflowContext, request: Request) -> dict[str, Any]:
    context.track.runs.hide(context.target(run_id(request), hidden=True).run, context.caller.user)
    return {}


def restore(context: MlflowContext, request: Request) -> dict[str, Any]:
    context.track.runs.restore(context.target(run_id(request), hidden=True).run, context.caller.user)
    return {}


def delete_tag(context: MlflowContext, request: Request) -> dict[str, Any]:
    run, key = run_id(request), request["key"]
    target = context.target(run)
    if key not in context.track.runs.tags([run])[run]:
        raise missing(f"No tag with name: {key} in run with id {run}")
    db = context.track.db
    told = db.event(named(RunTags, [key]), context.caller.user, target.project, run)
    db.write(tags_record(target.run, {key: None}, actor=context.caller.user, now=db.now()), events=[told])
    return {}


def log_inputs(context: MlflowContext, request: Request) -> dict[str, Any]:
    """Records data sets and logged models that a run reads as lineage links. A repeated link is stored once."""
    target, now = context.target(run_id(request)), context.track.db.now()
    ref = f"run:{target.run}"
    rows = [_dataset_row(item, index, ref, now) for index, item in enumerate(request.get("datasets") or ())]
    for model in request.get("models") or ():
        rows.append(link_row(f"{MODEL}{model.get('model_id', '')}", ref, "reads", now))
    if rows:
        context.track.db.write(adding(links, _in_order(rows)))
    return {}


def log_outputs(context: MlflowContext, request: Request) -> dict[str, Any]:
    target, now = context.target(run_id(request)), context.track.db.now()
    rows = [
        link_row(
            f"run:{target.run}",
            f"{MODEL}{model.get('model_id', '')}",
            "writes",
            now,
            {"step": int(model.get("step") or 0)},
        )
        for model in request["models"]
    ]
    context.track.db.write(adding(links, _in_order(rows)))
    return {}


def run_id(request: Mapping[str, Any]) -> str:
    return str(request.get("run_id") or request.get("run_uuid") or "")


def _whole(context: MlflowContext, run: str) -> Json:
    row = context.row(run)
    with context.track.db.reading() as connection:
        return runs_json(connection, [row], model_inputs=True)[0]


def _parent(context: MlflowContext, run: str | None) -> str | None:
    """The parent run. If the caller can't see it, or it isn't in Muster, the parent is only a tag."""
    found = context.track.runs.get(run) if run else None
    return found.id if found is not None and context.caller.sees(found.project) else None


def _in_order(rows: Sequence[Row]) -> list[Row]:
    """Links of one call, a microsecond apart: they are read in the order of their times."""
    return [{**row, "time": row["time"] + index / 1e6} for index, row in enumerate(rows)]


def _random_name() -> str:
    return f"{random.choice(_FIRST)}-{random.choice(_SECOND)}-{random.randrange(1000)}"


_DATASET_LIMITS: Final = {"name": 500, "digest": 36, "source": 65_535, "schema": 1_048_575, "profile": 16_777_215}


def _dataset_row(item: Mapping[str, Any], index: int, ref: str, now: float) -> Row:
    dataset, tags = item.get("dataset") or {}, item.get("tags") or []
    for name in ("name", "digest", "source_type", "source"):
        if not dataset.get(name):
            raise Fault(f"Missing value for required parameter 'datasets[{index}].dataset.{name}'.")
    for name, limit in _DATASET_LIMITS.items():
        if len(str(dataset.get(name) or "")) > limit:
            raise Fault(f"'{name}' exceeds the maximum length of {limit} characters")
    given = pairs(tags)
    for key, value in given.items():
        if not key or len(key) > 255 or len(str(value or "")) > 500:
            raise Fault(f"The tag {key[:60]!r} of a dataset input is too long, or has no name.")
    doc = {
        name: dataset[name]
        for name in ("name", "digest", "source_type", "source", "schema", "profile")
        if name in dataset
    }
    if CONTEXT in given:
        doc["context"] = given[CONTEXT]
    return link_row(f"data:{dataset['name']}@{dataset['digest']}", ref, "reads", now, {**doc, "tags": tags})
