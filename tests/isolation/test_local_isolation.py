"""Members' jobs on this machine: what they can't get at, and that they run like any others; as root, as a user, and as
a user to whom ids are granted."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from isolation_kit import GRANTS, HELD_BY_SERVER, ORDINARY, TRAINS, attack, member, program, rank_pid, server_of, submit
from live import LiveServer, until
from muster.client import Client

HELD = "exec sleep 1000"


@pytest.fixture(scope="module", params=["root", "user", "granted"])
def server(request: pytest.FixtureRequest) -> Iterator[LiveServer]:
    Path("/tmp/seen-by-all").touch()
    config, uid = '[engines.local]\npass_env = ["HF_HOME"]\n', 0 if request.param == "root" else ORDINARY
    granted = request.param == "granted"
    more = "use_subuids = true\n" if granted else ""
    with server_of(uid, config + more, grants=GRANTS if granted else None) as server:
        yield server


@pytest.fixture(scope="module")
def ada(server: LiveServer) -> str:
    return member(server, "ada")


def launcher_pid(server: LiveServer, job: str) -> int:
    path = server.home / "local" / "attempts" / job / "1" / "0" / "launcher.json"
    return int(until(lambda: path.exists() and json.loads(path.read_text()), f"the launcher of {job}")["pid"])


def handed_over(server: LiveServer, job: str) -> None:
    """When the launchers have nothing more to tell."""
    until(lambda: not (server.home / "local" / "attempts" / job).exists(), f"the launchers of {job} to be done")


def test_a_members_job_gets_at_nothing_of_the_servers_or_of_others(server: LiveServer, ada: str) -> None:
    eve = member(server, "eve", "vision")
    with server.http() as http:
        assert http.put("/v1/projects/default/secrets/DEEP", json={"value": "sentinel-secret"}).status_code < 300
    held = submit(server, ada, HELD, secrets=["DEEP"])
    admins = submit(server, server.token, HELD)
    assert server.process is not None
    pids = [rank_pid(held), rank_pid(admins)]
    pids += [launcher_pid(server, held), launcher_pid(server, admins), server.process.pid]
    person = Path(server.env["HOME"])
    found = attack(server, eve, pids, person, [], project="vision", queue="vision")
    assert found == []
    assert [server.job(job)["phase"] for job in (held, admins)] == ["running", "running"]
    for job in (held, admins):
        server.post(f"/v1/jobs/{job}/stop", {"force": True})
        server.wait(job)


def test_neither_ranks_nor_launchers_hold_what_the_server_holds(server: LiveServer, ada: str) -> None:
    for token in (ada, server.token):
        job = submit(server, token, f"env; {HELD}")
        until(lambda job=job: "HF_HOME" in server.output(job), "its output")
        assert "sentinel" not in server.output(job)
        assert f"HF_HOME={HELD_BY_SERVER['HF_HOME']}" in server.output(job)
        pid = launcher_pid(server, job)
        above = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        for one in (pid, rank_pid(job), *([above] if above > 1 else [])):
            assert b"sentinel-cloud" not in Path(f"/proc/{one}/environ").read_bytes()
        server.post(f"/v1/jobs/{job}/stop", {"force": True})
        server.wait(job)
    warm = [path.parent for path in Path("/proc").glob("[0-9]*/cmdline") if b"muster.runtime.warm" in _read(path)]
    assert all(b"sentinel" not in _read(path / "environ") for path in warm)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


PLANTS = textwrap.dedent("""
    import json, os, pathlib, time
    place, target = pathlib.Path(os.environ["MUSTER_RANK_DIR"]), os.environ["T_TARGET"]
    files = place / "files"
    files.mkdir()
    def note(name, **more):
        doc = {"type": "artifact", "path": name, "kind": "file", "id": name, "time": time.time()}
        (files / f"{name}.json").write_text(json.dumps({"doc": doc, **more}))
    (files / "a.data").symlink_to(target)
    note("a")
    note("b", source=target)
    os.mkfifo(files / "c.data")
    note("c")
    (place / "spool.0").symlink_to(target)
    os.mkfifo(place / "spool.1")
    for name in ("host", "log.0", "log.1", "launch.json", "exit.json", "done"):
        (place / name).symlink_to(target)
""")
SWAPS = textwrap.dedent("""
    import os, pathlib
    place = pathlib.Path(os.environ["MUSTER_RANK_DIR"])
    (place / "files").symlink_to(os.environ["T_TARGET"])
