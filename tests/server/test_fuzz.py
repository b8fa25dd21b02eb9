"""Whatever the API's own schema allows, and much that it does not: never a 500, never a hang, never a traceback.

Schemathesis takes over a second to import, which every process that collects tests would do: tests import it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from live import LiveServer, live_server
from muster.control.secrets import load_keyring
from shape_kit import document, operations

if TYPE_CHECKING:
    import requests
    import schemathesis

# Streams do not end by themselves; they take the same parameters as the routes beside them.
LABELS = sorted(label for label in operations() if not label.endswith("stream"))


@cache
def schema() -> schemathesis.BaseSchema:
    import schemathesis  # noqa: PLC0415

    return schemathesis.openapi.from_dict(document()).exclude(path_regex="stream$")


@cache
def by_label() -> dict[str, schemathesis.schemas.APIOperation]:
    return {found.ok().label: found.ok() for found in schema().get_all_operations()}


def test_every_operation_is_tried() -> None:
    assert sorted(by_label()) == LABELS


@pytest.fixture(scope="module")
def fuzzed(tmp_path_factory):
    """A server on which nothing is ever started: generated commands are not run."""
    with live_server(tmp_path_factory.mktemp("fuzz")) as server:
        server.post("/v1/nodes/local-0/health", {"health": "quarantined", "reason": "fuzzed"})
        server.post("/v1/jobs", {"spec": {"name": "seed", "run": "true", "workdir": str(server.home)}})
        yield server
        assert "Traceback" not in server.log()


@pytest.fixture(scope="module")
def session(fuzzed: LiveServer) -> Iterator[requests.Session]:
    import requests  # noqa: PLC0415

    with requests.Session() as session:
        session.trust_env = False  # it would look through the whole environment for each request
        session.headers["Authorization"] = f"Bearer {fuzzed.token}"
        yield session


@pytest.mark.parametrize("label", LABELS)
def test_the_api_from_its_schema(label: str, fuzzed: LiveServer, session: requests.Session) -> None:
    """Cases are made here, not by `schema.parametrize`: that makes those of all routes whenever tests are collected."""
    from schemathesis.checks import not_a_server_error  # noqa: PLC0415
    from schemathesis.generation.hypothesis.builder import (  # noqa: PLC0415
        HypothesisTestConfig,
        HypothesisTestMode,
        create_test,
    )

    @settings(max_examples=4, deadline=None, suppress_health_check=list(HealthCheck))
    def send(case: schemathesis.Case) -> None:
        if case.path == "/v1/nodes/{name}/health":
            case.path_parameters["name"] = "other"
        case.call_and_validate(base_url=fuzzed.url, session=session, checks=[not_a_server_error], timeout=180)

    # In CI random cases would be the same ones each time.
    modes = [one for one in HypothesisTestMode if one is not HypothesisTestMode.FUZZING or "CI" not in os.environ]
    config = HypothesisTestConfig(project=schema().config, modes=modes)
    create_test(operation=by_label()[label], test_func=send, config=config)()


NAMES = st.sampled_from(["seed", "1", "seed-1", "0", "9" * 15, "9" * 40, "a%00b", "..", "%2e%2e", "é", " "])
QUERIES = st.dictionaries(
    st.sampled_from(["limit", "after", "before", "rank", "attempt", "tail", "points", "kind", "name", "last"]),
    st.one_of(st.integers(-(2**70), 2**70).map(str), st.text(max_size=20), st.sampled_from(["\0", "nan", "1e9", ""])),
    max_size=4,
)


@given(
    name=NAMES,
    leaf=st.sampled_from(["", "/why", "/logs", "/metrics", "/metrics/x", "/summary", "/spec"]),
    query=QUERIES,
)
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
def test_strange_references_and_queries(fuzzed: LiveServer, name: str, leaf: str, query: dict[str, str]) -> None:
    with fuzzed.http() as http:
        for path in (f"/v1/jobs/{name}{leaf}", "/v1/jobs", "/v1/events"):
            answer = http.get(path, params=query)
            assert answer.status_code < 500, (path, query, answer.text)
            if answer.status_code >= 400:
                assert answer.json()["error"]["message"]


@given(body=st.binary(max_size=400))
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
def test_garbage_from_a_launcher_with_a_good_token(fuzzed: LiveServer, body: bytes) -> None:
    token = load_keyring(fuzzed.home / "key").attempt_token("seed-1", 1)
    with fuzzed.http(token) as http:
        assert http.post("/v1/ingest", content=body).status_code in (400, 410)
