"""Jobs that start from another run's checkpoint, on this machine: an administrator's, and members', kept apart."""

from __future__ import annotations

import json
import os
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from isolation_kit import GRANTS, ORDINARY, member, program, server_of, submit
from live import LiveServer, until
from muster import wire
from muster.client import Client

# Saves STEPS, then waits for a file `go` of its folder, if WAITS, and saves on.
SAVES = textwrap.dedent("""
    import os, pathlib, time
    from muster import runtime
    found = runtime.last_checkpoint()
    if found is not None:
        print("starts from", found.name, (found / "state").read_text(), oct((found / "state").stat().st_mode & 0o777))
        try:
            if "SPOILS" in os.environ:
                (found / "state").open("r+b").write(b"spoilt")
            print("it could be written")
        except PermissionError:
            print("it can't be written")
    for step in map(int, os.environ.get("STEPS", "").split()):
        runtime.report(step=step, loss=1.0)
        with runtime.checkpoint(step) as folder:
            (folder / "state").write_text(f"{os.environ['MUSTER_JOB']} at {step}")
""")
ATTACKS = textwrap.dedent("""
    import os, pathlib
    from muster import runtime
    found = runtime.last_checkpoint()
    (found / "state").chmod(0o666)
    (found / "state").write_text("spoilt")
    print("written")
""")


@pytest.fixture(scope="module", params=["root", "user", "granted"])
def server(request: pytest.FixtureRequest) -> Iterator[LiveServer]:
    granted = request.param == "granted"
    config = "nodes = 2\n[engines.local]\n" + ("use_subuids = true\n" if granted else "")
    with server_of(0 if request.param == "root" else ORDINARY, config, grants=GRANTS if granted else None) as server:
        yield server


@pytest.fixture(scope="module")
def ada(server: LiveServer) -> str:
    return member(server, "ada")


@pytest.fixture
def who(request: pytest.FixtureRequest, server: LiveServer, ada: str) -> str:
    """A token: of an administrator, or of a member."""
    return server.token if request.param == "admin" else ada


def saved(server: LiveServer, token: str, steps: str, **spec: Any) -> str:
    job = submit(server, token, program(SAVES), envs={"STEPS": steps}, checkpoint={"keep": 5}, **spec)
    assert server.wait(job)["phase"] == "succeeded", server.output(job)
    return job


def files(server: LiveServer, job: str, step: int) -> os.stat_result:
    return (server.home / "local" / "checkpoints" / job / f"step-{step:09d}" / "state").stat()


def content(server: LiveServer, job: str, step: int) -> str:
    return (server.home / "local" / "checkpoints" / job / f"step-{step:09d}" / "state").read_text()


def taken(server: LiveServer, job: str) -> str:
    """How it was taken: the event says so."""
    (event,) = server.get("/v1/events", job=job, kind="checkpoint.taken")["events"]
    return str(event["data"]["how"])


@pytest.mark.parametrize("who", ["admin", "member"], indirect=True)
def test_a_job_starts_from_the_newest_of_another_run(server: LiveServer, who: str) -> None:
    first = saved(server, who, "100 200")
    job = submit(server, who, program(SAVES), envs={"STEPS": "201", "SPOILS": "1"}, start_from=first)
    ended = server.wait(job)
    printed = server.output(job)
    assert ended["phase"] == "succeeded", printed
    root = who == server.token and server.env["HOME"] and not server.around
    how = "copy" if root else "link"
    assert f"starts from step-000000200 {first} at 200 {'0o644' if root else '0o444'}\n" in printed
    assert ("it could be written" if root else "it can't be written") in printed
    assert taken(server, job) == how
    assert (files(server, job, 200).st_ino == files(server, first, 200).st_ino) == (how == "link")
    assert content(server, first, 200) == f"{first} at 200"
    assert ended["start_from"] == {"run": first, "step": None, "taken": 200}
    assert ended["checkpoint"]["step"] == 201
    attempts = until(lambda: (found := server.get(f"/v1/runs/{job}/attempts")["attempts"])[0].get("ended_at") and found)
    assert [attempt["from_step"] for attempt in attempts] == [200]
    kept = server.get(f"/v1/runs/{job}/checkpoints")["checkpoints"]
    assert [(one["step"], one.get("taken_from")) for one in kept] == [(200, f"{first}@200"), (201, None)]
    made = server.get(f"/v1/lineage/run:{job}")["up"]["nodes"]
    assert (f"checkpoint:{first}/200", "starts_from") in [(one["ref"], one["role"]) for one in made]
    notes = [one["text"] for one in server.get(f"/v1/runs/{job}/notes")["entries"]]
    assert any(text.startswith(f"Starts from step 200 of {first}, and ") for text in notes), notes


