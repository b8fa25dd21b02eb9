"""Commands beside a running job's ranks, with a real server and real launchers: streams, ends, rights and faults."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import random
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from exec_kit import HELD, client_of, ends, held, muster, processes_with, until_gone
from live import LiveServer, live_server, until
from muster.client import AsyncClient, Client
from muster.core.errors import Conflict, Invalid, NotAllowed, NotFound, NotStarted
from muster.server.exec_log import CAUSE

SECRET = "the-value-of-a-secret"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    home = tmp_path_factory.mktemp("exec")
    with live_server(home, "--nodes", "2", config="cpus = 8\n[limits]\nexecs_per_worker = 3\n") as server:
        yield server


@pytest.fixture(scope="module")
def job(server: LiveServer) -> str:
    with server.http() as http:
        assert http.put("/v1/projects/default/secrets/DEEP", json={"value": SECRET}).status_code < 300
    return held(server, secrets=["DEEP"], envs={"ODD": "a b'c"}, num_nodes=2, nproc=2)


@pytest.fixture
def client(server: LiveServer) -> Iterator[Client]:
    with client_of(server) as client:
        yield client


def test_a_command_has_the_jobs_folder_and_environment(server: LiveServer, client: Client, job: str) -> None:
    done = client.job(job).exec(["sh", "-c", "pwd; echo $ODD; echo $RANK; echo seen >&2; exit 7"])
    assert (done.code, done.text, done.stderr) == (7, f"{server.home}\na b'c\n0\n", b"seen\n")
    by_rank = client.exec(job, ["sh", "-c", "echo $RANK $LOCAL_RANK $NODE_RANK $MUSTER_NODE"], rank=3)
    assert by_rank.text.split() == ["3", "1", "1", client.job(job).nodes[1]]
    assert client.exec(job, ["sh", "-c", "echo $RANK"], worker=1).text == "2\n"
    # It is not the rank: what it reports must not be taken for the rank's.
    assert client.exec(job, ["sh", "-c", "echo ${MUSTER_RANK_DIR-none}${MUSTER_CONTROL-none}"]).text == "nonenone\n"
    assert [client.exec(job, words).code for words in (["no-such-program"], ["/etc/passwd"])] == [127, 126]
    opened = server.get("/v1/events", job=job, kind="exec.opened")["events"]
    assert opened[0]["actor"] == "admin"
    assert opened[0]["data"]["command"].startswith("sh -c 'pwd; echo $ODD")
    assert ends(server, job)[0]["code"] == 7


def test_the_asynchronous_client_does_the_same(server: LiveServer, job: str) -> None:
    async def run() -> tuple[int, str]:
        async with AsyncClient(server.url, token=server.token) as client:
            done = await (await client.job(job)).exec(["cat"], input=b"given")
            return done.code, done.text

    assert asyncio.run(run()) == (0, "given")


def test_more_than_all_buffers_hold_passes_unharmed_both_ways(client: Client, job: str) -> None:
    given = random.Random(1).randbytes(7_000_001)
    done = client.exec(job, ["cat"], input=given)
    assert (done.code, hashlib.sha256(done.stdout).digest()) == (0, hashlib.sha256(given).digest())


def test_a_command_that_does_not_read_holds_nothing_up(client: Client, job: str) -> None:
    done = client.exec(job, ["sh", "-c", "exec <&-; echo left"], input=bytes(9_000_000))
    assert (done.code, done.text) == (0, "left\n")


def test_secrets_are_there_and_masked(server: LiveServer, client: Client, job: str) -> None:
    done = client.exec(job, ["sh", "-c", f"echo ${{#DEEP}} $DEEP; echo $DEEP >&2; : {SECRET}"])
    assert (done.text, done.stderr) == (f"{len(SECRET)} ***\n", b"***\n")
    assert SECRET not in json.dumps(server.get("/v1/events", job=job))


def test_pipes_exit_codes_and_json_of_the_command_line(server: LiveServer, job: str) -> None:
    cat = muster(server, "exec", job, "--", "sh", "-c", "cat; exit 3", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert cat.communicate(b"x\n") == (b"x\n", None)
    assert cat.returncode == 3
    words = ("exec", job, "--json", "--", "sh", "-c", "echo out; echo err >&2; exit 4")
    told = muster(server, *words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    assert json.loads(told.communicate()[0]) == {"code": 4, "stdout": "out\n", "stderr": "err\n"}
    assert told.returncode == 4
    refused = muster(
        server, "exec", job, "--worker", "9", "--", "true", stdin=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    assert b"has 2 workers; there is no worker 9" in refused.communicate()[1]
    assert refused.returncode == 255


def test_interrupting_the_client_interrupts_the_command(server: LiveServer, job: str) -> None:
    script = "trap 'echo caught; exit 42' INT; echo ready; while :; do sleep 0.1; done"
    asked = muster(server, "exec", job, "--", "sh", "-c", script, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    assert asked.stdout is not None
    assert asked.stdout.readline() == b"ready\n"
    asked.send_signal(signal.SIGINT)
    assert asked.communicate()[0] == b"caught\n"
    assert asked.returncode == 42


def test_nothing_is_left_of_a_command(server: LiveServer, client: Client, job: str) -> None:
    left = "setsid sleep 1111 & sleep 2222 & echo begun"
    assert client.exec(job, ["sh", "-c", left]).text == "begun\n"
    until_gone("sleep")


def test_a_client_that_is_killed_takes_its_command_along(server: LiveServer, job: str) -> None:
    before = len(ends(server, job))
    asked = muster(
        server, "exec", job, "--", "sh", "-c", "setsid sleep 3333 & exec sleep 4444", stdin=subprocess.DEVNULL
    )
    until(lambda: len(processes_with("sleep")) == 2, "the command and what it started")
    asked.kill()
    asked.wait()
    until_gone("sleep")
    assert ends(server, job)[before]["cause"] == "The client went away."


def test_a_process_of_the_session_that_is_killed_ends_it(server: LiveServer, client: Client, job: str) -> None:
    asked = muster(server, "exec", job, "--", "sh", "-c", "setsid sleep 5555 & exec sleep 6666",
                   stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)  # fmt: skip
    (pid,) = until(lambda: processes_with("6666"), "the command")
    host = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    assert Path(f"/proc/{host}/comm").read_text() == "muster-exec\n"
    os.kill(host, signal.SIGKILL)
    assert b"The connection to worker 0" in asked.communicate()[1]
    assert asked.returncode == 255
    until_gone("sleep")
    assert client.exec(job, ["echo", "again"]).text == "again\n"


def test_a_time_limit_kills_the_command(client: Client, job: str) -> None:
    with pytest.raises(TimeoutError, match="was killed"):
        client.exec(job, ["sleep", "7777"], timeout=4)
    until_gone("7777")


def test_the_end_of_the_job_ends_its_sessions(server: LiveServer, client: Client) -> None:
    job = held(server)
    asked = muster(server, "exec", job, "--", "sleep", "8888", stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
    until(lambda: processes_with("8888"), "the command")
    client.stop(job, force=True)
    told = asked.communicate()[1].decode()
    assert f"The job {job} ended" in told or "Worker 0 of attempt 1" in told
    assert asked.returncode == 255
    until_gone("8888")
    with pytest.raises(Conflict, match="is stopped"):
        client.exec(job, ["true"])


def test_so_many_sessions_and_no_more(server: LiveServer, client: Client) -> None:
    job = held(server)
    asked = [muster(server, "exec", job, "--", "sleep", "9999", stdin=subprocess.DEVNULL) for _ in range(3)]
    until(lambda: len(processes_with("9999")) == 3, "three commands")
    with pytest.raises(Conflict, match="execs_per_worker"):
        client.exec(job, ["true"])
    for one in asked:
        one.terminate()
        one.wait()
    until_gone("9999")
    assert client.exec(job, ["true"]).code == 0
    client.stop(job, force=True)


def test_who_may_not_is_told(server: LiveServer, job: str) -> None:
    tokens = {}
    with server.http() as http:
        assert http.post("/v1/projects", json={"name": "other"}).status_code == 201
        for user, project, role in (
            ("vic", "default", "viewer"),
            ("out", "other", "admin"),
            ("mem", "default", "member"),
        ):
            assert http.put(f"/v1/projects/{project}/members/{user}", json={"role": role}).status_code == 200
            tokens[user] = http.post("/v1/tokens", json={"user": user}).json()["token"]
    for user, error, words in (
        ("vic", NotAllowed, "needs the role member"),
        ("out", NotFound, "no job"),
        ("mem", NotAllowed, "runs with the server's rights"),  # an administrator's job is not isolated
    ):
        with client_of(server, tokens[user]) as client, pytest.raises(error, match=words):
            client.exec(job, ["true"])
    with server.http() as http, server.http(tokens["mem"]) as member:  # another member of the project
        opened = http.post(f"/v1/jobs/{job}/exec", json={"command": ["cat"]}).json()
        path = f"/v1/jobs/{job}/exec/{opened['id']}"
        for answer in (member.get(f"{path}/output"), member.post(f"{path}/input", content=b"x"), member.delete(path)):
            assert answer.status_code == 409, answer.text
        assert http.delete(path).status_code == 200


def test_requests_that_make_no_sense_are_refused(server: LiveServer, client: Client, job: str) -> None:
    with pytest.raises(Invalid, match="there is no rank 4"):
        client.exec(job, ["true"], rank=4)
    with pytest.raises(Invalid, match="is of worker 1, not 0"):
        client.exec(job, ["true"], rank=3, worker=0)
    with server.http() as http:
        for body in ({"command": []}, {"command": ["a\0b"]}, {"command": ["a"], "tty": [0, 0]}, {"command": "a"}):
            assert http.post(f"/v1/jobs/{job}/exec", json=body).status_code == 400, body
        opened = http.post(f"/v1/jobs/{job}/exec", json={"command": ["cat"]}).json()
        path = f"/v1/jobs/{job}/exec/{opened['id']}"
        assert http.post(f"{path}/input", params={"at": 5}, content=b"x").status_code == 409
        assert http.get(f"{path}/output", params={"at": 9}).status_code == 409
        assert http.post(f"{path}/input", content=bytes(300_000)).status_code == 400
        assert http.post(f"{path}/input", content=b"\xff" * 100).json() == {"end": 100}  # no frame: the command ends
        until(lambda: http.get(f"{path}/output").status_code == 409 or b'"code"' in http.get(f"{path}/output").content)


def test_garbage_of_a_worker_reaches_nobody(server: LiveServer) -> None:
    """Somebody with the attempt's token takes a session in place of a launcher, which is frozen meanwhile."""
    job = held(server)
    place = server.home / "local" / "attempts" / job / "1" / "0"
    launcher = json.loads((place / "launcher.json").read_text())["pid"]
    os.kill(launcher, signal.SIGSTOP)
    try:
        with server.http(json.loads((place / "launch.json").read_text())["token"]) as worker, server.http() as http:
            asked = muster(server, "exec", job, "--", "true", stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
            opened = until(lambda: server.get("/v1/events", job=job, kind="exec.opened")["events"], "the session")
            path = f"/v1/ingest/exec/{opened[0]['data']['exec']}"
            assert worker.get(f"{path}/input").status_code == 409  # not begun
            assert worker.get(path).json()["command"] == ["true"]
            assert worker.post(f"{path}/output", content=b"\x99" * 50).json() == {"end": 50}
            assert b"what is no exec stream" in asked.communicate()[1]
            assert asked.returncode == 255
            assert [worker.get(path).status_code, worker.post(f"{path}/end").status_code] == [409, 409]  # it is over
            other: httpx.Response = http.get(f"/v1/jobs/{job}/exec/{'0' * 32}/output")
            assert other.status_code == 409
    finally:
        os.kill(launcher, signal.SIGCONT)
        server.post(f"/v1/jobs/{job}/stop", {"force": True})


def test_a_server_that_dies_ends_sessions_and_not_jobs(tmp_path_factory: pytest.TempPathFactory) -> None:
    with live_server(tmp_path_factory.mktemp("dies")) as server:
        job = held(server)
        asked = muster(server, "exec", job, "--", "sleep", "1234", stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
        until(lambda: processes_with("1234"), "the command")
        server.kill()
        told = asked.communicate()[1]
        assert asked.returncode == 255
        assert b"server" in told
        server.start()
        assert [(end["code"], end["cause"]) for end in ends(server, job)] == [(None, CAUSE)]
        until_gone("1234")
        assert server.job(job)["phase"] == "running"
        with client_of(server) as client:
            assert client.exec(job, ["echo", "again"]).text == "again\n"
            assert client.job(job).attempt == 1
        server.kill()
        server.start()  # nothing was open
        assert [end["code"] for end in ends(server, job)] == [None, 0]


def test_it_can_be_off(tmp_path_factory: pytest.TempPathFactory) -> None:
    with live_server(tmp_path_factory.mktemp("off"), config='exec = "off"\n') as server:
        job = held(server)
        with client_of(server) as client, pytest.raises(NotAllowed, match="Exec is off"):
            client.exec(job, ["true"])


def test_a_job_that_waits_has_no_node_yet(server: LiveServer, client: Client) -> None:
    queued = server.submit(HELD, resources={"cpus": 8}, num_nodes=2)["id"]
    with pytest.raises(Conflict, match=r"is queued: .* Wait until it runs; `muster why") as refused:
        client.exec(queued, ["true"])
    assert not isinstance(refused.value, NotStarted)
    client.stop(queued)
