"""The record through the API and the command, with a real server: who sees what, and what people type."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from live import LiveServer, live_server, until
from muster.cli.main import main

SCRIPT = """
from muster import runtime
runtime.params(lr=0.5, seed=3)
runtime.tags(task="lm")
runtime.data("c4-en", "v3", rows=10)
for step in range(5):
    runtime.report(step, loss=1 / (step + 1))
runtime.note("the **end** is near")
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with live_server(tmp_path_factory.mktemp("record") / "home") as made:
        yield made


@pytest.fixture(scope="module")
def run(server: LiveServer) -> str:
    """A job that ran."""
    (server.home / "train.py").write_text(SCRIPT)
    job = server.submit("python train.py --lr 0.5", name="gpt", purpose="a baseline", data=["books@v1"])
    assert server.wait(job["id"])["phase"] == "succeeded"
    until(lambda: server.get(f"/v1/runs/{job['id']}")["phase"] == "succeeded", "the record to follow")
    return str(job["id"])


@pytest.fixture(scope="module")
def others(server: LiveServer) -> dict[str, str]:
    """Tokens of people with a role in the projects `open` and `closed`."""
    tokens = {}
    for project in ("open", "closed"):
        server.post("/v1/projects", {"name": project})
    for user, roles in {"mem": {"open": "member"}, "vie": {"open": "viewer"}, "own": {"closed": "admin"}}.items():
        with server.http() as http:
            for project, role in roles.items():
                assert http.put(f"/v1/projects/{project}/members/{user}", json={"role": role}).status_code == 200
        tokens[user] = server.post("/v1/tokens", {"user": user})["token"]
    return tokens


def ask(server: LiveServer, token: str | None, method: str, path: str, body: Any = None) -> httpx.Response:
    with server.http(token) as http:
        return http.request(method, path, json=body)


class TestRuns:
    def test_a_job_is_captured(self, server: LiveServer, run: str) -> None:
        found = server.get(f"/v1/runs/{run}")
        assert (found["phase"], found["purpose"], found["source"], found["kind"]) == (
            "succeeded",
            "a baseline",
            "job",
            "train",
        )
        assert (found["params"]["lr"], found["params"]["seed"], found["tags"]) == ("0.5", "3", {"task": "lm"})
        assert [one["ref"] for one in found["inputs"]] == ["data:books@v1", "data:c4-en@v3"]
        assert found["data"] == ["books@v1", "c4-en@v3"]
        assert (found["metrics"]["loss"], found["summaries"]["loss"]["last"]) == (0.2, 0.2)
        (attempt,) = server.get(f"/v1/runs/{run}/attempts")["attempts"]
        assert (attempt["nodes"], attempt["outcome"], attempt["first_step"]) == (["local-0"], "succeeded", 0)
        assert server.get(f"/v1/runs/{run}/changes")["changes"] == []
        assert server.get(f"/v1/runs/{run}/checkpoints")["checkpoints"] == []

    def test_the_page_has_in_one_answer_what_the_parts_have(self, server: LiveServer, run: str) -> None:
        def parts() -> dict[str, Any]:
            return {
                "run": server.get(f"/v1/runs/{run}"),
                "attempts": server.get(f"/v1/runs/{run}/attempts")["attempts"],
                "checkpoints": server.get(f"/v1/runs/{run}/checkpoints")["checkpoints"],
                "changes": server.get(f"/v1/runs/{run}/changes")["changes"],
                "artifacts": server.get(f"/v1/runs/{run}/artifacts", flat=True)["files"],
                "notes": server.get(f"/v1/runs/{run}/notes")["entries"],
                "summary": server.get(f"/v1/jobs/{run}/summary"),
                "goodput": server.get("/v1/goodput", run=run)["ledgers"][0],
            }

        # The environment is shipped after the ranks have ended.
        until(lambda: "environment" in server.get(f"/v1/runs/{run}/attempts")["attempts"][0], "all to be shipped")
        until(lambda: server.get(f"/v1/runs/{run}/page") == parts(), "the page to be what its parts are")
        made = server.post("/v1/runs", {"name": "outside", "project": "default"})
        assert server.get(f"/v1/runs/{made['id']}/page")["summary"] is None

    def test_a_list_and_the_page_of_a_run_have_the_same_fields(self, server: LiveServer, run: str) -> None:
        (listed,) = server.get("/v1/runs", query=f"id = {run}")["runs"]
        found = server.get(f"/v1/runs/{run}")
        assert {name: found[name] for name in listed} == listed

    def test_ways_to_name_it(self, server: LiveServer, run: str) -> None:
        made = server.post("/v1/runs", {"name": "An Odd Name", "project": "default"})
        for ref in (made["id"], made["id"][:9], "An Odd Name"):
            assert server.get(f"/v1/runs/{ref}")["id"] == made["id"]
        assert server.get(f"/v1/runs/{run.rpartition('-')[2]}")["id"] == run
        again = server.post("/v1/runs", {"name": "An Odd Name", "project": "default"})
        answer = ask(server, None, "GET", "/v1/runs/an-odd-name")
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid")
        assert server.get("/v1/runs/An Odd Name")["id"] == again["id"]
        assert ask(server, None, "DELETE", f"/v1/runs/{again['id']}").json()["deleted_at"]
        assert server.get("/v1/runs/An Odd Name")["id"] == made["id"]
        assert server.get(f"/v1/runs/{again['id']}")["id"] == again["id"]
        assert server.post(f"/v1/runs/{again['id']}/restore")["deleted_at"] is None

    def test_a_run_just_submitted_is_there(self, server: LiveServer) -> None:
        for _ in range(5):
            job = server.submit("true", name="quick")
            assert server.get(f"/v1/runs/{job['id']}")["id"] == job["id"]

    def test_changes(self, server: LiveServer) -> None:
        run = server.post("/v1/runs", {"params": {"lr": 1}, "tags": {"a": "b"}})["id"]
        with server.http() as http:
            answer = http.put(f"/v1/runs/{run}/params", json={"values": {"lr": 2}, "refuse_change": True})
            assert (answer.status_code, answer.json()["error"]["code"]) == (409, "conflict")
            assert http.put(f"/v1/runs/{run}/params", json={"values": {"lr": 2}}).json()["params"] == {"lr": "2"}
            assert http.put(f"/v1/runs/{run}/tags", json={"values": {"a": None, "c": "d"}}).json()["tags"] == {"c": "d"}
            changed = http.patch(f"/v1/runs/{run}", json={"phase": "failed", "name": "x", "purpose": "y"}).json()
            assert http.put(f"/v1/runs/{run}/params", json={"values": {"k" * 300: 2}}).status_code == 400
            assert http.post("/v1/runs", json={"project": "nowhere"}).status_code == 404
            assert http.patch(f"/v1/runs/{run}", json={"experiment": 99}).status_code == 400
        assert (changed["phase"], changed["name"], changed["purpose"]) == ("failed", "x", "y")
        assert [one["key"] for one in server.get(f"/v1/runs/{run}/changes")["changes"]] == ["lr", "a"]


