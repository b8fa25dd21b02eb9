"""`muster report` of a real server: finished jobs, the months before, what a member sees, and the HTML file."""

from __future__ import annotations

import json
import os
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest

from live import LiveServer, call_muster, live_server
from muster.cli import report_page
from muster.monitor.rollup import ALL, DAY, held, start_of, to_text
from muster.store.base import Entry
from muster.store.past import Rollup
from muster.store.registry import open_store

FAMILY = "<script>alert(1)</script>"
POLICY = "pools: {local: {price: 3600}}\n"
BEGAN = datetime.now(UTC)
MONTH = f"{BEGAN:%Y-%m}"


def put_use(home: Path) -> None:
    """A whole day's use of the pools, beside which the server's own samples are few."""
    home.mkdir(parents=True, exist_ok=True)
    store = open_store(f"sqlite:///{home}/muster.db")
    day = start_of(BEGAN.timestamp(), DAY)
    sample = {"used": 6000, "there": 8000, "free": 2000, "usable": 1000}
    ((_, bucket),) = held(sample, 1000 * day, 1000 * (day + DAY), DAY)
    rows = [Rollup(DAY, day, pool, 1000 * day, to_text(bucket)) for pool in ("local", ALL)]
    store.transact([lambda state: Entry(rollups=rows)])
    store.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    home = tmp_path_factory.mktemp("report")
    put_use(home)
    with live_server(home, "--nodes", "1", "--accelerators", "H100:4") as live:
        with live.http() as http:
            assert http.put("/v1/rules", json={"text": POLICY}).status_code == 200
        for project in ("alpha", "beta"):
            live.post("/v1/projects", {"name": project})
        one = {"accelerators": "H100:1"}
        jobs = [
            live.submit("true", name="good", project="alpha", resources=one, tags={"family": FAMILY}),
            live.submit("exit 3", name="bad", project="alpha", resources=one),
            live.submit("true", name="other", project="beta", resources=one, priority="high"),
        ]
        for job in jobs:
            live.wait(job["id"])
        yield live


def member(server: LiveServer, project: str) -> httpx.Client:
    with server.http() as root:
        assert root.put(f"/v1/projects/{project}/members/mia", json={"role": "viewer"}).status_code == 200
        token = root.post("/v1/tokens", json={"user": "mia"}).json()["token"]
    return server.http(token)


def by_name(view: dict[str, Any]) -> dict[str, Any]:
    return {one["name"]: one for one in view["figures"]}


def test_the_month_so_far_of_all_projects(server: LiveServer) -> None:
    view = server.get("/v1/report", month=MONTH)
    figures = by_name(view)
    assert view["projects"] is None
    assert view["unit"] == "accelerator"
    assert figures["utilisation"]["value"] == pytest.approx(0.75, abs=0.01)
    assert figures["utilisation"]["met"]
    assert figures["fragmentation"]["value"] == pytest.approx(0.5, abs=0.02)
    assert figures["success"]["value"] == 1
    assert figures["success"]["details"]["with_code_errors"] == pytest.approx(2 / 3)
    assert figures["wait_single"]["details"]["started"] == 2
    assert figures["wait_single_high"]["met"]
    assert 0 < figures["effective"]["value"] < 1
    cost = figures["experiment_cost"]
    held = server.get("/v1/goodput", since=2 * 86400)["ledgers"][0]["held"]
    assert cost["details"]["experiments"] == 3
    assert cost["details"]["cost"] == pytest.approx(held)  # the price of a second is 1
    assert figures["family_cost"]["details"]["families"] == 2
    assert figures["recovery"]["value"] is None
    assert figures["recovery"]["unknown"] == "no job started again after a failure"
    assert [len(one["before"]) for one in view["figures"]] == [6] * len(figures)
    assert any(one["cause"] == "Starts of jobs in project alpha" for one in view["waste"])
    assert view["notes"][0].startswith("The server's record begins on")
    assert by_name(server.get("/v1/report", month=MONTH))["success"] == figures["success"]  # with what is kept


def test_a_member_sees_own_projects_alone_and_no_use_of_pools(server: LiveServer) -> None:
    with member(server, "beta") as http:
        view = http.get("/v1/report").json()
        assert view["projects"] == ["beta"]
        figures = by_name(view)
        assert figures["utilisation"]["value"] is None
        assert figures["success"]["details"]["succeeded"] == 1
        assert figures["experiment_cost"]["details"]["experiments"] == 1
        assert not any("alpha" in one["cause"] or "pool" in one["cause"] for one in view["waste"])
        for hidden in ("alpha", "none"):
            assert http.get("/v1/report", params={"project": hidden}).status_code == 404
    assert server.get("/v1/report", project="beta", week="this")["projects"] == ["beta"]


@pytest.mark.parametrize(
    "asked",
    [
        {"month": "2026-13"}, {"month": "9000-01"}, {"week": "2026-W99"}, {"zone": "Mars/X"}, {"since": 1},
        {"since": 1e8}, {"month": "2026-10", "week": "2026-W43"}, {"before": 7},
    ],
)  # fmt: skip
def test_what_is_no_period_is_refused(server: LiveServer, asked: dict[str, Any]) -> None:
    with server.http() as http:
        assert http.get("/v1/report", params=asked).status_code in (400, 422)


def test_the_command_shows_it_and_writes_one_file(server: LiveServer, tmp_path: Path) -> None:
    env = {**os.environ, "MUSTER_HOME": str(server.home)}
    shown = call_muster("report", "--month", MONTH, env=env).stdout
    assert re.search(r"Success rate +100.0% +≥ 95%", shown)
    assert "The largest causes of waste, in accelerator hours:" in shown
    assert json.loads(call_muster("report", "--since", "1d", "--json", env=env).stdout)["period"]["over"] is False
    early = call_muster("report", "--month", "2019-01", env=env)
    assert early.stdout.startswith("Report of 2019-01 (UTC)")
    assert "nothing is known of the time before" in early.stderr
    file = tmp_path / "report.html"
    assert call_muster("report", "--html", str(file), env=env).returncode == 0
    page = file.read_text()
    assert "Utilisation" in page
    assert not re.search(r"<script|https?://|src=", page)
    view = server.get("/v1/report")
    view |= {"projects": [FAMILY], "waste": [{"cause": FAMILY, "hours": 1.0}], "notes": [FAMILY], "zone": FAMILY}
    assert "<script" not in report_page.page(view)
    twice = call_muster("report", "--week", "--since", "1d", env=env)
    assert twice.returncode == 2
    assert "--week and --since were given" in twice.stderr


def test_rows_of_a_release_that_kept_no_pool_cost_the_same(server: LiveServer) -> None:
    before = by_name(server.get("/v1/report"))
    with closing(sqlite3.connect(server.home / "muster.db", timeout=60)) as database, database:
        changed = database.execute("UPDATE goodput SET doc = json_remove(doc, '$.pool', '$.seats')").rowcount
    assert changed == 3
    after = by_name(server.get("/v1/report"))
    assert after["experiment_cost"] == before["experiment_cost"]
    assert after["spot"] == before["spot"]
