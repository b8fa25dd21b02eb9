"""Writes of people through MLflow leave events with their names; what programs log leaves none."""

from __future__ import annotations

import json
import uuid
from typing import Any

import httpx

from live import PATIENCE, LiveServer
from mlflow_kit import MlflowFixture
from muster.store.base import EventFilter

VALUE = "a-value-that-stays-out-of-the-log"


def kinds(table: MlflowFixture, after: int) -> list[str]:
    found = table.record.store.events(EventFilter(after=after, actor="ada", limit=1000))
    assert all(event.project == "default" for event in found)
    assert VALUE not in str(found)
    return [event.kind for event in found]


def test_calls_that_muster_answers_leave_one_event_each(table: MlflowFixture) -> None:
    run, experiment = table.new_run(), table.post("experiments/create", name=f"e-{uuid.uuid4().hex}")["experiment_id"]
    for path, kind, given in (
        ("runs/update", "run.changed", {"run_id": run, "run_name": "other"}),
        ("runs/set-tag", "run.tags", {"run_id": run, "key": "a", "value": VALUE}),
        ("runs/delete-tag", "run.tags", {"run_id": run, "key": "a"}),
        ("runs/delete", "run.hidden", {"run_id": run}),
        ("runs/restore", "run.restored", {"run_id": run}),
        ("experiments/update", "experiment.changed", {"experiment_id": experiment, "new_name": uuid.uuid4().hex}),
        (
            "experiments/set-experiment-tag",
            "experiment.changed",
            {"experiment_id": experiment, "key": "a", "value": VALUE},
        ),
        ("experiments/delete-experiment-tag", "experiment.changed", {"experiment_id": experiment, "key": "a"}),
        ("experiments/delete", "experiment.hidden", {"experiment_id": experiment}),
        ("experiments/restore", "experiment.restored", {"experiment_id": experiment}),
        ("runs/create", "run.created", {"experiment_id": "0"}),
        ("experiments/create", "experiment.created", {"name": uuid.uuid4().hex}),
        ("runs/log-metric", None, {"run_id": run, "key": "m", "value": 1.0, "timestamp": 1}),
        ("runs/log-parameter", None, {"run_id": run, "key": "p", "value": VALUE}),
        ("runs/log-batch", None, {"run_id": run, "tags": [{"key": "b", "value": VALUE}]}),
    ):
        before = table.record.store.state().version
        table.post(path, **given)
        assert kinds(table, before) == ([kind] if kind else []), path


def test_what_mlflow_s_own_server_writes_is_told_too(muster: LiveServer) -> None:
    name = f"m-{uuid.uuid4().hex}"
    with muster.http() as http:
        http.timeout = httpx.Timeout(PATIENCE)  # MLflow's own server is loaded by the first that needs it
        user = http.get("/v1/whoami").json()["user"]

        def told(path: str, body: dict[str, Any], method: str = "POST") -> list[tuple[str, Any]]:
            before = http.get("/v1/events", params={"last": True, "limit": 1}).json()["next"]
            answer: httpx.Response = http.request(method, f"/mlflow/api/2.0/mlflow/{path}", json=body)
            assert answer.status_code == 200, answer.text
            found = http.get("/v1/events", params={"after": before, "actor": user}).json()["events"]
            assert VALUE not in json.dumps(found)
            return [(event["kind"], event["data"].get("path") or event["data"].get("name")) for event in found]

        assert told("registered-models/create", {"name": name, "description": VALUE}) == [("model.created", name)]
        tag = {"name": name, "key": "a", "value": VALUE}
        assert told("registered-models/set-tag", tag) == [("model.changed", name)]
        made = told("logged-models", {"experiment_id": "0", "name": "x", "params": [{"key": "p", "value": VALUE}]})
        assert made == [("mlflow.called", "/api/2.0/mlflow/logged-models")]
        assert told("registered-models/search", {}, "GET") == []
