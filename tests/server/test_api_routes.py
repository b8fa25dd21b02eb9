"""Every route declares a shape and a role, every shape is used, and the OpenAPI document has them."""

from __future__ import annotations

import asyncio
import importlib
import json
import pkgutil

import pytest
from typing_extensions import is_typeddict

import muster.api
from muster.api.errors import ErrorAnswer
from muster.api.health import Alive
from muster.api.metrics import SummaryView
from muster.api.numbers import SPECIAL, json_number, number
from muster.server.typed_routes import needs, typed_router
from shape_kit import all_routes, check, checked, document

# These send something else than JSON: streams, files, Markdown, arrays, or nothing.
NO_JSON = {
    "GET /metrics",
    "GET /v1/cost/focus",
    "GET /v1/jobs/{ref}/logs/stream",
    "GET /v1/jobs/{ref}/stream",
    "GET /v1/events/stream",
    "GET /v1/jobs/{ref}/exec/{ident}/output",
    "GET /v1/ingest/exec/{ident}/input",
    "GET /v1/engines/{name}/doctor",
    "GET /v1/runs/{ref}/points/{name:path}",
    "GET /v1/runs/{ref}/artifacts/{path:path}",
    "HEAD /v1/runs/{ref}/artifacts/{path:path}",
    "GET /v1/blobs/{digest}",
    "HEAD /v1/blobs/{digest}",
    "HEAD /v1/ingest/blobs/{digest}",
    "PUT /v1/ingest/blobs/{digest}",
    "POST /v1/ingest/code/bundle",
    "POST /v1/runs/external/beat",
    "GET /v1/runs/{ref}/logbook",
    "GET /v1/projects/{project}/logbook",
    "GET /v1/projects/{project}/optuna/{name}/snapshot",
    "GET /v1/runs/{ref}/media/{ident}",
    "GET /v1/session/oidc",
    "GET /v1/session/oidc/callback",
}
UNUSED = {"FindingView"}  # the lines of /v1/engines/{name}/doctor


@pytest.fixture(scope="module")
def api():
    return document()


def test_every_route_has_a_shape():
    without = {f"{method} {route.path}" for route in all_routes() if route.shape is None for method in route.methods}
    assert without == NO_JSON


def test_no_answer_is_just_a_dictionary():
    assert not [route.path for route in all_routes() if str(route.shape).startswith("dict[str, typing.Any")]


def test_every_operation_has_a_role_and_its_errors(api):
    for path, methods in api["paths"].items():
        for method, operation in methods.items():
            assert operation["x-role"], (method, path)
            for status in ("400", "401", "403", "404", "503"):
                (kind,) = operation["responses"][status]["content"].values()
                own = path == "/readyz" and status == "503"
                assert kind["schema"]["$ref"].endswith("/Readiness" if own else "/ErrorAnswer"), (method, path, status)


def test_every_shape_is_used(api):
    defined = set()
    for module in pkgutil.iter_modules(muster.api.__path__):
        found = vars(importlib.import_module(f"muster.api.{module.name}"))
        defined |= {name for name, one in found.items() if is_typeddict(one)}
    text = json.dumps(api["paths"]) + json.dumps(api["components"])
    bases = {base.__name__ for one in _shapes() for base in getattr(one, "__orig_bases__", ()) if is_typeddict(base)}
    unused = {name for name in defined if f'schemas/{name}"' not in text} - bases
    assert unused == UNUSED


def test_a_route_without_a_role_is_refused():
    router = typed_router()
    with pytest.raises(TypeError, match="must say who may use it"):

        @router.get("/shoes")
        def shoes() -> Alive:
            return {"status": "ok"}

    router.get("/shoes", openapi_extra=needs("nobody"))(shoes_of)


def shoes_of() -> Alive:
    return {"status": "ok"}


@pytest.mark.parametrize("value", [1.5, 0.0, float("nan"), float("inf"), float("-inf")])
def test_numbers_survive_json(value):
    text = json.dumps(json_number(value), allow_nan=False)
    assert repr(number(json.loads(text))) == repr(value)
    assert (text.strip('"') in SPECIAL) == (text[0] == '"')


@pytest.mark.parametrize(
    ("body", "wrong"),
    [
        ({"status": "ok"}, ""),
        ({"status": "ok", "shoe_size": 43}, "shoe_size: Extra inputs are not permitted"),
        ({}, "status: Field required"),
        ({"status": 1}, "status: Input should be a valid string"),
    ],
)
def test_the_check_is_strict(body, wrong):
    assert check(Alive, json.dumps(body).encode()) == wrong


def test_the_check_knows_what_json_has_not():
    summary = dict.fromkeys(("points", "nans", "last_step", "last_attempt"), 1) | {"last": "NaN", "last_time": 1}
    summary |= dict.fromkeys(("low", "low_step", "high", "high_step"))
    assert check(SummaryView, json.dumps(summary).encode()) == ""
    assert check(SummaryView, json.dumps({**summary, "last": float("nan")}).encode()) == "NaN is not JSON"
    assert "last" in check(SummaryView, json.dumps({**summary, "last": None}).encode())


def test_a_wrong_answer_becomes_an_error(capsys):
    async def wrong(scope, receive, send):
        headers = [(b"content-type", b"application/json"), (b"content-length", b"14")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b'{"status": 10}'})

    sent = []

    async def send(message):
        sent.append(message)

    asyncio.run(checked(wrong)({"type": "http", "method": "GET", "path": "/healthz"}, None, send))
    assert (sent[0]["status"], json.loads(sent[1]["body"])["error"]["code"]) == (500, "shape")
    assert check(ErrorAnswer, sent[1]["body"]) == ""
    assert "GET /healthz" in capsys.readouterr().err


def _shapes():
    for module in pkgutil.iter_modules(muster.api.__path__):
        for one in vars(importlib.import_module(f"muster.api.{module.name}")).values():
            if is_typeddict(one):
                yield one
