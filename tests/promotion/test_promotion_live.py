"""Promotion on a real server with tiny jobs: from what is missing to the next job, with its roles and its evidence."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from live import LiveServer, live_server, until
from muster import Client

PROGRAM = """
import os
from pathlib import Path
from muster import runtime
nodes, seed = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ["SEED"])
base = 3.0 if os.environ["KIND"] == "base" else 2.0
runtime.params(seed=seed, batch_size=32)
runtime.report(1, val_loss=base + seed / 100, tokens_per_s={1: 100.0, 2: 180.0, 4: 240.0}[nodes])
if seed == 1 and runtime.rank() == 0:
    Path("model.bin").write_bytes(b"weights")
    runtime.artifact("model.bin", "final/model.bin", kind="model")
"""
POLICY = """
promotion:
  medium:
    devices: 4
    metric: {name: val_loss, seeds: 3}
    cost_at_most: 5
    efficiency: {devices: 2, at_least: 0.8}
    reviewer: admin
  large: {after: medium, devices: 8, certificate: canary}
  production: {reviewer: admin}
projects: {default: {baseline: BASE}}
"""
PRICES = "pools: {local: {node: 0.001}}"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with live_server(tmp_path_factory.mktemp("home"), config="cpus = 64\nnodes = 4\n") as made:
        yield made


class Team:
    """The server with an author, a member and an admin of the project."""

    def __init__(self, server: LiveServer, workdir: Path) -> None:
        self.server, self.root = server, server.http()
        self.people: dict[str, httpx.Client] = {}
        for who, role in (("ada", "member"), ("mia", "member"), ("lea", "admin"), ("vic", "viewer")):
            self.root.put(f"/v1/projects/default/members/{who}", json={"role": role})
            token = self.root.post("/v1/tokens", json={"user": who}).json()["token"]
            self.people[who] = server.http(token)
            if who == "ada":
                self.author = Client(server.url, token)
        (workdir / "train.py").write_text(PROGRAM)
        self.workdir = workdir

    def submit(self, kind: str, seed: int, nodes: int = 1) -> str:
        spec = {
            "name": kind, "run": "python train.py", "workdir": str(self.workdir), "num_nodes": nodes,
            "envs": {"SEED": str(seed), "KIND": kind},
        }  # fmt: skip
        return self.author.submit(spec).id  # with a snapshot of the folder, which members' jobs need

    def status(self, run: str, stage: str, who: str = "ada") -> dict[str, Any]:
        return dict(self.people[who].get(f"/v1/runs/{run}/promotion", params={"to": stage}).json())

    def promote(self, run: str, stage: str, who: str = "ada", **body: Any) -> httpx.Response:
        return self.people[who].post(f"/v1/runs/{run}/promotion", json={"to": stage, **body})

    def ask(self, run: str, stage: str, who: str, why: str = "please look") -> httpx.Response:
        return self.people[who].post(f"/v1/runs/{run}/promotion/ask", json={"to": stage, "why": why})

    def reviews(self, who: str) -> list[dict[str, Any]]:
        return list(self.people[who].get("/v1/reviews").json()["reviews"])

    def approve(self, run: str, stage: str, who: str, why: str = "looks right") -> httpx.Response:
        return self.people[who].post(f"/v1/runs/{run}/promotion/approve", json={"to": stage, "why": why})


@pytest.fixture(scope="module")
def team(server: LiveServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    team = Team(server, tmp_path_factory.mktemp("work"))
    assert team.root.put("/v1/cost/prices", json={"text": PRICES}).status_code == 200
    bases = [team.submit("base", seed) for seed in (1, 2, 3)]
    jobs = [
        *bases,
        *(team.submit("gpt", seed) for seed in (1, 2, 3)),
        team.submit("gpt", 4, 2),
        team.submit("gpt", 5, 4),
    ]
    for job in jobs:
        server.wait(job, "succeeded", "failed")
    team.run = jobs[3]  # type: ignore[attr-defined]
    answer = team.root.put("/v1/rules", json={"text": POLICY.replace("BASE", bases[0])})
    assert answer.status_code == 200, answer.text
    yield team
    for client in (team.root, team.author, *team.people.values()):
        client.close()


def lacking(status: dict[str, Any]) -> list[str]:
    return [one["name"] for one in status["needs"] if not one["holds"]]


def _ask(team: Team, run: str) -> None:
    """Whoever may approve it sees it, once, and others see that they may not."""
    assert team.ask(run, "medium", "vic").status_code == 403
    assert team.ask(run, "large", "ada").status_code == 400  # asks for no reviewer
    assert team.ask(run, "medium", "ada", why=" ").status_code == 400
    for why in ("first", "again"):
        assert team.ask(run, "medium", "ada", why).status_code == 200
    asked = team.reviews("lea")
    assert [(one["run"], one["actor"], one["why"], one["reviewer"], one["yours"]) for one in asked] == [
        (run, "ada", "again", "admin", True)
    ]
    assert [one["yours"] for who in ("ada", "mia", "vic") for one in team.reviews(who)] == [False, False, False]


def test_from_what_is_missing_to_the_next_job(team: Team):
    run: str = team.run  # type: ignore[attr-defined]
    status = until(lambda: found if lacking(found := team.status(run, "medium")) == ["reviewer"] else None, "charges")
    assert not status["ready"]
    assert status["scaling"]["text"] == "2 devices 1.8×, 4 devices 2.4×: adding stops paying at 4"
    metric = next(one for one in status["needs"] if one["name"] == "metric")
    assert "2.02 ± 0.01 against 3.02 ± 0.01" in metric["found"]
    assert (status["devices"], "batch_size 32" in status["batch"]) == (4, True)

    refused = team.promote(run, "medium")
    assert refused.status_code == 409
    assert f"muster promote ask {run} --to medium" in refused.text
    _ask(team, run)

    assert team.approve(run, "medium", "ada").status_code == 403  # no admin, and the author
    assert team.approve(run, "medium", "mia").status_code == 403
    assert team.approve(run, "medium", "vic").status_code == 403
    assert team.approve(run, "medium", "lea", why=" ").status_code == 400
    assert team.approve(run, "medium", "lea").json()["ready"]
    assert team.reviews("lea") == []

    assert "job" not in team.promote(run, "medium", dry_run=True).json()
    key = {"Idempotency-Key": uuid.uuid4().hex}
    path, body = f"/v1/runs/{run}/promotion", {"to": "medium"}
    made = team.people["ada"].post(path, json=body, headers=key).json()
    again = team.people["ada"].post(path, json=body, headers=key).json()
    job = made["job"]["id"]
    assert again["job"]["id"] == job
    spec = team.root.get(f"/v1/jobs/{job}/spec").json()["spec"]
    assert (spec["num_nodes"], spec["tags"]["stage"], spec["tags"]["promoted_from"]) == (4, "medium", run)
    assert {name: spec["envs"][name] for name in ("SEED", "KIND")} == {"SEED": "1", "KIND": "gpt"}

    up = team.root.get(f"/v1/lineage/run:{job}", params={"way": "up"}).json()
    assert f"run:{run}" in json.dumps(up)
    for about in (run, job):
        notes = team.root.get(f"/v1/runs/{about}/notes").json()["entries"]
        told = [one for one in notes if one["kind"] == "promotion"][-1]
        assert [one["name"] for one in told["doc"]["needs"]][-1] == "reviewer"
        assert "holds: metric" in told["text"]
    events = team.root.get("/v1/events", params={"kind": "run.promoted"}).json()["events"]
    assert [(one["job"], one["data"]["run"], one["data"]["overridden"]) for one in events] == [(job, run, [])]

    team.server.wait(job, "succeeded", "failed")
    until(lambda: found if lacking(found := team.status(job, "large")) == ["certificate"] else None, "its end")
    assert lacking(team.status(run, "large")) == ["stage", "certificate"]


def test_an_override_needs_an_admin_and_a_reason_and_is_recorded(team: Team):
    run: str = team.run  # type: ignore[attr-defined]
    assert team.promote(run, "large", "mia", override=True, why="please").status_code == 403
    assert team.promote(run, "large", "vic", override=True, why="please").status_code == 403
    assert team.promote(run, "large", "lea", override=True).status_code == 400
    made = team.promote(run, "large", "lea", override=True, why="the conference", devices=2)
    assert made.status_code == 200, made.text
    assert made.json()["overridden"] == ["stage", "certificate"]
    job = made.json()["job"]["id"]
    event = team.root.get("/v1/events", params={"kind": "run.promoted", "job": job}).json()["events"][-1]
    assert (event["actor"], event["data"]["overridden"]) == ("lea", ["stage", "certificate"])


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({"changes": {"run": "python evil.py"}}, "run can't be changed"),
        ({"changes": {"project": "other"}}, "project can't be changed"),
        ({"changes": {"image": "evil"}}, "image can't be changed"),
        ({"devices": 5}, "allows 4"),
        ({"changes": {"num_nodes": 100}}, "allows 4"),
        ({"changes": {"num_nodes": "x"}}, "num_nodes"),
        ({"to": "production"}, "is a stage of models"),
        ({"to": "huge"}, "no stage"),
    ],
)
def test_nothing_but_the_scale_is_changed(team: Team, body: dict[str, Any], told: str):
    run: str = team.run  # type: ignore[attr-defined]
    asked = {"stage": body["to"]} if "to" in body else {"stage": "medium", "dry_run": True, **body}
    answer = team.promote(run, **asked)
    assert answer.status_code in (400, 404, 422)
    assert told in answer.text


def test_models_go_by_the_same_rules(team: Team):
    run: str = team.run  # type: ignore[attr-defined]
    ada, lea = team.people["ada"], team.people["lea"]
    stage = "/v1/models/gpt/versions/{}/stage"
    to = {"stage": "production", "archive_others": True}
    own = {"source": f"artifact:{run}/final", "project": "default"}
    assert ada.post("/v1/models/gpt/versions", json=own).status_code == 201
    elsewhere = {"source": "s3://evil/x", "run": run}
    assert ada.post("/v1/models/gpt/versions", json=elsewhere).status_code == 201
    refused = ada.post(stage.format(1), json=to)
    assert refused.status_code == 409
    assert "reviewer" in refused.text
    assert ada.post(stage.format(1), json={**to, "force": True, "why": "now"}).status_code == 403
    assert team.approve(run, "production", "lea").status_code == 200
    made = ada.post(stage.format(1), json=to)
    assert made.status_code == 200, made.text
    assert [one["name"] for one in made.json()["doc"]["needs"]] == ["run", "reviewer", "files"]
    assert "s3://evil/x" in ada.post(stage.format(2), json=to).text
    forced = lea.post(stage.format(2), json={**to, "force": True, "why": "a test"})
    assert forced.json()["doc"]["overridden"] == ["files"]

    put = f"/v1/runs/{run}/artifacts/final/model.bin"
    assert ada.put(put, content=b"evil", params={"kind": "model"}).status_code == 201
    assert ada.post("/v1/models/gpt/versions", json={**own, "project": None}).status_code == 201
    assert "was uploaded by a person" in ada.post(stage.format(3), json=to).text

    back = ada.post("/v1/models/gpt/rollback", json={"why": "it is slow"}).json()
    assert (back["version"], back["new"], back["doc"]["rollback"]) == (1, "production", True)
    stages = {one["version"]: one["stage"] for one in ada.get("/v1/models/gpt").json()["versions"]}
    assert stages == {1: "production", 2: "archived", 3: "none"}
    never = ada.post("/v1/models/gpt/rollback", json={"why": "x", "version": 3})
    assert (never.status_code, "never was in production" in never.text) == (400, True)


def test_the_command_line(team: Team):
    run: str = team.run  # type: ignore[attr-defined]

    def muster(*words: str) -> tuple[int, str]:
        environment = {**os.environ, "MUSTER_HOME": str(team.server.home), "COLUMNS": "200"}
        done = subprocess.run(
            [sys.executable, "-m", "muster", *words], env=environment, capture_output=True, text=True, check=False
        )
        return done.returncode, done.stdout + done.stderr

    code, told = muster("promote", run, "--to", "large", "--dry-run")
    assert code == 1
    assert f"muster promote {run} --to medium" in told
    assert "muster preflight JOB_FILE --level canary" in told
    code, told = muster("promote", run, "--to", "medium", "--json")
    assert code == 0, told
    assert json.loads(told)["job"]["num_nodes"] == 4
    assert muster("promote", "approve", "--to", "medium")[0] == 2
