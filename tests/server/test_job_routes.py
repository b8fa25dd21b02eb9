"""Jobs through the API of a real server with real processes."""

from __future__ import annotations

import json
import sqlite3
import sys
import threading
from contextlib import closing

import httpx

from live import PATIENCE, LiveServer, until

PRINT_ENV = (
    f'{sys.executable} -c "import os; e = os.environ; '
    "print('|'.join(e[n] for n in ('RANK', 'WORLD_SIZE', 'LOCAL_RANK', 'LOCAL_WORLD_SIZE', 'GROUP_RANK', "
    "'MASTER_ADDR', 'MASTER_PORT', 'MUSTER_ATTEMPT')))\""
)


def test_a_job_runs_and_its_output_is_kept(server: LiveServer) -> None:
    job = server.submit("echo hello; echo there 1>&2")
    done = server.wait(job["id"])
    assert (done["phase"], done["reason"]["code"], done["attempt"]) == ("succeeded", "completed", 1)
    assert server.output(job["id"]) == "hello\nthere\n"


def test_a_gang_over_two_nodes_gets_torchruns_environment(server: LiveServer) -> None:
    job = server.submit(PRINT_ENV, num_nodes=2, nproc=2)
    assert server.wait(job["id"])["phase"] == "succeeded"
    lines = [server.output(job["id"], rank=rank).strip() for rank in range(4)]
    assert [line.split("|")[:5] for line in lines] == [
        ["0", "4", "0", "2", "0"], ["1", "4", "1", "2", "0"], ["2", "4", "0", "2", "1"], ["3", "4", "1", "2", "1"],
    ]  # fmt: skip
    assert len({tuple(line.split("|")[5:]) for line in lines}) == 1
    assert server.output(job["id"], rank=2).startswith("2|")


def test_five_mistakes_give_five_errors(server: LiveServer) -> None:
    spec = {
        "runn": "x",
        "run": "",
        "num_nodes": 0,
        "resources": {"memory": "64"},
        "max_duration": "soon",
        "name": "A_B",
    }
    with server.http() as http:
        answer = http.post("/v1/jobs", json={"spec": spec})
    assert answer.status_code == 422
    problems = answer.json()["error"]["problems"]
    assert {p["where"] for p in problems} >= {"runn", "run", "num_nodes", "resources.memory", "max_duration", "name"}
    assert all(p["expected"] and p["hint"] for p in problems)


def test_what_can_never_work_is_refused_with_every_reason(server: LiveServer) -> None:
    spec = {"name": "no", "run": "nonesuch-program --x", "workdir": "/nonexistent", "gpus": 64, "queue": "defualt"}
    with server.http() as http:
        answer = http.post("/v1/jobs", json={"spec": spec})
    assert answer.status_code == 409
    codes = {reason["code"] for reason in answer.json()["error"]["reasons"]}
    assert {"unknown_queue", "never_fits", "no_workdir"} <= codes
    with server.http() as http:
        answer = http.post(
            "/v1/jobs", json={"spec": {**spec, "workdir": str(server.home), "gpus": 0, "queue": "default"}}
        )
    assert [reason["code"] for reason in answer.json()["error"]["reasons"]] == ["no_command"]


def test_what_is_not_accepted_leaves_no_experiment(server: LiveServer) -> None:
    def experiments() -> list[str]:
        with closing(sqlite3.connect(f"file:{server.home}/muster.db?mode=ro", uri=True)) as database:
            return [name for (name,) in database.execute("SELECT project FROM experiments")]

    server.post("/v1/projects", {"name": "tried-out"})
    server.post("/v1/queues", {"name": "tried-out", "project": "tried-out"})
    spec = {"name": "no", "run": "true", "workdir": str(server.home)}
    tried = {**spec, "project": "tried-out", "queue": "tried-out"}
    with server.http() as http:
        assert http.post("/v1/jobs", json={"spec": {**spec, "project": "mistyped"}}).status_code == 409
        assert http.post("/v1/jobs", json={"spec": tried, "dry_run": True}).status_code == 200
        http.post("/v1/jobs/batch", json={"jobs": [{"spec": {**spec, "project": "mistyped"}}]})
    assert not {"mistyped", "tried-out"} & set(experiments())
    server.wait(server.submit("true", project="tried-out", queue="tried-out")["id"])
    assert "tried-out" in experiments()


