"""The MLflow calls that Muster answers itself, by method and path, with their parameters."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from muster.track.mlflow import experiments, files, history, log_calls, run_calls
from muster.track.mlflow.context import MlflowContext
from muster.track.mlflow.faults import Fault
from muster.track.mlflow.limits import Schema, check_request

Answer = str | dict[str, Any]


@dataclass(frozen=True, slots=True)
class Call:
    """A call. `schema` names every checked parameter; parameters of kind `array` are lists in a query string too."""

    answer: Callable[[MlflowContext, dict[str, Any]], Answer]
    schema: Schema
    names: frozenset[str]  # parameters that the schema doesn't check

    def run(self, context: MlflowContext, request: dict[str, Any]) -> bytes:
        given = self._normal(request)
        check_request(given, self.schema)
        found = self.answer(context, given)
        return (found if isinstance(found, str) else json.dumps(found)).encode()

    def is_list(self, name: str) -> bool:
        return bool({"array", "strings"} & set(self.schema.get(name, ())))

    def _normal(self, request: dict[str, Any]) -> dict[str, Any]:
        """Accepts `runId` for `run_id`, as protobuf's JSON does. A field that is null counts as absent."""
        given = {}
        for name, value in request.items():
            snake = name if name in self.schema else _SNAKE.get(name, name)
            if snake != name and snake in request:
                raise Fault(f"Request specifies both '{snake}' and '{name}'; provide only one of them.")
            if value is not None:
                given[snake] = value
        return given


def _call(answer: Callable[[MlflowContext, dict[str, Any]], Answer], *names: str, **schema: str) -> Call:
    return Call(answer, {name: kinds.split() for name, kinds in schema.items()}, frozenset(names))


_RUN: Final = "required string"
_TAG: Final = {"key": "required string", "value": "string"}
_PAGE: Final = {"page_token": "string"}
_EXPERIMENT: Final = {"experiment_id": "required string"}

CALLS: Final[Mapping[tuple[str, str], Call]] = {
    ("POST", "experiments/create"): _call(
        experiments.create, name="required string", artifact_location="string", tags="array"
    ),
    ("GET", "experiments/get"): _call(experiments.get, **_EXPERIMENT),
    ("GET", "experiments/get-by-name"): _call(experiments.get_by_name, experiment_name="required string"),
    ("POST", "experiments/delete"): _call(experiments.delete, **_EXPERIMENT),
    ("POST", "experiments/restore"): _call(experiments.restore, **_EXPERIMENT),
    ("POST", "experiments/update"): _call(experiments.update, **_EXPERIMENT, new_name="string required"),
    ("POST", "experiments/set-experiment-tag"): _call(experiments.set_tag, **_EXPERIMENT, **_TAG),
    ("POST", "experiments/delete-experiment-tag"): _call(experiments.delete_tag, **_EXPERIMENT, key="required string"),
    **dict.fromkeys(
        (("GET", "experiments/search"), ("POST", "experiments/search")),
        _call(experiments.search, "view_type", max_results="int", order_by="array", filter="string", **_PAGE),
    ),
    ("POST", "runs/create"): _call(
        run_calls.create, experiment_id="string", user_id="string", start_time="int", run_name="string", tags="array"
    ),
    ("GET", "runs/get"): _call(run_calls.get, "run_uuid", run_id=_RUN),
    ("POST", "runs/update"): _call(
        run_calls.update, "run_uuid", "status", run_id=_RUN, end_time="int", run_name="string"
    ),
    ("POST", "runs/delete"): _call(run_calls.delete, run_id=_RUN),
    ("POST", "runs/restore"): _call(run_calls.restore, run_id=_RUN),
    ("POST", "runs/search"): _call(
        run_calls.search,
        "run_view_type",
        experiment_ids="array",
        filter="string",
        max_results="int",
        order_by="array strings",
        **_PAGE,
    ),
    ("POST", "runs/set-tag"): _call(log_calls.set_tag, "run_uuid", run_id=_RUN, **_TAG),
    ("POST", "runs/delete-tag"): _call(run_calls.delete_tag, run_id=_RUN, key="required string"),
    ("POST", "runs/log-parameter"): _call(log_calls.log_param, "run_uuid", run_id=_RUN, **_TAG),
    ("POST", "runs/log-metric"): _call(
        log_calls.log_metric,
        "run_uuid",
        run_id=_RUN,
        key="required string",
        value="required float",
        timestamp="int required",
        step="int",
        model_id="string",
        dataset_name="string",
        dataset_digest="string",
    ),
    ("POST", "runs/log-batch"): _call(
        log_calls.log_batch, run_id="string required", metrics="array", params="array", tags="array"
    ),
    ("POST", "runs/log-inputs"): _call(run_calls.log_inputs, run_id=_RUN, datasets="array", models="array"),
    ("POST", "runs/outputs"): _call(run_calls.log_outputs, run_id=_RUN, models="required array"),
    ("GET", "metrics/get-history"): _call(
        history.get,
        "run_uuid",
        run_id="string required",
        metric_key="string required",
        **_PAGE,
        max_results="int",
    ),
    ("GET", "metrics/get-history-bulk"): _call(history.bulk, run_id="array", metric_key="string", max_results="int"),
    ("GET", "metrics/get-history-bulk-interval"): _call(
        history.interval,
        run_ids="required array",
        metric_key="required string",
        start_step="int",
        end_step="int",
        max_results="int",
    ),
    ("GET", "artifacts/list"): _call(files.list_run, "run_uuid", run_id="string required", path="string", **_PAGE),
}
_SNAKE: Final = {
    "".join([first, *(part.title() for part in rest)]): name
    for call in CALLS.values()
    for name in (*call.schema, *call.names)
    for first, *rest in [name.split("_")]
    if rest
}


def needs_mlflow(path: str, request: Mapping[str, Any]) -> bool:
    """Whether MLflow must handle the call too: points of a logged model also go into MLflow's own tables."""
    if path == "runs/log-metric":
        return bool(request.get("model_id"))
    metrics = request.get("metrics") if path == "runs/log-batch" else None
    return isinstance(metrics, list) and any(isinstance(one, dict) and one.get("model_id") for one in metrics)
