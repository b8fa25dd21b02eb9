"""Costs of real jobs over the API and the command line: reports agree, and each sees what it may."""

from __future__ import annotations

import csv
import io
import json
import subprocess
import sys
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import pytest

from live import LiveServer, live_server, until
from muster.client import Client

PRICE = 3600.0  # for an hour: a second costs one


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with live_server(tmp_path_factory.mktemp("costs"), "--accelerators", "H100:2", "--cpus", "8") as server:
        with server.http() as root:
            policy = json.dumps({"pools": {"local": {"price": PRICE}}})
            assert root.put("/v1/rules", json={"text": policy}).status_code == 200
            for project in ("red", "blue"):
                assert root.post("/v1/projects", json={"name": project}).status_code == 201
                _submit(root, server.home, project, "true", tags={"family": "=gpt"})
            _submit(root, server.home, "red", "false")
            until(lambda: sum(row["entries"] > 0 for row in _rows(root, by="run")) == 3, "three charges")
        yield server


def _submit(root: httpx.Client, home: Path, project: str, run: str, **given: Any) -> str:
    queue = f"of-{project}"
    root.post("/v1/queues", json={"name": queue, "project": project})
    spec = {"name": f"{project}-{run.split()[0]}", "run": run, "project": project, "queue": queue, "workdir": str(home),
            "resources": {"accelerators": 1}, "retry": {"max_restarts": 0}, **given}  # fmt: skip
    answer = root.post("/v1/jobs", json={"spec": spec})
    assert answer.status_code < 300, answer.text
    return str(answer.json()["id"])


def _rows(http: httpx.Client, **params: str) -> list[dict[str, Any]]:
    answer = http.get("/v1/cost", params=params)
    assert answer.status_code == 200, answer.text
    return list(answer.json()["rows"])


def _member(server: LiveServer, user: str, project: str) -> httpx.Client:
    with server.http() as root:
        root.put(f"/v1/projects/{project}/members/{user}", json={"role": "viewer"})
        return server.http(root.post("/v1/tokens", json={"user": user}).json()["token"])


def _finance(server: LiveServer) -> str:
    with server.http() as root:
        return str(root.post("/v1/tokens", json={"user": "fin", "finance": True}).json()["token"])


def test_all_reports_tell_of_the_same_amounts(server: LiveServer) -> None:
    with Client(server.url, server.token) as to:
        whole = to.cost()["totals"][0]
        assert whole["amount"] > 0
        assert whole["currency"] == "USD"
        for by in ("project", "user", "run,day", "week,pool", "month", "account,price", "family,queue"):
            assert sum(row["amount"] for row in to.cost(by)["rows"]) == whole["amount"]
        explained = to.explain_cost(pool="local")
        assert sum(one["amount"] for one in explained["entries"]) == whole["amount"]
        pages = to.explain_cost(pool="local", limit=1)
        following = to.explain_cost(pool="local", after=pages["next"])
        assert [*pages["entries"], *following["entries"]] == explained["entries"]
        of_a_family = to.explain_cost(family="=gpt", month="this")
        assert {one["family"] for one in of_a_family["entries"]} == {"=gpt"}
        assert to.explain_cost(since="2020-01-01", until="2020-01-31")["entries"] == []
        statements = to.cost_statements()
        assert {one["project"] for one in statements} == {"red", "blue"}
        assert sum(one["totals"][0]["amount"] for one in statements) == whole["amount"]
        bill = csv.DictReader(io.StringIO(b"".join(to.cost_focus()).decode()))
        assert sum(Decimal(row["BilledCost"]) for row in bill) * 1_000_000 == whole["amount"]
        families = {(one["project"], one["family"]): one for one in to.cost_families()["families"]}
        assert families["red", "red-false"]["per_success"] is None
        assert families["red", "=gpt"]["per_success"] == families["red", "=gpt"]["amount"]
        classes = to.cost_waste()
        assert sum(one["amount"] for one in classes["causes"]) + sum(classes["useful"].values()) == whole["amount"]
        assert to.cost_change()["totals"][0]["now"] == whole["amount"]
        assert to.cost_forecast()["forecasts"][0]["so_far"] == whole["amount"]
        assert to.cost_hours()["pools"][0]["charged"] == pytest.approx(PRICE * 1_000_000, rel=0.01)
        assert to.cost_runs("loss")["runs"] == []
        assert to.cost_spot()["pools"] == []
        frame = to.cost_frame("project")
        assert sum(frame["amount"]) == pytest.approx(whole["amount"] / 1_000_000)
        run = to.cost("run")["rows"][0]["group"]["run"]
        assert to.summary(run)["cost"]["amount"] == pytest.approx(to.cost("run")["rows"][0]["amount"] / 1_000_000)


def test_what_still_runs_is_apart_until_it_has_ended(server: LiveServer) -> None:
    with server.http() as root:
        job = _submit(root, server.home, "red", "sleep 600")
        until(lambda: any(row["pending"] for row in _rows(root, by="run") if row["group"]["run"] == job), "its cost")
        (row,) = [row for row in _rows(root, by="run") if row["group"]["run"] == job]
        assert (row["amount"], row["entries"]) == (0, 0)
        assert _rows(root, by="project", project="blue")[0]["pending"] == 0
        root.post(f"/v1/jobs/{job}/stop", json={})
        until(lambda: [r for r in _rows(root, by="run") if r["group"]["run"] == job and r["amount"]], "its charge")