def test_a_name_means_its_job_that_has_not_ended_and_never_one_of_several(server: LiveServer) -> None:
    old = server.submit("sleep 600", name="twins", cpus=1)["id"]
    server.wait(old, "running")
    newer = server.submit("true", name="twins", cpus=1)["id"]
    server.wait(newer)
    assert server.job("twins")["id"] == old
    assert server.get("/v1/runs/twins")["id"] == old
    other = server.submit("sleep 600", name="twins", cpus=1)["id"]
    server.wait(other, "running")
    with server.http() as http:
        answers = [http.post("/v1/jobs/twins/stop", json={"force": True}), http.get("/v1/runs/twins")]
    for answer in answers:
        error = answer.json()["error"]
        assert (answer.status_code, error["code"]) == (400, "invalid")
        assert f"{other} (running), {old} (running)" in error["message"]
        assert newer not in error["message"]
        assert other in error["hint"]
    assert {server.job(one)["phase"] for one in (old, other)} == {"running"}
    server.post(f"/v1/jobs/{other}/stop", {"force": True})
    server.wait(other)
    assert server.post("/v1/jobs/twins/stop", {"force": True})["id"] == old
    server.wait(old)
    assert server.job("twins")["id"] == server.get("/v1/runs/twins")["id"] == other  # all are over: the newest


def test_a_program_error_is_told_with_its_traceback(server: LiveServer) -> None:
    job = server.submit(f"{sys.executable} -c 'import nonesuch_module'")
    done = server.wait(job["id"])
    assert (done["phase"], done["reason"]["code"]) == ("failed", "user_error")
    assert "No module named 'nonesuch_module'" in done["reason"]["message"]
    assert "Traceback" in done["reason"]["data"]["detail"]


def test_a_command_that_vanishes_behind_the_shell_is_named(server: LiveServer) -> None:
    done = server.wait(server.submit("true && nonesuch-program")["id"])
    assert (done["phase"], done["reason"]["code"]) == ("failed", "command_not_found")
    assert "nonesuch-program" in done["reason"]["message"]


def test_a_workdir_that_vanished_before_the_launch_is_named(server: LiveServer, tmp_path) -> None:
    blocker = server.submit("sleep 600", num_nodes=2, cpus=64)
    server.wait(blocker["id"], "running")
    folder = tmp_path / "gone"
    folder.mkdir()
    job = server.submit("true", workdir=str(folder), cpus=64)
    folder.rmdir()
    server.post(f"/v1/jobs/{blocker['id']}/stop", {"force": True})
    done = server.wait(job["id"])
    assert (done["phase"], done["reason"]["code"]) == ("failed", "workdir_missing")


def test_a_waiting_job_says_why_and_who_holds_what_it_needs(server: LiveServer) -> None:
    blocker = server.submit("sleep 600", num_nodes=2, cpus=64)
    server.wait(blocker["id"], "running")
    first = server.submit("true", cpus=64)
    second = server.submit("true", cpus=64)
    why = until(lambda: server.get(f"/v1/jobs/{first['id']}/why"))
    assert why["reason"]["code"] == "no_capacity"
    assert why["reason"]["data"]["holders"] == [blocker["id"]]
    behind = server.get(f"/v1/jobs/{second['id']}/why")
    assert behind["reason"]["code"] == "behind_in_queue"
    assert [one["id"] for one in behind["ahead"]] == [first["id"]]
    line = server.get("/v1/queues/default/line")["jobs"]
    assert [job["id"] for job in line] == [first["id"], second["id"]]
    server.post(f"/v1/jobs/{blocker['id']}/stop", {"force": True})
    assert server.wait(second["id"])["phase"] == "succeeded"
    assert [step["phase"] for step in server.get(f"/v1/jobs/{second['id']}/why")["timeline"]] == [
        "queued", "starting", "running", "succeeded",
    ]  # fmt: skip


def test_stop_gives_time_to_save_and_resume_goes_on(server: LiveServer, tmp_path) -> None:
    script = tmp_path / "save.py"
    script.write_text(
        "import muster.runtime as m, time, sys\n"
        "last = m.last_checkpoint()\n"
        "start = int(open(last / 'step').read()) if last else 0\n"
        "print('from', start, flush=True)\n"
        "for step in range(start + 1, 10**9):\n"
        "    m.report(step=step, value=float(step))\n"
        "    m.progress(step)\n"
        "    if m.should_stop() or (last and step > start + 5):\n"
        "        with m.checkpoint(step) as folder:\n"
        "            (folder / 'step').write_text(str(step))\n"
        "        sys.exit(0 if last else 3)\n"
        "    time.sleep(0.01)\n"
    )
    job = server.submit(f"{sys.executable} save.py", workdir=str(tmp_path))
    until(lambda: server.job(job["id"])["progress"])
    server.post(f"/v1/jobs/{job['id']}/stop", {})
    stopped = server.wait(job["id"])
    assert (stopped["phase"], stopped["reason"]["code"]) == ("stopped", "user_stop")
    step = stopped["checkpoint"]["step"]
    server.post(f"/v1/jobs/{job['id']}/resume")
    done = server.wait(job["id"])
    assert (done["phase"], done["attempt"]) == ("succeeded", 2)
    assert f"from {step}\n" in server.output(job["id"], attempt=2)
    curves = server.metric(job["id"], "value")
    assert curves[1][0] == list(range(1, step + 1))
    assert curves[2][0] == list(range(step + 1, step + 7))