@pytest.mark.parametrize("who", ["admin", "member"], indirect=True)
def test_a_named_step_survives_the_removal_of_its_source(server: LiveServer, who: str) -> None:
    first = saved(server, who, "100 200 300")
    job = submit(server, who, program(SAVES), start_from=f"{first}@200")
    assert server.wait(job)["phase"] == "succeeded", server.output(job)
    assert f"starts from step-000000200 {first} at 200" in server.output(job)
    with server.http() as http:
        assert http.delete(f"/v1/runs/{first}", params={"purge": True}).status_code == 200
    assert not (server.home / "local" / "checkpoints" / first).exists()
    second = submit(server, who, program(SAVES), start_from=job)
    ended = server.wait(second)
    assert ended["phase"] == "succeeded", (ended["reason"], server.output(second))
    assert "starts from step-000000200" in server.output(second)
    with server.http() as http:
        answer = http.post("/v1/jobs", json={"spec": {"name": "late", "run": "true", "start_from": first}})
    assert [one["code"] for one in answer.json()["error"]["reasons"]] == ["unknown_start"]


def test_a_step_that_is_gone_stops_the_job_before_a_rank_starts(server: LiveServer, ada: str) -> None:
    first = saved(server, ada, "100 200")
    job = submit(server, ada, program(SAVES), start_from=f"{first}@150")
    ended = server.wait(job)
    assert (ended["phase"], ended["reason"]["code"], ended["attempt"]) == ("stopped", "start_missing", 1)
    assert f"{first} has no checkpoint of step 150" in ended["reason"]["message"]
    assert "it has 200, 100" in ended["reason"]["message"]
    assert "starts from" not in server.output(job)
    server.post(f"/v1/jobs/{job}/resume", {"from_scratch": True})
    until(lambda: server.job(job)["attempt"] == 2 and server.job(job)["phase"] == "succeeded", "its second attempt")
    assert "starts from" not in server.output(job)


def test_members_of_one_project_share_files_and_nobody_else_does(server: LiveServer, ada: str) -> None:
    """What a rank does to its own files by force is not done to those of an administrator or of another project."""
    eve = member(server, "eve", "vision")
    with server.http() as http:
        http.put("/v1/projects/vision/members/ada", json={"role": "viewer"})
    admins = saved(server, server.token, "100")
    hers = saved(server, eve, "100", project="vision", queue="vision")
    own = saved(server, ada, "100")
    granted = (server.home / "config.toml").read_text().count("use_subuids")
    for source in (admins, hers):
        job = submit(server, ada, program(ATTACKS), start_from=source)
        ended = server.wait(job)
        if source == hers and granted:  # another user, whose folder this one's launcher can't read
            assert ended["reason"]["code"] == "start_missing", ended["reason"]
            assert "Permission denied" in ended["reason"]["message"]
            continue
        assert ended["phase"] == "succeeded", (ended["reason"], server.output(job))
        assert "written" in server.output(job)
        assert taken(server, job) == "copy"
        assert files(server, source, 100).st_nlink == 1
        assert content(server, source, 100) == f"{source} at 100"
    job = submit(server, ada, program(SAVES), start_from=own)
    assert server.wait(job)["phase"] == "succeeded", server.output(job)
    assert (taken(server, job), files(server, own, 100).st_nlink) == ("link", 2)
    # An administrator may start from what a member has saved, in a copy that the member can't change any more.
    job = submit(server, server.token, program(SAVES), start_from=own)
    ended = server.wait(job)
    if granted:
        assert ended["reason"]["code"] == "start_missing"
    else:
        assert (ended["phase"], taken(server, job)) == ("succeeded", "copy"), server.output(job)


def test_a_foreign_run_is_refused_like_one_that_does_not_exist(server: LiveServer) -> None:
    mallory, bob = member(server, "mallory", "small"), member(server, "bob", "large")
    theirs = saved(server, bob, "100", project="large", queue="large")

    def refusal(start: str) -> Any:
        spec = {"name": "x", "run": "true", "project": "small", "queue": "small", "start_from": start}
        with server.http(mallory) as http:
            answer = http.post("/v1/jobs", json={"spec": spec})
        assert answer.status_code == 409, answer.text
        (why,) = answer.json()["error"]["reasons"]
        return why["code"], why["message"].replace(start.partition("@")[0], "X"), why["hint"]

    assert refusal(theirs) == refusal(f"{theirs}@100") == refusal("nobody-999")
    for odd in (f"../{theirs}", f"{theirs}/../x", "/etc"):
        with server.http(mallory) as http:
            answer = http.post("/v1/jobs", json={"spec": {"name": "x", "run": "true", "start_from": odd}})
        assert answer.status_code == 422, answer.text


PLANTS = textwrap.dedent("""
    import os, pathlib
    place = pathlib.Path(os.environ["MUSTER_CHECKPOINT_DIR"])
    newest = sorted(place.glob("step-*"))[-1]
    (newest / "state").unlink()
    (newest / "state").symlink_to(os.environ["T_TARGET"])
""")


def test_a_link_in_the_source_brings_nothing_of_the_servers(server: LiveServer, ada: str) -> None:
    target = str(server.home / "token")
    run = program(SAVES + PLANTS)
    size = len(server.token)
    assert size > 20
    first = submit(server, ada, run, envs={"STEPS": "100 200", "T_TARGET": target})
    assert server.wait(first)["phase"] == "succeeded", server.output(first)
    job = submit(server, ada, program(SAVES), start_from=first)
    assert server.wait(job)["phase"] == "succeeded", server.output(job)
    assert "starts from step-000000100" in server.output(job)
    assert server.token not in server.output(job)
    job = submit(server, ada, program(SAVES), start_from=f"{first}@200")
    assert "a link or no plain file" in server.wait(job)["reason"]["message"]


