"""The API: series and curves of a real job that restarted, what JSON can't say, and requests that make no sense."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest

from live import LiveServer, live_server

SCRIPT = """
import os, sys
import muster.runtime as m
attempt = int(os.environ["MUSTER_ATTEMPT"])
first = 0 if attempt == 1 else 300
for step in range(first, 500):
    m.report(step=step, loss=attempt * 1000.0 + step, odd=float("nan") if step % 2 else float("inf"))
if attempt == 1:
    os.kill(os.getpid(), 9)
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with live_server(tmp_path_factory.mktemp("home")) as made:
        yield made


@pytest.fixture(scope="module")
def job(server: LiveServer) -> str:
    (server.home / "two.py").write_text(SCRIPT)
    retry = {"max_restarts": 1, "on": ["worker"], "backoff": 0}
    submitted = server.submit(f"exec {sys.executable} two.py", retry=retry)
    done = server.wait(submitted["id"])
    assert (done["phase"], done["attempt"]) == ("succeeded", 2)
    return str(submitted["id"])


def test_series_with_their_summaries(server: LiveServer, job: str) -> None:
    found = server.get(f"/v1/runs/{job}/metrics")
    own = {one["name"]: one for one in found["series"] if not one["name"].startswith("system/")}
    assert list(own) == ["loss", "odd"]
    assert own["loss"] | {"last_time": 0.0} == {
        "name": "loss", "rank": 0, "points": 700, "nans": 0, "last": 2499.0, "last_step": 499, "last_time": 0.0,
        "last_attempt": 2, "low": 1000.0, "low_step": 0, "high": 2499.0, "high_step": 499,
    }  # fmt: skip
    assert (own["odd"]["last"], own["odd"]["low"], own["odd"]["nans"]) == ("NaN", "Infinity", 350)
    assert server.get(f"/v1/runs/{job}/metrics", rank=5)["series"] == []


def test_the_first_curves_come_with_the_series(server: LiveServer, job: str) -> None:
    found = server.get(f"/v1/runs/{job}/metrics", curves=8, buckets=10)
    assert [one["name"] for one in found["curves"]] == ["loss", "odd"]
    assert found["curves"][0] == server.get(f"/v1/runs/{job}/metrics/loss", buckets=10)
    assert [one["name"] for one in server.get(f"/v1/runs/{job}/metrics", curves=1)["curves"]] == ["loss"]
    assert server.get(f"/v1/runs/{job}/metrics", rank=5, curves=1)["curves"] == []


def test_a_curve_has_the_attempts_as_bands_and_supersedes(server: LiveServer, job: str) -> None:
    curve = server.get(f"/v1/runs/{job}/metrics/loss")
    assert (curve["points"], curve["raw"], curve["axis"], curve["rank"]) == (500, True, "step", 0)
    assert curve["first_step"] == list(range(500))
    assert curve["last"] == [1000.0 + s for s in range(300)] + [2000.0 + s for s in range(300, 500)]
    assert curve["attempt"] == [1] * 300 + [2] * 200
    assert curve["bands"] == [
        {"attempt": 1, "first_step": 0, "last_step": 299, "superseded_from": 300},
        {"attempt": 2, "first_step": 300, "last_step": 499, "superseded_from": None},
    ]
    whole = server.get(f"/v1/runs/{job}/metrics/loss", superseded=True)
    assert (whole["points"], whole["attempt"]) == (700, [1] * 500 + [2] * 200)
    old = server.get(f"/v1/runs/{job}/metrics/loss", attempt=1, start=290, stop=310)
    assert old["first_step"] == list(range(290, 310))
    few = server.get(f"/v1/runs/{job}/metrics/loss", buckets=10, axis="time")
    assert (len(few["count"]), sum(few["count"]), few["raw"]) == (10, 500, False)
    assert few["low"][0] == 1000.0


def test_what_json_cannot_say_is_a_text(server: LiveServer, job: str) -> None:
    curve = server.get(f"/v1/runs/{job}/metrics/odd", stop=2)
    assert (curve["last"], curve["low"], curve["nans"]) == (["Infinity", "NaN"], ["Infinity", "NaN"], [0, 1])
    older = server.get(f"/v1/jobs/{job}/metrics/odd")["attempts"][0]["values"]
    assert older[:2] == ["Infinity", "NaN"]


def test_the_older_way_to_ask_goes_on(server: LiveServer, job: str) -> None:
    names = server.get(f"/v1/jobs/{job}/metrics")["names"]
    assert [name for name in names if not name.startswith("system/")] == ["loss", "odd"]
    curves = server.metric(job, "loss")
    assert curves[1] == (list(range(500)), [1000.0 + s for s in range(500)])
    assert curves[2][0] == list(range(300, 500))
    picked = server.get(f"/v1/jobs/{job}/metrics/loss", points=3)["attempts"]
    assert [len(one["steps"]) for one in picked] == [3, 3]
    summary = server.get(f"/v1/jobs/{job}/summary")
    assert (summary["attempts"], summary["steps_repeated"]) == (2, 200)


@pytest.mark.parametrize(
    ("path", "params", "status"),
    [
        ("metrics/los", {}, 404),
        ("metrics/loss", {"rank": 3}, 404),
        ("metrics/" + "x" * 257, {}, 400),
        ("metrics/loss", {"buckets": 0}, 400),
        ("metrics/loss", {"buckets": 10**7}, 400),
        ("metrics/loss", {"axis": "wall"}, 400),
        ("metrics/loss", {"start": "nan"}, 400),
        ("metrics/loss", {"attempt": -1}, 400),
    ],
)
def test_requests_that_make_no_sense(
    server: LiveServer, job: str, path: str, params: dict[str, Any], status: int
) -> None:
    with server.http() as http:
        answer = http.get(f"/v1/runs/{job}/{path}", params=params)
    assert answer.status_code == status
    if path == "metrics/los":
        assert "There is loss" in answer.json()["error"]["hint"]
    with server.http() as http:
        assert http.get(f"/v1/runs/nobody-1/{path}", params=params).status_code in (400, 404)