""")


def test_links_that_a_rank_leaves_lead_the_launcher_nowhere(server: LiveServer, ada: str) -> None:
    kept = server.token
    job = submit(server, ada, program(PLANTS), envs={"T_TARGET": str(server.home / "token")})
    assert server.wait(job)["phase"] == "succeeded", server.output(job)
    handed_over(server, job)
    assert server.token == kept
    assert server.get(f"/v1/runs/{job}/artifacts")["files"] == []
    assert kept not in server.output(job)

    victim = server.home / "victim"
    victim.mkdir(exist_ok=True)
    doc = {"type": "artifact", "path": "x", "kind": "file", "id": "x", "time": 1.0}
    (victim / "x.json").write_text(json.dumps({"doc": doc}))
    (victim / "x.data").write_text("another's")
    job = submit(server, ada, program(SWAPS), envs={"T_TARGET": str(victim)})
    assert server.wait(job)["phase"] == "succeeded", server.output(job)
    handed_over(server, job)
    assert server.get(f"/v1/runs/{job}/artifacts")["files"] == []
    assert sorted(path.name for path in victim.iterdir()) == ["x.data", "x.json"]


def test_a_program_that_stands_in_for_python_is_run_where_the_job_is(server: LiveServer, ada: str) -> None:
    target = server.home / "token"
    path = "/tmp/bin:/usr/bin:/bin"
    run = (
        "mkdir -p /tmp/bin; printf '#!/bin/sh\\ncp %s /tmp/stolen; touch %s.seen; exit 3\\n' $T_TARGET $T_TARGET "
        ">/tmp/bin/bwrap; cp /tmp/bin/bwrap /tmp/bin/setpriv; cp /tmp/bin/bwrap /tmp/bin/python; chmod 755 /tmp/bin/*"
    )
    job = submit(server, ada, run, envs={"PATH": path, "T_TARGET": str(target), "LD_PRELOAD": "/tmp/evil.so"})
    assert server.wait(job)["phase"] == "succeeded", server.output(job)
    handed_over(server, job)
    assert server.get(f"/v1/runs/{job}/attempts")["attempts"][0]["environment"]["packages"] == {}
    assert not target.with_name("token.seen").exists()


def test_an_ordinary_job_reports_saves_is_killed_and_goes_on(server: LiveServer, ada: str) -> None:
    retry = {"max_restarts": 1, "on": ["worker"], "backoff": "0s"}
    job = submit(server, ada, program(TRAINS), retry=retry)
    ended = server.wait(job)
    assert (ended["phase"], ended["attempt"]) == ("succeeded", 2), server.output(job)
    first = server.get(f"/v1/jobs/{job}/attempts")["attempts"][0]
    assert first["reason"]["code"] == "killed_by_signal"
    assert "SIGKILL" in json.dumps(first)
    assert "goes on from step-000000007 seven" in server.output(job)
    assert server.metric(job, "loss") == {1: ([1], [1.0]), 2: ([2], [2.0])}
    handed_over(server, job)
    kept = {item["path"]: item["bytes"] for item in server.get(f"/v1/runs/{job}/artifacts")["files"]}
    assert kept == {"made.txt": 4, "big.bin": 1_000_000}


STOPS = textwrap.dedent("""
    import time
    from muster import runtime
    runtime.report(step=1, loss=1.0)
    print("up", flush=True)
    while not runtime.should_stop():
        time.sleep(0.05)
    with runtime.checkpoint(1) as folder:
        (folder / "state").write_text("x")
    print("saved", flush=True)