def test_a_run_is_not_deleted_while_a_job_has_yet_to_start_from_it(server: LiveServer, ada: str) -> None:
    first = saved(server, ada, "100")
    blocker = submit(server, ada, "exec sleep 1000")
    job = submit(server, ada, program(SAVES), start_from=first, needs={blocker: "ended"})
    with server.http() as http:
        answer = http.delete(f"/v1/runs/{first}", params={"purge": True})
        assert (answer.status_code, job in answer.json()["error"]["message"]) == (409, True), answer.text
        server.post(f"/v1/jobs/{blocker}/stop", {"force": True})
        assert server.wait(job)["phase"] == "succeeded", server.output(job)
        assert http.delete(f"/v1/runs/{first}", params={"purge": True}).status_code == 200


TRAINS = textwrap.dedent("""
    import os, pathlib, time
    from muster import runtime
    place = pathlib.Path(os.environ["MUSTER_CHECKPOINT_DIR"])
    for step in (100, 200, 300, 400):
        with runtime.checkpoint(step) as folder:
            (folder / "state").write_text(f"at {step}")
        print("saved", sorted(path.name for path in place.glob("step-*")), flush=True)
        while step in (100, 300) and not (place / f"go-{step}").exists():
            time.sleep(0.02)
""")


def test_a_source_that_trains_on_keeps_the_step_that_a_queued_job_names(server: LiveServer, ada: str) -> None:
    first = submit(server, ada, program(TRAINS), checkpoint={"keep": 1})
    place = server.home / "local" / "checkpoints" / first
    until(lambda: server.job(first)["checkpoint"], "its first checkpoint")
    blocker = submit(server, ada, "exec sleep 1000")
    job = submit(server, ada, program(SAVES), start_from=f"{first}@100", needs={blocker: "ended"})
    control = server.home / "local" / "attempts" / first / "1" / "0" / "control"

    def kept() -> int:
        return int.from_bytes(control.read_bytes()[wire.CONTROL_KEEP_AT :][:8], "little") - 1

    until(lambda: kept() == 100, "the order to keep it")
    (place / "go-100").touch()
    until(lambda: "step-000000300" in server.output(first), "more checkpoints")
    assert "saved ['step-000000100', 'step-000000300']" in server.output(first)
    server.post(f"/v1/jobs/{blocker}/stop", {"force": True})
    assert server.wait(job)["phase"] == "succeeded", server.output(job)
    assert "starts from step-000000100 at 100" in server.output(job)
    until(lambda: kept() == -1, "that it is not needed any more")
    (place / "go-300").touch()
    assert server.wait(first)["phase"] == "succeeded"
    assert "saved ['step-000000400']" in server.output(first)


KILLED = textwrap.dedent("""
    import os, pathlib, signal, time
    from muster import runtime
    found, attempt = runtime.last_checkpoint(), os.environ["MUSTER_ATTEMPT"]
    print("attempt", attempt, "from", found.name)
    peer = pathlib.Path(os.environ["MUSTER_CHECKPOINT_DIR"], "up-" + attempt)
    if runtime.rank() == 1:
        peer.touch()
        time.sleep(0 if attempt == "3" else 1000)
    else:
        while not peer.exists():
            time.sleep(0.02)
        if attempt == "2":
            with runtime.checkpoint(7) as folder:
                (folder / "state").write_text("seven")
        if attempt != "3":
            os.kill(os.getpid(), signal.SIGKILL)
""")


@pytest.mark.parametrize("who", ["admin", "member"], indirect=True)
def test_killed_ranks_start_again_from_it_and_then_from_their_own(server: LiveServer, who: str) -> None:
    first = saved(server, who, "100")
    job = submit(server, who, program(KILLED), start_from=first, num_nodes=2, nproc=1, retry={"backoff": 0})
    ended = server.wait(job)
    told = [server.output(job, attempt=attempt, rank=rank) for attempt in (1, 2, 3) for rank in (0, 1)]
    assert ended["phase"] == "succeeded", told
    names = ["step-000000100", "step-000000100", "step-000000007"]
    for i, text in enumerate(told):
        assert f"attempt {i // 2 + 1} from {names[i // 2]}\n" in text, told


def test_the_command_line_and_python_say_what_a_run_starts_from(server: LiveServer, ada: str) -> None:
    first = saved(server, ada, "100")
    with Client(server.url, token=ada) as client:
        spec = {"name": "tune", "run": program(SAVES), "workdir": "/", "start_from": f"{first}@100"}
        job = client.submit(spec)
        job = client.wait(job.id) if hasattr(client, "wait") else job
        server.wait(job.id)
        found = client.job(job.id)
        assert found.start_from == {"run": first, "step": 100, "taken": 100}
    assert json.loads(json.dumps(found.raw))["start_from"]["run"] == first
    assert Path(found.checkpoint["path"]).parent.name == job.id