def test_members_see_the_costs_of_their_project_alone(server: LiveServer) -> None:
    with _member(server, "bo", "blue") as bo, server.http() as root:
        assert {row["group"]["project"] for row in _rows(bo)} == {"blue"}
        theirs = next(row["group"]["run"] for row in _rows(root, by="run", project="red"))
        assert bo.get("/v1/cost/explain", params={"run": theirs}).json()["entries"] == []
        assert bo.get("/v1/cost", params={"project": "red"}).status_code == 404
        assert "red" not in bo.get("/v1/cost/focus").text
        for path in ("families", "waste", "change", "statement", "hours"):
            assert "red" not in bo.get(f"/v1/cost/{path}").text
        assert set(bo.get("/allocation/compute", params={"accumulate": "true"}).json()["data"][0]) == {"blue"}
        assert bo.post("/v1/tokens", json={"finance": True}).status_code == 403


def test_finance_reads_all_costs_and_nothing_else(server: LiveServer) -> None:
    with server.http(_finance(server)) as fin:
        assert {row["group"]["project"] for row in _rows(fin)} == {"red", "blue"}
        names = fin.get("/v1/projects").json()["projects"]
        assert {"red", "blue"} <= {one["name"] for one in names}
        assert not any(one["members"] or one["role"] for one in names)
        for path in ("/v1/jobs", "/v1/whoami", "/v1/tokens", "/v1/events", "/metrics", "/v1/projects/red/notes",
                     "/mlflow/api/2.0/mlflow/experiments/search"):  # fmt: skip
            assert fin.get(path).status_code == 403, path
        for path in ("/v1/tokens", "/v1/projects", "/v1/cost"):
            assert fin.post(path, json={}).status_code in (403, 405), path


def test_allocations_have_the_shape_of_opencost(server: LiveServer) -> None:
    with server.http() as root:
        answer = root.get("/model/allocation", params={"window": "2d", "aggregate": "namespace", "accumulate": "true"})
        found = answer.json()
        assert found["code"] == 200
        (data,) = found["data"]
        assert data["red"]["properties"]["namespace"] == "red"
        assert data["red"]["gpuCost"] == data["red"]["totalCost"] > 0
        assert len(root.get("/allocation", params={"window": "2d"}).json()["data"]) == 2
        pods = root.get("/allocation/compute", params={"window": "today", "aggregate": "pod"}).json()["data"][0]
        assert any(name.startswith("red/") for name in pods)
        for window in ("week", "month", "lastweek", "lastmonth", "yesterday", "1793880000,1793966400"):
            assert root.get("/allocation", params={"window": window}).status_code == 200
        assert root.get("/allocation", params={"window": "soon"}).status_code == 400
        assert root.get("/allocation", params={"aggregate": "label:x"}).status_code == 400


def test_prometheus_has_what_today_cost(server: LiveServer) -> None:
    with server.http() as root:
        page = root.get("/metrics", params={"part": "server"}).text
        charged = {row["group"]["project"]: row["amount"] for row in _rows(root, since="1d", account="project")}
        line = next(line for line in page.splitlines() if line.startswith("muster_cost_today{") and '"blue"' in line)
        assert 'account="project",currency="USD",pool="local",project="blue"' in line
        assert float(line.split()[-1]) == pytest.approx(charged["blue"] / 1_000_000)


def test_wrong_questions_are_refused(server: LiveServer) -> None:
    with server.http() as root:
        for params in ({"by": "nothing"}, {"month": "2026-13"}, {"since": "x"}, {"month": "this", "week": "this"}):
            assert root.get("/v1/cost", params=params).status_code == 400, params
        for path in ("", "/families", "/runs"):  # they read entries, of which a year has too many
            assert root.get(f"/v1/cost{path}", params={"by": "run", "since": "365d"}).status_code == 400, path
        assert root.get("/v1/cost", params={"by": "user", "since": "365d"}).status_code == 200
        assert root.get("/v1/cost/explain").status_code == 400
        assert root.get("/v1/cost/explain", params={"user": "admin"}).status_code == 400
        assert root.get("/v1/cost/explain", params={"day": "2026-11-01", "after": "x"}).status_code == 400
        assert root.get("/v1/cost/explain", params={"day": "2026-11-01", "month": "this"}).status_code == 400


def test_the_commands_show_and_write_it(server: LiveServer, tmp_path: Path) -> None:
    def muster(*words: str) -> str:
        command = [sys.executable, "-m", "muster", "--home", str(server.home), "cost", *words]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "red" in muster("--by", "project,family")
    assert "× 1 accelerator × 3,600.00 an hour (on_demand)" in muster("explain", "red-true")
    told = json.loads(muster("focus", "-o", str(tmp_path / "bill.csv"), "--json"))
    assert told["bytes"] == (tmp_path / "bill.csv").stat().st_size
    bill = json.loads(muster("reconcile", "--focus", str(tmp_path / "bill.csv"), "--json"))
    assert (bill["matching"], bill["differences"]) == (1, [])
    (tmp_path / "sacct").write_text(
        "JobID|JobName|Account|Submit|Start|Elapsed|State|NNodes|AllocTRES\n"
        "7|muster-elsewhere|red|2026-11-02T10:00:00|2026-11-02T10:00:00|02:00:00|COMPLETED|1|gres/gpu=4,node=1\n"
    )
    slurm = json.loads(muster("reconcile", "--sacct", str(tmp_path / "sacct"), "--json"))
    assert (slurm["only_theirs"], slurm["theirs"]) == (1, 8.0)
    assert slurm["differences"][0]["key"] == "elsewhere"
    muster("statement", "--html", str(tmp_path / "all.html"))
    assert "Project blue" in (tmp_path / "all.html").read_text()
    rows = list(csv.DictReader(io.StringIO(muster("statement", "--csv", "-", "--project", "blue"))))
    assert [row["family"] for row in rows] == ["'=gpt"]  # no formula for a spreadsheet
