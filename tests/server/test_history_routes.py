"""The past from outside: months that were recorded before, what the server adds, who sees what, and what is refused."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from live import LiveServer, live_server
from muster.core.attempt_events import AttemptEnded, AttemptRunning
from muster.core.entities.project import ProjectSet
from muster.core.event import Event
from muster.core.job_events import JobSucceeded
from muster.core.payload import decode
from muster.core.reasons import reason
from muster.monitor.rollup import ALL, DAY, KEPT, from_text, held, merge, start_of, to_text, waited
from muster.store.base import Entry
from muster.store.past import Rollup
from muster.store.registry import open_store
from scheduler_kit import job_event

NOW = time.time()
TODAY = start_of(NOW, DAY)
RECORDED = [
    {"used": 6000, "there": 8000, "jobs": 3000, "asked": 9000, "free": 2000, "cpus": 64_000, "cpus_used": 16_000}
]


def put_a_past(home: Path) -> None:
    """Four months of days of a pool, and jobs of two projects that started yesterday."""
    home.mkdir(parents=True, exist_ok=True)
    store = open_store(f"sqlite:///{home}/muster.db")
    days = []
    for ago in range(1, 121):
        start = TODAY - ago * DAY
        parts = [part for _, part in held(RECORDED[0], 1000 * start, 1000 * (start + DAY), DAY)]
        text = to_text(merge([*parts, waited(100.0 * ago)]))
        days += [Rollup(DAY, start, pool, 1000 * (start + DAY), text) for pool in ("old-pool", ALL)]
    store.transact([lambda state: Entry(rollups=days)])
    for name in ("alpha", "beta"):
        store.append([Event(ProjectSet(name=name), NOW - 2 * DAY)])
    for number, (project, wait) in enumerate([("alpha", 10.0), ("alpha", 4000.0), ("beta", 20.0)], start=1):
        submitted = job_event(number, project=project, queue="default")
        at = NOW - DAY + 5000 * number  # times never run backwards along a log
        job = submitted.job
        store.append([Event(submitted.data, at, "ada", project, job)])
        store.append(
            [Event(decode("attempt.planned", {"seats": [{"node": "x", "devices": []}]}), at, "muster", project, job, 1)]
        )
        store.append([Event(AttemptRunning(), at + wait, "muster", project, job, 1)])
        why = reason("completed")
        store.append([
            Event(AttemptEnded("succeeded", why), at + wait, "muster", project, job, 1),
            Event(JobSucceeded(why), at + wait, "muster", project, job),
        ])  # fmt: skip
    store.close()


@pytest.fixture(scope="module")
def historic(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    home = tmp_path_factory.mktemp("past") / "home"
    put_a_past(home)
    with live_server(home, config="nodes = 1\naccelerators = 'H100:4'\ncpus = 8\n") as server:
        yield server


def member_of(server: LiveServer, user: str, project: str, role: str = "viewer") -> str:
    with server.http() as http:
        assert http.put(f"/v1/projects/{project}/members/{user}", json={"role": role}).status_code == 200
        return str(http.post("/v1/tokens", json={"user": user, "name": "test"}).json()["token"])


def levels(found: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    return {(level["work"], level["priority"]): level for level in found["levels"]}


class TestNodes:
    def test_ninety_days_of_a_pool_that_is_gone(self, historic: LiveServer) -> None:
        found = historic.get("/v1/nodes/history", pool="old-pool")
        (pool,) = found["pools"]
        assert (found["every"], pool["pool"], len(pool["buckets"])) == (DAY, "old-pool", 90)
        summary = pool["summary"]
        assert (summary["accelerators"]["share"], summary["cpus"]["share"]) == (0.75, 0.25)
        assert (summary["queued"]["most_accelerators"], summary["queued"]["free_then"]) == (9.0, 2.0)
        assert (summary["waits"]["count"], summary["waits"]["longest"]) == (90, 9000.0)
        assert summary["waits"]["p90"] == pytest.approx(8100, rel=0.1)

    def test_longer_steps_are_sums_of_days(self, historic: LiveServer) -> None:
        found = historic.get("/v1/nodes/history", since=200 * DAY, every=30 * DAY, pool="old-pool")
        (pool,) = found["pools"]
        assert sum(bucket["observed"] for bucket in pool["buckets"]) == 120 * DAY
        assert pool["summary"]["waits"]["count"] == 120
        assert all(bucket["start"] % (30 * DAY) == 0 for bucket in pool["buckets"])

    def test_all_pools_come_unless_one_is_named(self, historic: LiveServer) -> None:
        names = [pool["pool"] for pool in historic.get("/v1/nodes/history")["pools"]]
        assert {"", "old-pool"} <= set(names)

    def test_a_pool_without_a_record_is_empty_and_an_unknown_one_an_error(self, historic: LiveServer) -> None:
        name = historic.get("/v1/nodes")["nodes"][0]["pool"]
        assert historic.get("/v1/nodes/history", pool=name, since=60, every=60)["every"] == 60
        with historic.http() as http:
            answer = http.get("/v1/nodes/history", params={"pool": "nowhere"})
        assert answer.status_code == 404
        assert "nowhere" in answer.text

    @pytest.mark.parametrize("params", [{"every": 90}, {"since": 1}, {"every": 60, "since": 90 * DAY}, {"pool": ""}])
    def test_what_makes_no_sense_is_refused(self, historic: LiveServer, params: dict[str, Any]) -> None:
        with historic.http() as http:
            assert http.get("/v1/nodes/history", params=params).status_code == 400

    def test_any_member_may_look(self, historic: LiveServer) -> None:
        with historic.http(member_of(historic, "vic", "alpha")) as http:
            assert http.get("/v1/nodes/history").status_code == 200
        with historic.http("none") as http:
            assert http.get("/v1/nodes/history").status_code == 401


class TestServiceLevels:
    def test_exact_against_the_targets_of_now(self, historic: LiveServer) -> None:
        found = historic.get("/v1/slo", since=DAY + 100)
        assert len(found["levels"]) == 10
        single = levels(found)["single", "standard"]
        assert (single["target"], single["started"], single["within"]) == (1800.0, 3, 2)
        assert (single["p50"], single["p90"], single["share"]) == (20.0, 4000.0, pytest.approx(2 / 3))
        assert levels(found)["session", "high"] == {
            "work": "session", "priority": "high", "target": 300.0, "started": 0, "within": 0, "p50": None, "p90": None,
            "waiting": 0, "late": 0, "share": None,
        }  # fmt: skip

    def test_a_viewer_sees_own_projects(self, historic: LiveServer) -> None:
        with historic.http(member_of(historic, "bea", "beta")) as http:
            found = http.get("/v1/slo", params={"since": DAY + 100}).json()
            assert levels(found)["single", "standard"]["started"] == 1
            assert http.get("/v1/slo", params={"queue": "default"}).status_code == 200

    def test_a_queue_that_one_cannot_see(self, historic: LiveServer) -> None:
        historic.post("/v1/queues", {"name": "hidden", "project": "alpha"})
        with historic.http(member_of(historic, "bob", "beta")) as http:
            for name in ("hidden", "nothing"):
                assert http.get("/v1/slo", params={"queue": name}).status_code == 404
        assert levels(historic.get("/v1/slo", queue="hidden"))["single", "standard"]["started"] == 0

    def test_a_job_that_waits_is_counted(self, historic: LiveServer) -> None:
        job = historic.submit("sleep 600", resources={"accelerators": 4})["id"]
        historic.wait(job, "running")
        second = historic.submit("true", resources={"accelerators": 4}, priority="high")["id"]
        found = levels(historic.get("/v1/slo", since=3600))
        assert (found["single", "high"]["waiting"], found["single", "high"]["late"]) == (1, 0)
        assert found["single", "standard"]["started"] == 1
        for each in (second, job):
            historic.post(f"/v1/jobs/{each}/stop")
            historic.wait(each)


class TestRecording:
    def test_a_server_that_stops_has_written_what_it_saw(self, tmp_path: Path) -> None:
        with live_server(tmp_path / "home", config="nodes = 1\naccelerators = 'H100:2'\ncpus = 8\n") as server:
            server.wait(server.submit("true", resources={"accelerators": 1})["id"])
            pool = server.get("/v1/nodes")["nodes"][0]["pool"]
            assert server.stop() == 0
        store = open_store(f"sqlite:///{tmp_path}/home/muster.db")
        for resolution in KEPT:
            for name in (pool, ALL):
                bucket = merge(from_text(row.data) for row in store.rollups(resolution, name, 0, 2**40))
                assert bucket.waits.count == 1
                assert bucket.high("there") == 2.0
                assert bucket.ms > 0
        store.close()

    def test_a_young_record_is_shown_without_any_word_of_how(self, tmp_path: Path) -> None:
        home, config = tmp_path / "home", "nodes = 1\naccelerators = 'H100:2'\ncpus = 8\n"
        with live_server(home, config=config) as server:
            server.wait(server.submit("true", resources={"accelerators": 1})["id"])
            assert server.stop() == 0
        with live_server(home, config=config) as server:
            found = server.get("/v1/nodes/history")
            assert found["every"] < DAY
            assert found["now"] - found["since"] <= DAY
            assert [pool["summary"]["waits"]["count"] for pool in found["pools"]] == [1, 1]