""")
PLAIN = "trap 'echo told; exit 0' TERM; echo up; while :; do sleep 0.1; done"


@pytest.mark.parametrize(("run", "last"), [(program(STOPS), "saved"), (PLAIN, "told")], ids=["reports", "plain"])
def test_a_stop_leaves_time_to_save(server: LiveServer, ada: str, run: str, last: str) -> None:
    job = submit(server, ada, run, nproc=2, stop_grace="60s")
    until(lambda: server.output(job).count("up") == 2, "its ranks")
    server.post(f"/v1/jobs/{job}/stop")
    assert server.wait(job)["phase"] == "stopped"
    assert last in server.output(job)


def test_processes_that_a_rank_leaves_behind_end_with_it(server: LiveServer, ada: str) -> None:
    run = "env -i setsid sleep 7654321 >/dev/null 2>&1 & sleep 0.2; grep -c . /proc/*/comm >/dev/null"
    job = submit(server, ada, run)
    assert server.wait(job)["phase"] == "succeeded"
    left = [path for path in Path("/proc").glob("[0-9]*/cmdline") if b"7654321" in _read(path)]
    assert left == []


def test_the_job_starts_in_a_copy_of_its_code_where_its_folder_is_closed(server: LiveServer, ada: str) -> None:
    person = Path(server.env["HOME"])
    job = submit(server, ada, "ls -a", workdir=str(person))
    # The home is there, and is not that of the server's user: it holds nothing, and can be written.
    assert server.wait(job)["phase"] == "succeeded"
    assert ".bashrc" not in server.output(job)
    code = person / "code"
    code.mkdir()
    (code / "word").write_text("from the snapshot")
    job = submit(server, ada, "cat word", workdir=str(code))
    ended = server.wait(job)
    assert (ended["phase"], ended["reason"]["code"]) == ("failed", "workdir_missing")
    with Client(server.url, token=ada) as client:
        job = client.submit({"name": "job", "run": "cat word; touch new && ls", "workdir": str(code)}).id
    assert server.wait(job)["phase"] == "succeeded", server.output(job)
    printed = server.output(job)
    assert "from the snapshot" in printed
    assert "new" in printed
    assert f"{code} is not open to this job, which starts in a copy of its code" in printed


@pytest.fixture
def broken_bwrap() -> Iterator[Path]:
    """A folder that anybody can enter, with a bubblewrap that does not work."""
    folder = Path(tempfile.mkdtemp(dir="/var/tmp"))
    folder.chmod(0o755)
    (folder / "tries").touch()
    (folder / "tries").chmod(0o666)
    (folder / "bwrap").write_text(f"#!/bin/sh\necho >>{folder}/tries\necho no such luck >&2\nexit 1\n")
    (folder / "bwrap").chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def test_who_is_not_trusted_is_refused_where_nothing_keeps_jobs_apart(broken_bwrap: Path) -> None:
    env = {"PATH": f"{broken_bwrap}:{Path(sys.executable).parent}:/usr/bin:/bin:/usr/sbin:/sbin"}
    body: dict[str, Any] = {"spec": {"name": "job", "run": "id -u", "workdir": "/"}}
    with server_of(ORDINARY, "", env) as server:
        ada = member(server, "ada")
        with server.http(ada) as http:
            answer = http.post("/v1/jobs", json=body)
        assert answer.status_code == 409, answer.text
        (why,) = answer.json()["error"]["reasons"]
        assert why["code"] == "isolation_missing"
        assert "no such luck" in why["message"]
        assert "--trust-members" in why["hint"]
        own = server.submit("id -u", workdir="/")["id"]
        assert server.wait(own)["phase"] == "succeeded"
    with server_of(ORDINARY, "", env, "--trust-members") as server:
        ada = member(server, "ada")
        job = submit(server, ada, f"id -u; env; cat {server.home}/token")
        assert server.wait(job)["phase"] == "succeeded"
        assert server.token in server.output(job)
        assert "sentinel" not in server.output(job)


def test_what_the_administrator_opens_is_open_and_the_doctor_says_what_holds() -> None:
    shared = Path(tempfile.mkdtemp(dir="/var/tmp"))
    shared.chmod(0o777)
    try:
        with server_of(ORDINARY, f'[engines.local]\nwritable = ["{shared}"]\n') as server:
            ada = member(server, "ada")
            job = submit(server, ada, "touch made && echo done", workdir=str(shared))
            assert server.wait(job)["phase"] == "succeeded", server.output(job)
            assert (shared / "made").exists()
            env = {**os.environ, **server.env, "MUSTER_HOME": str(server.home)}
            command = [*server.around, sys.executable, "-m", "muster", "doctor", "--json"]
            done = subprocess.run(command, env=env, cwd="/", capture_output=True, text=True, check=False)
            (said,) = [one for one in json.loads(done.stdout)["checks"] if one["name"] == "isolation"]
            assert (said["status"], "sandbox" in said["detail"]) == ("ok", True)
    finally:
        shutil.rmtree(shared)


def test_an_administrators_job_that_a_member_resumes_is_kept_apart() -> None:
    with server_of(0) as server:
        ada = member(server, "ada")
        job = str(server.submit("id -u; exit 1", workdir="/")["id"])
        assert server.wait(job)["phase"] == "failed"
        with server.http(ada) as http:
            assert http.post(f"/v1/jobs/{job}/resume").status_code == 200
        until(lambda: server.job(job)["attempt"] == 2 and server.job(job)["phase"] == "failed", "its second end")
        assert server.output(job, attempt=1).split() == ["0"]
        assert "2000001" in server.output(job, attempt=2)


def test_whether_jobs_can_be_kept_apart_is_tried_once_for_a_batch(broken_bwrap: Path) -> None:
    env = {"PATH": f"{broken_bwrap}:{Path(sys.executable).parent}:/usr/bin:/bin:/usr/sbin:/sbin"}
    spec = {"name": "job", "run": "id -u", "workdir": "/"}
    tries = broken_bwrap / "tries"
    with server_of(ORDINARY, "", env) as server, server.http(member(server, "ada")) as http:
        assert http.post("/v1/jobs", json={"spec": spec}).status_code == 409
        one = len(tries.read_text())
        answers = http.post("/v1/jobs/batch", json={"jobs": [{"spec": spec}] * 50}).json()["jobs"]
        assert {answer["error"]["reasons"][0]["code"] for answer in answers} == {"isolation_missing"}
        assert len(tries.read_text()) <= 2 * one


def test_a_members_job_is_not_an_administrators_who_resumes_it(broken_bwrap: Path) -> None:
    env = {"PATH": f"{broken_bwrap}:{Path(sys.executable).parent}:/usr/bin:/bin:/usr/sbin:/sbin"}
    with server_of(ORDINARY, "", env, "--trust-members") as server:
        job = submit(server, member(server, "ada"), "exit 1")
        assert server.wait(job)["phase"] == "failed"
        server.stop()
        server.options = [option for option in server.options if option != "--trust-members"]
        server.start()
        with server.http() as http:
            answer = http.post(f"/v1/jobs/{job}/resume", json={})
        assert answer.status_code == 409, answer.text
        assert [reason["code"] for reason in answer.json()["error"]["reasons"]] == ["isolation_missing"]
