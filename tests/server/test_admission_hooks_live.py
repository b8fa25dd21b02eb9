"""Admission hooks on a real server: single jobs, batches, dry runs, studies and resumes; `muster doctor` tells them."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from live import LiveServer, live_server, until
from muster.cli import check_server


class Hook(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        server: Any = self.server
        job = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["job"]
        server.seen.append(job["name"])
        action = {"bad": "refuse", "odd": "warn"}.get(job["tags"].get("sort", ""), server.usual)
        body = json.dumps({"action": action, "message": "the sort is wrong", "hint": "Change it."}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def hook() -> Iterator[Any]:
    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), Hook)
    server.daemon_threads, server.seen, server.usual = True, [], "accept"
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory, hook: Any) -> Iterator[LiveServer]:
    config = f"""[[admission_hook]]
name = "sorts"
url = "http://127.0.0.1:{hook.server_port}/"
[admission_plugins.absent]
on_error = "allow"
projects = ["elsewhere"]
"""
    with live_server(tmp_path_factory.mktemp("hooked"), config=config) as server:
        yield server


def job(name: str, sort: str = "", **more: Any) -> dict[str, Any]:
    return {"name": name, "run": "true", "tags": {"sort": sort} if sort else {}, **more}


def reasons(answer: Any) -> list[str]:
    return [one["code"] for one in answer.json()["error"]["reasons"]]


def send(live: LiveServer, path: str, body: dict[str, Any]) -> Any:
    with live.http() as http:
        return http.post(path, json=body)


def test_a_job_is_accepted_warned_of_or_refused(live: LiveServer, hook: Any) -> None:
    assert "warnings" not in send(live, "/v1/jobs", {"spec": job("fine")}).json()
    warned = send(live, "/v1/jobs", {"spec": job("odd-one", "odd")}).json()
    assert warned["warnings"] == ["the sort is wrong (sorts). Change it."]
    refused = send(live, "/v1/jobs", {"spec": job("bad-one", "bad")})
    assert refused.status_code == 409
    (reason,) = refused.json()["error"]["reasons"]
    assert (reason["code"], reason["data"]["check"]) == ("admission_refused", "sorts")
    assert reason["hint"].startswith("Change it. An administrator of the server can grant it")
    assert [name for name in hook.seen if name in ("fine", "odd-one", "bad-one")] == ["fine", "odd-one", "bad-one"]


def test_dry_runs_and_batches_are_asked_too(live: LiveServer) -> None:
    assert send(live, "/v1/jobs", {"spec": job("dry", "bad"), "dry_run": True}).status_code == 409
    assert send(live, "/v1/jobs", {"spec": job("dry", "odd"), "dry_run": True}).json()["warnings"]
    jobs = [{"spec": job(f"batch-{sort}", sort)} for sort in ("good", "odd", "bad")]
    good, odd, bad = send(live, "/v1/jobs/batch", {"jobs": jobs}).json()["jobs"]
    assert good["id"]
    assert "warnings" not in good
    assert odd["warnings"]
    assert bad["error"]["reasons"][0]["code"] == "admission_refused"
    together = send(live, "/v1/jobs/batch", {"jobs": jobs, "together": True}).json()["jobs"]
    assert [one["error"]["reasons"][0]["code"] for one in together] == [
        "submitted_together", "submitted_together", "admission_refused",
    ]  # fmt: skip


def test_a_study_is_asked_by_one_of_its_trials_and_a_job_again_when_it_is_resumed(live: LiveServer, hook: Any) -> None:
    text = (
        "study: sweep\nspace: {lr: {float: [0, 1]}}\nobjective: {minimize: loss}\nsearch: random\nbudget: {trials: 1}\n"
    )
    study = {"text": text + "job: job.yaml\n", "job": job("trial", "bad", run="true --lr {lr}")}
    answer = send(live, "/v1/studies", study)
    assert answer.json()["error"]["reasons"][0]["code"] == "admission_refused"
    good = {"text": study["text"].replace("sweep", "going"), "job": job("trial", run="true --lr {lr}")}
    started = send(live, "/v1/studies", good).json()["id"]
    change = {"text": good["text"], "job": study["job"]}
    assert reasons(send(live, f"/v1/studies/{started}/change", change)) == ["admission_refused"]
    made = send(live, "/v1/jobs", {"spec": job("again", run="sleep 100")}).json()["id"]
    send(live, f"/v1/jobs/{made}/stop", {"force": True})
    until(lambda: live.get(f"/v1/jobs/{made}")["phase"] == "stopped", "the stop")
    hook.usual = "refuse"
    try:
        refused = send(live, f"/v1/jobs/{made}/resume", {})
    finally:
        hook.usual = "accept"
    assert refused.json()["error"]["reasons"][0]["code"] == "admission_refused"


def test_administrators_see_how_the_checks_do(live: LiveServer) -> None:
    send(live, "/v1/jobs", {"spec": job("odd-again", "odd")})
    send(live, "/v1/jobs", {"spec": job("bad-again", "bad")})
    absent, sorts = live.get("/v1/health")["admission"]
    assert (absent["where"], absent["on_error"], bool(absent["error"])) == ("not installed", "allow", True)
    assert (sorts["kind"], sorts["on_error"], sorts["failed"]) == ("hook", "refuse", 0)
    assert sorts["asked"] > sorts["refused"] > 0
    assert sorts["warned"] > 0
    told = {one.name: one for one in check_server._admission(live.get("/v1/health"))}
    assert told["admission hook sorts"].status == "ok"
    assert "5 s, on_error refuse" in told["admission hook sorts"].detail
    assert told["admission plug-in absent"].status == "warn"
    assert told["admission plug-in absent"].hint == "While it fails, jobs are accepted without it."
    live.post("/v1/projects", {"name": "theirs"})
    with live.http() as http:
        http.put("/v1/projects/theirs/members/bob", json={"role": "member"})
    member = live.post("/v1/tokens", {"user": "bob", "name": "b", "role": "member"})["token"]
    with live.http(member) as http:
        assert http.get("/v1/health").json()["admission"] == []
