"""What is in another project answers exactly as what is not there: an id or a name tells nothing."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from live import LiveServer

GONE = "0" * 24 + "-never-there"
RUN_ROUTES = [
    ("GET", "/v1/runs/{run}", None),
    ("PATCH", "/v1/runs/{run}", {"name": "x"}),
    ("DELETE", "/v1/runs/{run}", None),
    ("POST", "/v1/runs/{run}/restore", None),
    ("PUT", "/v1/runs/{run}/params", {"values": {"a": 1}}),
    ("PUT", "/v1/runs/{run}/tags", {"values": {"a": "1"}}),
    ("GET", "/v1/runs/{run}/attempts", None),
    ("GET", "/v1/runs/{run}/checkpoints", None),
    ("GET", "/v1/runs/{run}/artifacts", None),
    ("GET", "/v1/runs/{run}/artifacts/secret", None),
    ("PUT", "/v1/runs/{run}/artifacts/x", None),
    ("DELETE", "/v1/runs/{run}/artifacts/secret", None),
    ("GET", "/v1/runs/{run}/code", None),
    ("GET", "/v1/runs/{run}/reproduction", None),
    ("GET", "/v1/runs/{run}/media", None),
    ("GET", "/v1/runs/{run}/media/1", None),
    ("GET", "/v1/lineage/{run}", None),
    ("GET", "/v1/lineage/run:{run}", None),
    ("GET", "/v1/lineage/artifact:{run}/secret", None),
    ("GET", "/v1/lineage/checkpoint:{run}/4", None),
    ("GET", "/v1/blobs/" + "a" * 64 + "?run={run}", None),
    ("POST", "/v1/runs", {"project": "aside", "parent": "{run}"}),
    ("POST", "/v1/runs/external", {"id": "{run}", "key": "0" * 32, "project": "aside", "resume": True}),
    ("POST", "/v1/models/fresh/versions", {"project": "aside", "run": "{run}"}),
    ("POST", "/v1/models/fresh/versions", {"project": "aside", "source": "run:{run}"}),
    ("POST", "/v1/models/fresh/versions", {"project": "aside", "source": "artifact:{run}/secret"}),
    ("POST", "/v1/models/fresh/versions", {"project": "aside", "source": "runs:/{run}/secret"}),
    ("GET", "/mlflow/api/2.0/mlflow/runs/get?run_id={run}", None),
    ("POST", "/mlflow/api/2.0/mlflow/runs/log-metric", {"run_id": "{run}", "key": "a", "value": 1, "timestamp": 1}),
    ("GET", "/mlflow/get-artifact?run_id={run}&path=secret", None),
    ("GET", "/mlflow/api/2.0/mlflow-artifacts/artifacts/0/{run}/artifacts/secret", None),
]
MODEL_ROUTES = [
    ("GET", "/v1/models/{model}", None),
    ("PATCH", "/v1/models/{model}", {"description": "x"}),
    ("DELETE", "/v1/models/{model}", None),
    ("POST", "/v1/models/{model}/versions", {"source": "x"}),
    ("GET", "/v1/models/{model}/versions/1", None),
    ("DELETE", "/v1/models/{model}/versions/1", None),
    ("POST", "/v1/models/{model}/versions/1/stage", {"stage": "staging"}),
    ("PUT", "/v1/models/{model}/aliases/best", {"version": 1}),
    ("GET", "/v1/lineage/model:{model}/1", None),
    ("GET", "/v1/lineage/model:{model}", None),
]


@pytest.fixture(scope="module")
def eve(server: LiveServer) -> Iterator[tuple[httpx.Client, str, str]]:
    """A member of `aside`; and a run with an artifact, and a model, of `default`."""
    server.post("/v1/projects", {"name": "aside"})
    token = server.post("/v1/tokens", {"name": "eve", "user": "eve-aside", "role": "member"})["token"]
    with server.http() as own, server.http(token) as http:
        own.put("/v1/projects/aside/members/eve-aside", json={"role": "member"}).raise_for_status()
        run = own.post("/v1/runs", json={"name": "hidden", "id": "hidden-run-of-others"}).json()["id"]
        own.put(f"/v1/runs/{run}/artifacts/secret", content=b"secret").raise_for_status()
        own.post("/v1/models/hidden-model/versions", json={"project": "default", "run": run}).raise_for_status()
        yield http, run, "hidden-model"


def told(http: httpx.Client, method: str, path: str, body: object, name: str, slot: str) -> tuple[int, str]:
    given = body if isinstance(body, dict) else {}
    filled = {key: value.replace(slot, name) if isinstance(value, str) else value for key, value in given.items()}
    answer = http.request(method, path.replace(slot, name), json=filled if body is not None else None)
    return answer.status_code, answer.text.replace(name, "NAME")


@pytest.mark.parametrize(("method", "path", "body"), RUN_ROUTES)
def test_runs(eve: tuple[httpx.Client, str, str], method: str, path: str, body: object) -> None:
    there = told(eve[0], method, path, body, eve[1], "{run}")
    assert there[0] in (400, 404)
    assert there == told(eve[0], method, path, body, GONE, "{run}")


@pytest.mark.parametrize(("method", "path", "body"), MODEL_ROUTES)
def test_models(eve: tuple[httpx.Client, str, str], method: str, path: str, body: object) -> None:
    there = told(eve[0], method, path, body, eve[2], "{model}")
    assert there[0] == 404
    assert there == told(eve[0], method, path, body, GONE, "{model}")


def test_a_name_that_is_taken_is_told_in_one_way(eve: tuple[httpx.Client, str, str]) -> None:
    """Names of models are given once in a server; whose it is stays unsaid."""
    http, run, model = eve
    http.post("/v1/models", json={"name": "own-model", "project": "aside"}).raise_for_status()
    made = [http.post("/v1/models", json={"name": name, "project": "aside"}) for name in ("own-model", model)]
    assert [one.status_code for one in made] == [409, 409]
    assert made[0].text.replace("own-model", "NAME") == made[1].text.replace(model, "NAME")
    version = http.post(f"/v1/models/{model}/versions", json={"project": "aside", "source": "s3://x/y"})
    assert (version.status_code, version.json()["error"]["code"]) == (409, "conflict")
    again = http.patch("/v1/models/own-model", json={"name": model})
    assert again.status_code == 409
    assert "default" not in made[1].text + version.text + again.text
    for name in (run, "train-10000000"):  # never the id of a job to come
        opened = http.post("/v1/runs/external", json={"id": name, "key": "1" * 32, "project": "aside"})
        assert opened.status_code in (400, 409)
        assert "default" not in opened.text