def test_the_same_key_is_the_same_job(server: LiveServer) -> None:
    spec = {"spec": {"name": "once", "run": "true", "workdir": str(server.home)}}
    first = server.post("/v1/jobs", spec, **{"Idempotency-Key": "k1"})
    assert server.post("/v1/jobs", spec, **{"Idempotency-Key": "k1"})["id"] == first["id"]
    server.wait(first["id"])
    assert server.post("/v1/jobs", spec, **{"Idempotency-Key": "k1"})["id"] == first["id"]
    with server.http() as http:
        other = {"spec": {**spec["spec"], "run": "false"}}
        answer = http.post("/v1/jobs", json=other, headers={"Idempotency-Key": "k1"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "conflict")


def test_a_batch_accepts_and_refuses_each_by_itself(server: LiveServer) -> None:
    good = {"spec": {"name": "many", "run": "true", "workdir": str(server.home)}}
    bad = {"spec": {"name": "many", "run": "true", "num_nodes": 99}}
    found = server.post(
        "/v1/jobs/batch", {"jobs": [good, bad, {**good, "key": "b1"}, {**good, "key": "b1"}, {"spec": {}}]}
    )
    assert [set(item) for item in found["jobs"]] == [
        {"id", "number"}, {"error"}, {"id", "number"}, {"id", "number"}, {"error"},
    ]  # fmt: skip
    assert found["jobs"][2] == found["jobs"][3]


def test_children_are_listed_by_their_parent(server: LiveServer) -> None:
    parent = server.submit("true", name="family")
    child = server.submit("true", name="child", parent=parent["id"])
    assert (child["parent"], parent["parent"]) == (parent["id"], None)
    server.wait(parent["id"])
    late = server.submit("true", name="late", parent=parent["id"])
    for ref in (parent["id"], parent["number"], "family"):
        assert [job["id"] for job in server.get("/v1/jobs", parent=ref)["jobs"]] == [late["id"], child["id"]]
    assert server.get("/v1/jobs", parent=child["id"])["jobs"] == []
    run = until(lambda: server.get(f"/v1/runs/{child['id']}"), "its run")
    assert run["parent"] == parent["id"]
    with server.http() as http:
        assert http.get("/v1/jobs", params={"parent": "nobody-9"}).status_code == 404


def test_a_parent_is_a_job_of_the_same_project(server: LiveServer) -> None:
    server.post("/v1/projects", {"name": "orphans"})
    parent = server.submit("true", name="elsewhere")
    for given, spec in ((parent["id"], {"project": "orphans"}), ("nobody-999", {})):
        body = {"spec": {"name": "child", "run": "true", "workdir": str(server.home), "parent": given, **spec}}
        with server.http() as http:
            answer = http.post("/v1/jobs", json=body)
        (reason,) = answer.json()["error"]["reasons"]
        assert (answer.status_code, reason["code"], reason["data"]["parent"]) == (409, "unknown_parent", given)


def test_lists_page_through_everything_once(server: LiveServer) -> None:
    ids = [server.submit("true", name="paged")["id"] for _ in range(7)]
    seen, before = [], None
    while True:
        page = server.get("/v1/jobs", name="paged", limit=3, **({"before": before} if before else {}))
        seen += [job["id"] for job in page["jobs"]]
        before = page["next"]
        if before is None:
            break
    assert seen == ids[::-1]
    for one in ids:
        server.wait(one)
    assert server.job("paged")["id"] == ids[-1]
    assert server.job(str(page["jobs"][-1]["number"]))["id"] == ids[0]


def sse(http: httpx.Client, path: str, opened: threading.Event | None = None, **headers: str | bytes):
    """(id, event, data) of a stream, as they come; sets `opened` once the server has settled where it begins."""
    with http.stream("GET", path, headers=headers, timeout=180) as answer:
        assert answer.status_code == 200
        if opened is not None:
            opened.set()
        fields: dict[str, str] = {}
        for line in answer.iter_lines():
            if line and not line.startswith(":"):
                name, _, value = line.partition(": ")
                fields[name] = value
            elif fields:
                yield fields.get("id"), fields["event"], json.loads(fields["data"])
                fields = {}


def test_logs_stream_until_the_end_and_resume_from_the_last_id(server: LiveServer) -> None:
    job = server.submit("for i in 1 2 3 4 5 6; do echo line $i; sleep 0.1; done")
    with server.http() as http:
        frames = list(sse(http, f"/v1/jobs/{job['id']}/logs/stream"))
    text = "".join(data["text"] for _, event, data in frames if event == "log")
    assert text == "".join(f"line {i}\n" for i in range(1, 7))
    assert frames[-1][1] == "end"
    assert frames[-1][2]["phase"] == "succeeded"
    first = next(number for number, event, _ in frames if event == "log")
    with server.http() as http:
        again = list(sse(http, f"/v1/jobs/{job['id']}/logs/stream", **{"Last-Event-ID": first}))
    rest = "".join(data["text"] for _, event, data in again if event == "log")
    assert text.endswith(rest)
    assert text != rest


def test_a_last_id_that_is_no_number_begins_at_the_beginning(server: LiveServer) -> None:
    job = server.submit("echo all of it")
    server.wait(job["id"])
    for given in ("²".encode("latin-1"), b"9" * 20, b"-1", b"x"):
        with server.http() as http:
            frames = list(sse(http, f"/v1/jobs/{job['id']}/logs/stream", **{"Last-Event-ID": given}))
            assert "".join(data["text"] for _, event, data in frames if event == "log") == "all of it\n"
            _, event, data = next(sse(http, f"/v1/events/stream?after=0&job={job['id']}", **{"Last-Event-ID": given}))
            assert (event, data["kind"]) == ("event", "job.submitted")


def test_events_stream_and_name_the_actor(server: LiveServer) -> None:
    found: list[dict] = []
    opened = threading.Event()

    def read() -> None:
        with server.http() as http:
            for _, _, data in sse(http, "/v1/events/stream", opened):
                found.extend([data] if (data["job"] or "").startswith("streamed") else [])
                if found and found[-1]["kind"] == "job.succeeded":
                    return

    reading = threading.Thread(target=read, daemon=True)
    reading.start()
    # A stream begins where the log ends when it is opened: what is submitted before that is not in it.
    assert opened.wait(PATIENCE)
    job = server.submit("true", name="streamed")
    reading.join(PATIENCE)
    assert not reading.is_alive()
    user = server.get("/v1/whoami")["user"]
    assert {e["job"] for e in found} == {job["id"]}
    assert [e["actor"] for e in found if e["kind"] == "job.submitted"] == [user]
    mine = server.get("/v1/events", actor=user, kind="job.", last=True, limit=5)["events"]
    assert {e["actor"] for e in mine} == {user}


def test_a_job_over_its_memory_is_stopped_and_says_so(server: LiveServer) -> None:
    job = server.submit(
        f"{sys.executable} -c 'import time; x = bytearray(400_000_000); time.sleep(600)'", memory="100MB"
    )
    done = server.wait(job["id"])
    assert (done["phase"], done["reason"]["code"]) == ("failed", "out_of_memory")


def test_max_duration_stops_a_job(server: LiveServer) -> None:
    done = server.wait(server.submit("sleep 600", max_duration=0.5, stop_grace=1)["id"])
    assert (done["phase"], done["reason"]["code"]) == ("stopped", "max_duration")


def test_one_killed_rank_brings_the_gang_back_from_the_checkpoint(server: LiveServer, tmp_path) -> None:
    script = tmp_path / "train.py"
    script.write_text(
        "import muster.runtime as m, os, signal, time\n"
        "last = m.last_checkpoint()\n"
        "start = int((last / 'step').read_text()) if last else 0\n"
        "for step in range(start + 1, 31):\n"
        "    m.report(step=step, loss=1.0 / step)\n"
        "    if step % 10 == 0 and m.rank() == 0:\n"
        "        with m.checkpoint(step) as folder:\n"
        "            (folder / 'step').write_text(str(step))\n"
        "    if m.rank() == 1 and m.attempt() == 1 and step == 25:\n"
        "        time.sleep(0.3)\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "    time.sleep(0.02)\n"
        "if m.attempt() == 1: time.sleep(600)\n"
    )
    job = server.submit(
        f"{sys.executable} train.py", workdir=str(tmp_path), nproc=2, num_nodes=2, retry={"backoff": "100ms"}
    )
    done = server.wait(job["id"])
    assert (done["phase"], done["attempt"], done["restarts"]) == ("succeeded", 2, {"worker": 1})
    first, second = server.get(f"/v1/jobs/{job['id']}/attempts")["attempts"]
    assert first["reason"]["code"] == "killed_by_signal"
    assert "rank 1" in first["reason"]["message"]
    assert second["from_step"] in (20, 30)
    summary = server.get(f"/v1/jobs/{job['id']}/summary")
    assert summary["attempts"] == 2
    assert 0 < summary["goodput"] < 1
