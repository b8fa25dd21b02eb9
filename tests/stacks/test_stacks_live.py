"""`muster stacks` with a real server and real ranks on two nodes: groups, what is kept, rights and the event log."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import signal
import subprocess
import textwrap
from collections.abc import Iterator
from typing import Any

import pytest

from exec_kit import client_of, muster
from live import LiveServer, live_server, until
from muster.client import AsyncClient, Client
from muster.core.errors import Conflict, NotAllowed, NotFound

PROGRAM = textwrap.dedent("""
    import os, time
    def all_reduce():
        time.sleep(1000)
    def read_sample():
        time.sleep(1000)
    print("up", flush=True)
    if os.environ["RANK"] == "3":
        read_sample()
    all_reduce()
""").strip()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with live_server(tmp_path_factory.mktemp("stacks"), "--nodes", "2", config="cpus = 8\n") as server:
        (server.home / "train.py").write_text(PROGRAM)
        yield server


@pytest.fixture(scope="module")
def job(server: LiveServer) -> str:
    return started(server, nproc=2, num_nodes=2)


@pytest.fixture
def client(server: LiveServer) -> Iterator[Client]:
    with client_of(server) as client:
        yield client


def started(server: LiveServer, **spec: Any) -> str:
    job = str(server.submit("exec python train.py", **spec)["id"])
    ranks = spec["nproc"] * spec["num_nodes"]
    with client_of(server) as client:
        until(lambda: [one.text for one in client.logs(job)].count("up") == ranks, "the ranks")
    return job


def run(server: LiveServer, *words: str) -> subprocess.CompletedProcess[bytes]:
    process = muster(server, "stacks", *words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, err = process.communicate()
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def test_ranks_of_two_nodes_are_merged(server: LiveServer, client: Client, job: str) -> None:
    view = client.job(job).stacks()
    assert [one["text"] for one in view["groups"]] == [
        "3 ranks (0-2) in all_reduce at train.py:3",
        "rank 3 in read_sample at train.py:5",
    ]
    assert (view["missing"], view["world"], view["attempt"]) == ([], 4, 1)
    assert [one["rank"] for one in view["ranks"]] == [0, 1, 2, 3]
    event = server.get("/v1/events", job=job, kind="stacks.ordered")["events"][0]
    assert (event["actor"], event["data"]) == ("admin", {"stacks": view["id"], "ranks": 4})


def test_the_command_line_prints_groups_whole_stacks_and_threads(server: LiveServer, job: str) -> None:
    lines = run(server, job).stdout.decode().splitlines()
    assert lines[0].startswith(f"{job}, attempt 1, 4 of 4 ranks, ")
    assert lines[1:] == ["3 ranks (0-2) in all_reduce at train.py:3", "rank 3 in read_sample at train.py:5"]
    full = run(server, job, "--full", "--last").stdout.decode().splitlines()
    assert full[2:4] == [f"    all_reduce at {server.home}/train.py:3", f"    <module> at {server.home}/train.py:9"]
    one = run(server, job, "--rank", "3", "--all-threads", "--last").stdout.decode()
    assert one.splitlines()[1] == "rank 3"
    assert ": sleeping" in one
    assert "read_sample at" in one
    document = json.loads(run(server, job, "--json", "--rank", "0", "--last").stdout)
    assert [len(document["groups"]), [rank["rank"] for rank in document["ranks"]]] == [2, [0]]
    wrong = run(server, job, "--rank", "4", "--last")
    assert (wrong.returncode, b"has 4 ranks; there is no rank 4" in wrong.stderr) == (2, True)


def test_the_asynchronous_client_does_the_same(server: LiveServer, job: str) -> None:
    async def ask() -> list[str]:
        async with AsyncClient(server.url, token=server.token) as client:
            view = await (await client.job(job)).stacks()
            return [one["text"] for one in view["groups"]]

    assert asyncio.run(ask())[1] == "rank 3 in read_sample at train.py:5"


def test_who_asks_again_at_once_gets_the_same_order(server: LiveServer, job: str) -> None:
    with server.http() as http:
        first, second = (http.post(f"/v1/jobs/{job}/stacks").json() for _ in range(2))
    assert first == second
    assert len(server.get("/v1/events", job=job, kind="stacks.ordered")["events"]) >= 1


def test_a_launcher_that_is_stopped_leaves_its_ranks_without_an_answer(server: LiveServer, client: Client) -> None:
    job = started(server, nproc=1, num_nodes=2)
    place = server.home / "local" / "attempts" / job / "1" / "1" / "launcher.json"
    launcher = int(json.loads(place.read_text())["pid"])
    os.kill(launcher, signal.SIGSTOP)
    try:
        view = client.stacks(job, timeout=4)
    finally:
        os.kill(launcher, signal.SIGCONT)
    assert view["missing"] == [1]
    assert [one["text"] for one in view["groups"]] == [
        "rank 0 in all_reduce at train.py:3",
        "rank 1 without an answer",
    ]
    until(lambda: client.stacks(job, id=view["id"])["missing"] == [], "the late answer")
    client.stop(job, force=True)
    client.wait(job)
    assert [one["id"] for one in client.kept_stacks(job)] == [view["id"]]
    assert [one["text"] for one in client.stacks(job, last=True)["groups"]] == [
        "2 ranks (0-1) in all_reduce at train.py:3"
    ]
    with pytest.raises(Conflict, match="only processes that run have stacks"):
        client.stacks(job)


def test_only_members_of_the_project_may_ask_and_viewers_may_look(server: LiveServer, client: Client, job: str) -> None:
    kept = client.stacks(job)["id"]
    with server.http() as http:
        for user, project, role in (("vic", "default", "viewer"), ("out", "elsewhere", "member")):
            http.post("/v1/projects", json={"name": project})
            http.put(f"/v1/projects/{project}/members/{user}", json={"role": role})
        tokens = [http.post("/v1/tokens", json={"user": user}).json()["token"] for user in ("vic", "out")]
    with client_of(server, tokens[0]) as viewer:
        with pytest.raises(NotAllowed):
            viewer.stacks(job)
        assert viewer.stacks(job, id=kept)["world"] == 4
    with client_of(server, tokens[1]) as outsider, pytest.raises(NotFound):
        outsider.stacks(job, last=True)


def test_a_program_can_not_send_stacks_itself(server: LiveServer, client: Client) -> None:
    doc = {"type": "stacks", "time": 1.0, "order": 5, "world": 1, "problem": "forged", "processes": []}
    code = f"from muster.runtime.reporter import shared; shared.write({doc!r}); shared.note('arrived')"
    job = server.submit(f"python -c {shlex.quote(code)}")["id"]
    assert server.wait(job)["phase"] == "succeeded", server.output(job)
    until(lambda: "arrived" in str(server.get(f"/v1/runs/{job}/notes")), "the note after it")
    assert client.kept_stacks(job) == []


def test_a_queued_job_has_no_stacks(server: LiveServer, client: Client) -> None:
    job = server.submit("true", num_nodes=2, resources={"cpus": 8})["id"]
    with pytest.raises(Conflict, match="is queued"):
        client.stacks(job)
    with pytest.raises(Conflict, match="No stacks"):
        client.stacks(job, last=True)
    client.stop(job)
