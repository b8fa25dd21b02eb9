"""Why and when, through the API of a real server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from live import LiveServer, until


@pytest.fixture
def full(server: LiveServer) -> Iterator[str]:
    """A gang that holds every accelerator."""
    job = server.submit("sleep 600", name="holder", num_nodes=2, gpus=4, cpus=1, max_duration="2h", priority=95)
    server.wait(job["id"], "running")
    yield job["id"]
    for one in server.get("/v1/jobs", limit=100)["jobs"]:
        if one["phase"] in ("queued", "starting", "running"):
            server.post(f"/v1/jobs/{one['id']}/stop", {"force": True})
    server.wait(job["id"])


def check(server: LiveServer, **spec: object) -> dict:
    body = {"spec": {"name": "dry", "run": "true", "workdir": str(server.home), **spec}, "dry_run": True}
    found: dict = server.post("/v1/jobs", body)
    return found


def test_why_says_who_holds_it_what_would_help_and_when(server: LiveServer, full: str) -> None:
    first = server.submit("true", name="first", gpus=2, cpus=1)["id"]
    second = server.submit("true", name="second", gpus=2, cpus=1)["id"]
    why = server.get(f"/v1/jobs/{first}/why")
    assert (why["reason"]["code"], why["place"], why["ahead"]) == ("no_capacity", 1, [])
    assert why["reason"]["data"]["holders"] == [full]
    codes = {one["code"]: one for one in why["unblock"]}
    assert codes["wait_for"]["data"]["job"] == full
    told = why["forecast"]
    assert told["at"] < told["p50"] <= told["p90"]
    why = server.get(f"/v1/jobs/{second}/why")
    assert [one["code"] for one in why["all"]] == ["behind_in_queue", "no_capacity"]
    assert (why["place"], [one["id"] for one in why["ahead"]]) == (2, [first])
    assert server.get(f"/v1/jobs/{second}/why", forecast=False)["forecast"] is None
    line = [job["id"] for job in server.get("/v1/queues/default/line")["jobs"]]
    assert line[:2] == [first, second]
    assert server.get(f"/v1/jobs/{full}/why")["forecast"] is None


def test_forecasts_of_a_job_and_of_those_who_are_next(server: LiveServer, full: str) -> None:
    first = server.submit("true", name="first", gpus=1, cpus=1)["id"]
    one = server.get(f"/v1/jobs/{first}/forecast")
    assert (one["id"], one["phase"]) == (first, "queued")
    found = server.get("/v1/forecast", queue="default", limit=1)
    assert [job["job"] for job in found["jobs"]] == [first]
    assert found["jobs"][0]["p50"] == pytest.approx(one["forecast"]["p50"], rel=0.01)
    assert server.get(f"/v1/jobs/{full}/forecast")["forecast"] is None
    with server.http() as http:
        assert http.get("/v1/forecast", params={"queue": "nonesuch"}).status_code == 404


def test_a_dry_run_says_what_would_happen_and_submits_nothing(server: LiveServer, full: str) -> None:
    found = check(server, gpus=1, cpus=1)
    assert (found["ok"], found["starts_now"], found["nodes"]) == (True, False, [])
    assert found["reasons"][0]["code"] == "no_capacity"
    assert found["forecast"]["p50"] > found["forecast"]["at"]
    assert found["waits_for"][0]["data"]["job"] == full
    assert server.get("/v1/jobs", name="dry")["jobs"] == []


def test_a_dry_run_on_free_nodes_names_them(server: LiveServer) -> None:
    def free() -> bool:
        return all(not node["jobs"] for node in server.get("/v1/nodes")["nodes"])

    until(free, "the nodes to be free")
    found = check(server, gpus=4, num_nodes=2, cpus=1)
    assert (found["starts_now"], len(found["nodes"]), found["preempts"]) == (True, 2, [])
    assert found["forecast"]["p50"] == found["forecast"]["at"]


def test_a_refusal_has_the_nearest_shape(server: LiveServer) -> None:
    body = {"spec": {"name": "dry", "run": "true", "num_nodes": 64}, "dry_run": True}
    with server.http() as http:
        answer = http.post("/v1/jobs", json=body)
    assert answer.status_code == 409
    (reason,) = answer.json()["error"]["reasons"]
    assert (reason["code"], reason["data"]["nearest"]) == ("never_fits", {"num_nodes": 2})


def test_a_forecast_is_kept_and_scored(server: LiveServer, full: str) -> None:
    job = server.submit("true", name="scored", gpus=4, cpus=1)["id"]

    def kept() -> list[dict]:
        found: list[dict] = server.get("/v1/events", job=job, kind="job.forecast")["events"]
        return found

    (event,) = until(kept, "the forecast to be kept")
    assert event["data"]["p50"] <= event["data"]["p90"]
    server.post(f"/v1/jobs/{full}/stop", {"force": True})
    server.wait(job)
    found = server.get("/v1/forecast/calibration", since=3600)
    assert found["all"]["before_p90"] is not None
    assert "default" in found["queues"]
    assert "2 to 8" in found["sizes"]


def test_why_says_what_a_gang_with_fewer_nodes_waits_for_to_grow(server: LiveServer) -> None:
    holder = server.submit("sleep 600", gpus=4, cpus=1)["id"]
    server.wait(holder, "running")
    wide = server.submit("sleep 600", num_nodes={"min": 1, "max": 2}, gpus=4, cpus=1)["id"]
    server.wait(wide, "running")
    why = server.get(f"/v1/jobs/{wide}/why")
    assert (why["reason"]["code"], why["reason"]["data"]["nodes"]) == ("fewer_nodes", 1)
    assert "on 1 of the 2 nodes that it asked for; to grow it waits for a node of" in why["reason"]["message"]
    for job in (wide, holder):
        server.post(f"/v1/jobs/{job}/stop", {"force": True})
        server.wait(job)