class TestRoles:
    def test_who_may_do_what(self, server: LiveServer, others: dict[str, str]) -> None:
        run = ask(server, others["mem"], "POST", "/v1/runs", {"project": "open"}).json()["id"]
        theirs = server.post("/v1/runs", {"project": "open"})["id"]
        rules = [
            ("vie", "GET", f"/v1/runs/{run}", None, 200),
            ("vie", "POST", f"/v1/runs/{run}/notes", {"text": "x"}, 403),
            ("vie", "PATCH", f"/v1/runs/{run}", {"name": "x"}, 403),
            ("vie", "PUT", f"/v1/runs/{run}/tags", {"values": {"a": "b"}}, 403),
            ("vie", "DELETE", f"/v1/runs/{run}", None, 403),
            ("vie", "POST", "/v1/runs", {"project": "open"}, 403),
            ("vie", "GET", "/v1/projects/open/notes", None, 200),
            ("vie", "POST", "/v1/projects/open/notes", {"text": "x"}, 403),
            ("own", "GET", f"/v1/runs/{run}", None, 404),
            ("own", "GET", f"/v1/lineage/{run}", None, 404),
            ("own", "GET", "/v1/projects/open/notes", None, 404),
            ("own", "POST", f"/v1/runs/{run}/notes", {"text": "x"}, 404),
            ("mem", "POST", f"/v1/runs/{run}/notes", {"text": "x"}, 201),
            ("mem", "POST", "/v1/models", {"name": "m-open", "project": "open"}, 201),
            ("own", "GET", "/v1/models/m-open", None, 404),
            ("own", "POST", "/v1/models/m-open/versions", {"source": "s3://x", "project": "closed"}, 409),
            ("mem", "DELETE", "/v1/models/m-open", None, 403),
            ("mem", "DELETE", f"/v1/runs/{theirs}?purge=true", None, 403),
            ("mem", "DELETE", f"/v1/runs/{run}?purge=true", None, 200),
            ("mem", "GET", f"/v1/runs/{run}", None, 404),
        ]
        for user, method, path, body, status in rules:
            answer = ask(server, others[user], method, path, body)
            assert answer.status_code == status, (user, method, path, answer.text)

    def test_lineage_tells_no_names(self, server: LiveServer, others: dict[str, str]) -> None:
        for project, user in (("open", "mem"), ("closed", "own")):
            spec = {"name": f"in-{project}", "run": "true", "project": project, "data": ["shared@v1"]}
            body = {"spec": {**spec, "workdir": str(server.home)}}
            assert ask(server, others[user], "POST", "/v1/jobs", body).status_code == 201
        tree = ask(server, others["mem"], "GET", "/v1/lineage/data:shared@v1?way=down").json()["down"]
        assert [node["ref"].partition("-")[0] for node in tree["nodes"]] == ["run:in", "hidden"]
        assert "closed" not in json.dumps(tree)


class TestCommands:
    @pytest.fixture
    def muster(self, server: LiveServer, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
        monkeypatch.setenv("MUSTER_HOME", str(server.home))
        monkeypatch.setenv("COLUMNS", "200")

        def call(*words: str, code: int = 0) -> str:
            capsys.readouterr()
            found = main(words)
            captured = capsys.readouterr()
            assert found == code, captured
            return captured.out + captured.err

        return call

    def test_notes_and_the_logbook(self, muster: Any, run: str, tmp_path: Any) -> None:
        (tmp_path / "plot.txt").write_text("a plot")
        muster("note", run, "lowered", "lr", "--step", "3", "--file", str(tmp_path / "plot.txt"))
        muster("note", "--project", "default", "of the project")
        shown = muster("logbook", run)
        assert "the end is near" in shown
        assert "attached: notes/plot.txt" in shown
        entries = json.loads(muster("logbook", run, "--search", "LOWERED", "--json"))["entries"]
        assert [(one["text"], one["doc"]["step"]) for one in entries] == [("lowered lr", 3)]
        muster("logbook", run, "--export", str(tmp_path / "log.md"))
        assert (tmp_path / "log.md").read_text().startswith(f"# Logbook of {run}")
        assert "of the project" in muster("logbook", "-p", "default", "--last", "1000")
        assert "One logbook at a time" in muster("logbook", code=2)
        assert "There is no run 'nobody'" in muster("note", "nobody", "x", code=1)

    def test_the_registry(self, muster: Any, run: str) -> None:
        assert "gpt-small/1 is registered" in muster("models", "register", "gpt-small", run)
        assert "no checkpoint at step" in muster("models", "register", "gpt-small", run, "--step", "7", code=1)
        assert "no artifact" in muster("models", "register", "gpt-small", run, "--artifact", "x", code=1)
        assert "without evidence" in muster("models", "promote", "gpt-small/1", "production", code=1)
        muster("models", "promote", "gpt-small/1", "production", "-e", run, "-m", "loss", "--why", "best")
        muster("models", "alias", "gpt-small/1", "best")
        assert "best=1" in muster("models")
        assert "loss 0.2" in muster("models", "show", "gpt-small@best")
        assert "production" in muster("models", "show", "gpt-small")
        tree = json.loads(muster("runs", "lineage", "model:gpt-small/1", "--up", "--json"))["up"]
        assert tree["nodes"][0]["ref"] == f"run:{run}"
        assert "data:c4-en@v3" in muster("runs", "lineage", "model:gpt-small/1")
        assert "Nothing is known" in muster("runs", "lineage", "data:nothing", code=1)
        assert "was made from" in muster("runs", "rm", run, "--yes", code=1)
        assert "deleted" in muster("models", "rm", "gpt-small", "--yes")

    def test_deleting(self, muster: Any, server: LiveServer) -> None:
        job = server.submit("exit 1", name="doomed", retry=0)["id"]
        server.wait(job)
        assert "is hidden" in muster("runs", "rm", job, "--hide")
        assert "listed again" in muster("runs", "rm", job, "--restore")
        assert "is deleted" in muster("runs", "rm", job, "-y")
        assert ask(server, None, "GET", f"/v1/runs/{job}").status_code == 404
        assert ask(server, None, "GET", f"/v1/jobs/{job}").status_code == 200
        assert "was deleted" in ask(server, None, "POST", f"/v1/jobs/{job}/resume", {}).json()["error"]["message"]
        assert server.get("/v1/events", kind="run.purged", last=True)["events"][-1]["job"] == job
