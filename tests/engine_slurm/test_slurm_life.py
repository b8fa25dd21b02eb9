"""What only Slurm does to a job, on a real one: preemption, time limits, queueing again, limits, drains, arrays."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster_suite import COUNT, HELD, loses_a_node_and_grows_back, submit
from live import LiveServer, until
from rigs.slurm_rig import SlurmRig
from slurm_kit import KEEPS, first_attempt, rows_of, slurm_server

pytestmark = pytest.mark.component("slurm")
ALL: dict[str, Any] = {"resources": {"accelerators": "H100:2"}, "nproc": 1}


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmRig]:
    rig = SlurmRig()
    try:
        rig.start(tmp_path_factory.mktemp("slurm"))
        yield rig
    finally:
        rig.close()


@pytest.fixture(scope="module")
def server(rig: SlurmRig, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    home = tmp_path_factory.mktemp("home")
    with slurm_server(rig, home, f'spot_notices = "file:{home}/notice"\n{rig.config}') as server:
        yield server


def test_preemption_by_slurm_is_a_save_and_a_new_attempt_of_the_same_slurm_job(
    rig: SlurmRig, server: LiveServer, tmp_path: Path
) -> None:
    job = submit(rig, server, tmp_path, KEEPS, num_nodes=4, **ALL)
    until(lambda: len(list(tmp_path.glob("up-1-*"))) == 4, "all ranks")
    urgent = f"touch {tmp_path}/urgent; until test -e {tmp_path}/off; do sleep 0.1; done"
    rig.tool("sbatch", "--partition=high", "--nodes=4", "--exclusive", "--output=/dev/null", f"--wrap={urgent}")
    until(lambda: (tmp_path / "urgent").exists(), "the one that goes first")
    waits = until(
        lambda: (now := server.job(job))["reason"] and now["attempt"] == 2 and now, "the second attempt to wait"
    )
    assert (waits["phase"], waits["reason"]["code"], waits["nodes"]) == ("starting", "engine_queue", [])
    (tmp_path / "off").touch()
    ended = server.wait(job)
    assert (ended["phase"], ended["attempt"]) == ("succeeded", 2), server.output(job)
    assert sorted(path.name for path in tmp_path.glob("saved-*")) == [f"saved-1-{rank}" for rank in range(4)]
    assert first_attempt(server, job)["reason"]["code"] == "preempted"
    (row,) = rows_of(rig, job)
    assert row[1] == "1", "it was not queued again, but submitted anew"


def test_a_machine_that_is_taken_away_is_drained_in_slurm_and_the_gang_saves(
    rig: SlurmRig, server: LiveServer, tmp_path: Path
) -> None:
    with server.http() as http:
        assert http.put("/v1/rules", json={"text": "pools: {low: {spot: true}}"}).status_code == 200
    job = submit(rig, server, tmp_path, KEEPS, num_nodes=2, envs={"SAVES": "yes"}, use_spot=True)
    until(lambda: len(list(tmp_path.glob("up-1-*"))) == 2, "both ranks")
    until(lambda: len(server.job(job)["nodes"]) == 2, "where they are")
    (server.home / "notice").write_text("60")
    until(lambda: server.job(job)["phase"] != "running", "the notice to be seen")
    (server.home / "notice").unlink()
    with server.http() as http:
        assert server.wait(job)["phase"] == "succeeded", server.output(job)
        assert http.put("/v1/rules", json={"text": "pools: {low: {spot: auto}}"}).status_code == 200
    assert sorted(path.name for path in tmp_path.glob("saved-*")) == ["saved-1-0", "saved-1-1"]
    (requeued,) = server.get("/v1/events", job=job, kind="job.requeued")["events"]
    assert requeued["data"]["reason"]["code"] == "spot_notice"
    assert "it saved step 1 before it left" in requeued["data"]["reason"]["message"]
    gone = [one["name"] for one in server.get("/v1/nodes")["nodes"] if one["why"] == "it is taken away (spot notice)"]
    assert gone
    for node in gone:
        until(lambda node=node: "taken away" in rig.tool("sinfo", "-h", "-R", "-n", node, "-o", "%E"), "Slurm's drain")
        server.post(f"/v1/nodes/{node}/health", {"health": "healthy"})
        until(lambda node=node: "idle" in rig.tool("sinfo", "-h", "-n", node, "-o", "%T"), "it to be in service again")


def test_before_the_time_limit_it_saves_and_goes_on(rig: SlurmRig, server: LiveServer, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(KEEPS)
    # Slurm looks every 30 s, and signals up to 30 s early: from 5 s after the start on.
    spec: dict[str, Any] = {"pool": "short", "num_nodes": 2, "slurm": {"signal": "25s"}, "envs": {"SAVES": "yes"}}
    job = server.submit(f"exec {sys.executable} program.py", workdir=str(tmp_path), **spec)["id"]
    ended = server.wait(job)
    assert sorted(path.name for path in tmp_path.glob("saved-*")) == ["saved-1-0", "saved-1-1"]
    assert first_attempt(server, job)["reason"]["code"] == "time_limit"
    assert (ended["phase"], ended["attempt"]) == ("succeeded", 2), server.output(job)


def test_a_job_queued_again_by_hand_is_the_next_attempt(rig: SlurmRig, server: LiveServer, tmp_path: Path) -> None:
    job = submit(rig, server, tmp_path, COUNT + HELD)
    until(lambda: (tmp_path / "up-0").exists(), "its rank")
    rig.tool("scontrol", "requeue", rig.slurm_id(job))
    until(lambda: (tmp_path / "starts").read_text().split() == ["1", "2"], "its second start")
    (tmp_path / "go").touch()
    ended = server.wait(job)
    assert (ended["phase"], ended["attempt"]) == ("succeeded", 2), server.output(job)
    assert first_attempt(server, job)["reason"]["code"] == "preempted"
    assert [row[1] for row in rows_of(rig, job)] == ["1"]


def test_what_waits_says_what_slurm_says_and_when_it_starts(rig: SlurmRig, server: LiveServer, tmp_path: Path) -> None:
    full = submit(rig, server, tmp_path, COUNT + HELD, num_nodes=4, **ALL, max_duration="5m")
    until(lambda: len(list(tmp_path.glob("up-*"))) == 4, "a full cluster")
    waiting = server.submit("true", pool="low", **ALL, max_duration="1m")["id"]

    def why() -> Any:
        reason = server.get(f"/v1/jobs/{waiting}/why")["reason"]
        known = reason["data"].get("starts_at") and reason["data"]["engine_reason"] in ("Resources", "Priority")
        return reason if known else None  # Slurm has an estimate before it has a reason

    reason = until(why, "Slurm's reason and estimate")
    assert reason["code"] == "engine_queue"
    assert "Slurm" in reason["message"]
    (tmp_path / "go").touch()
    assert server.wait(full)["phase"] == "succeeded"
    assert server.wait(waiting)["phase"] == "succeeded"


def test_a_gang_that_wants_one_rack_waits_for_one_switch(rig: SlurmRig, server: LiveServer, tmp_path: Path) -> None:
    """One node of either switch is another's: two are free, and not on one."""
    for node in ("n1", "n3"):
        held = f"touch {tmp_path}/{node}; until test -e {tmp_path}/off-{node}; do sleep 0.1; done"
        rig.tool("sbatch", f"--nodelist={node}", "--exclusive", "--output=/dev/null", f"--wrap={held}")
    until(lambda: (tmp_path / "n1").exists() and (tmp_path / "n3").exists(), "the others")
    job = submit(rig, server, tmp_path, COUNT + HELD, num_nodes=2, topology="rack")
    until(lambda: (server.job(job)["reason"] or {}).get("code") == "engine_queue", "it to wait in Slurm's queue")
    assert " Switches=1@" in rig.tool("scontrol", "show", "job", rig.slurm_id(job), "--oneliner")
    anywhere = server.submit("true", pool=rig.pool, num_nodes=2)["id"]
    assert server.wait(anywhere)["phase"] == "succeeded"
    assert not list(tmp_path.glob("up-*"))
    (tmp_path / "off-n3").touch()
    until(lambda: len(list(tmp_path.glob("up-*"))) == 2, "both ranks")
    assert sorted(name.rpartition("/")[2] for name in server.job(job)["nodes"]) == ["n3", "n4"]
    (tmp_path / "go").touch()
    (tmp_path / "off-n1").touch()
    assert server.wait(job)["phase"] == "succeeded"


def test_what_slurm_refuses_fails_at_once_with_its_words(server: LiveServer) -> None:
    job = server.submit("true", pool="low", slurm={"constraint": "nosuch"})["id"]
    ended = server.wait(job)
    assert (ended["phase"], ended["attempt"], ended["reason"]["code"]) == ("failed", 1, "engine_refused")
    assert "Invalid feature" in ended["reason"]["message"]


def test_an_option_that_would_change_who_it_is_is_refused(server: LiveServer) -> None:
    job = server.submit("true", pool="low", slurm={"extra": ["--uid=1000"]})["id"]
    ended = server.wait(job)
    assert ended["reason"]["code"] == "engine_refused"
    assert "--uid=1000" in ended["reason"]["message"]


def check_jobs(rig: SlurmRig) -> list[str]:
    lines = rig.tool("squeue", "-h", "-O", "Comment:").splitlines()
    return [line for line in lines if ":check:" in line]


def test_a_node_without_a_job_is_checked_and_a_drained_one_is_refused_plainly(
    rig: SlurmRig, server: LiveServer
) -> None:
    found = server.post("/v1/nodes/n2/check")
    assert not found["later"]
    status = {one["check"]: one["status"] for one in found["findings"]}
    assert status["disk"] == "ok"
    assert set(status.values()) <= {"ok", "unknown"}, found
    until(lambda: not check_jobs(rig), "its Slurm job to be gone")
    assert server.get("/v1/nodes/n2/history")["entries"][-1]["kind"] == "checked"
    rig.tool("scontrol", "update", "NodeName=n2", "State=DRAIN", "Reason=bad fan")
    try:
        until(lambda: next(n for n in server.get("/v1/nodes")["nodes"] if n["name"] == "n2")["health"] != "healthy")
        with server.http() as http:
            answer = http.post("/v1/nodes/n2/check")
        assert answer.status_code == 502
        assert "Slurm starts nothing on it (IDLE+DRAIN, bad fan" in answer.json()["error"]["message"]
    finally:
        rig.tool("scontrol", "update", "NodeName=n2", "State=RESUME")


def test_a_check_beside_a_job_leaves_its_devices_alone_and_one_that_was_left_is_cancelled(
    rig: SlurmRig, server: LiveServer, tmp_path: Path
) -> None:
    job = submit(rig, server, tmp_path, COUNT + HELD, **ALL, slurm={"nodelist": "n1"})
    until(lambda: (tmp_path / "up-0").exists(), "its rank")

    def used() -> int:
        (node,) = [one for one in server.get("/v1/nodes")["nodes"] if one["name"] == "n1"]
        return int(node["used"]["accelerators"])

    until(lambda: used() == 2, "its devices to be seen in use")
    found = {one["check"]: one for one in server.post("/v1/nodes/n1/check")["findings"]}
    assert found["disk"]["status"] == "ok"
    assert {(one["status"], one["detail"]) for name, one in found.items() if name.startswith("device")} == {
        ("unknown", "others hold the node's accelerators")
    }
    (mark,) = {line.split(":")[1] for line in rig.tool("squeue", "-h", "-O", "Comment:").splitlines()}
    held = ["--hold", "--output=/dev/null", f"--comment=muster:{mark}:check:n3:0123456789ab", "--wrap=true"]
    rig.tool("sbatch", *held)
    until(lambda: not check_jobs(rig), "what another server left to be cancelled")
    (tmp_path / "go").touch()
    assert server.wait(job)["phase"] == "succeeded"


def test_drains_are_seen_both_ways(rig: SlurmRig, server: LiveServer) -> None:
    def health(name: str) -> tuple[str, str]:
        node = next(node for node in server.get("/v1/nodes")["nodes"] if node["name"] == name)
        return node["health"], node["why"]

    rig.tool("scontrol", "update", "NodeName=n3", "State=DRAIN", "Reason=bad fan = loud")
    try:
        found = until(lambda: (h := health("n3"))[0] == "draining" and h, "Slurm's drain in Muster")
        assert "bad fan = loud" in found[1]
    finally:
        rig.tool("scontrol", "update", "NodeName=n3", "State=RESUME")
    until(lambda: health("n3")[0] == "healthy", "n3 to be well again")
    server.post("/v1/nodes/n4/health", {"health": "draining", "reason": 'it\'s "odd" here'})
    until(lambda: "drain" in rig.tool("sinfo", "-h", "-n", "n4", "-o", "%T"), "Muster's drain in Slurm")
    assert 'it\'s "odd" here' in rig.tool("sinfo", "-h", "-R", "-n", "n4", "-o", "%E")
    server.post("/v1/nodes/n4/health", {"health": "healthy"})
    until(lambda: "idle" in rig.tool("sinfo", "-h", "-n", "n4", "-o", "%T"), "n4 to be in service again")


def test_jobs_go_on_while_the_controller_is_away(rig: SlurmRig, server: LiveServer, tmp_path: Path) -> None:
    job = submit(rig, server, tmp_path, COUNT + HELD, num_nodes=2)
    until(lambda: len(list(tmp_path.glob("up-*"))) == 2, "both ranks")
    rig.stop_controller()
    try:
        until(lambda: "slurm is away" in server.log() or "engine slurm" in server.log(), "the server to notice")
    finally:
        rig.start_controller()
    (tmp_path / "go").touch()
    ended = server.wait(job)
    assert (ended["phase"], ended["attempt"]) == ("succeeded", 1), server.output(job)
    assert (tmp_path / "starts").read_text().split() == ["1", "1"]


def test_jobs_that_are_alike_go_as_arrays(rig: SlurmRig, server: LiveServer, tmp_path: Path) -> None:
    full = submit(rig, server, tmp_path, COUNT + HELD, num_nodes=4, **ALL)
    until(lambda: len(list(tmp_path.glob("up-*"))) == 4, "a full cluster")
    spec = {"workdir": str(tmp_path), "pool": "low", "resources": {"accelerators": "H100:1"}}
    specs = [{"spec": {"name": f"alike-{i}", "run": f"echo $MUSTER_JOB > ran-{i}", **spec}} for i in range(10)]
    jobs = [one["id"] for one in server.post("/v1/jobs/batch", {"jobs": specs})["jobs"]]
    until(lambda: all(rig._slurm_id(job) for job in jobs), "all of them in Slurm's queue")
    bases = set(rig.tool("squeue", "-h", "-r", "-t", "pending", "-o", "%F").split())
    assert len(bases) < len(jobs)
    dropped = jobs.pop()
    server.post(f"/v1/jobs/{dropped}/stop")
    assert server.wait(dropped)["phase"] == "stopped"
    (tmp_path / "go").touch()
    assert [server.wait(job)["phase"] for job in [full, *jobs]] == ["succeeded"] * (len(jobs) + 1)
    assert [(tmp_path / f"ran-{i}").read_text().strip() for i in range(9)] == jobs
    assert not (tmp_path / "ran-9").exists()


def test_a_second_slurm_job_for_one_attempt_starts_nothing(rig: SlurmRig, server: LiveServer, tmp_path: Path) -> None:
    job = submit(rig, server, tmp_path, COUNT + HELD)
    until(lambda: (tmp_path / "up-0").exists(), "its rank")
    shown = rig.tool("scontrol", "show", "job", "-o", rig.slurm_id(job))
    fields = dict(word.partition("=")[::2] for word in shown.split() if "=" in word)
    command = shown.partition(" Command=")[2].partition(" WorkDir=")[0].split()
    again = [f"--comment={fields['Comment']}", "--output=/dev/null", "--partition=low", "--parsable"]
    second = rig.tool("sbatch", *again, *command).strip()
    state = ("squeue", "-h", "-t", "all", "-j", second, "-o", "%T")
    until(lambda: rig.tool(*state).strip() in ("COMPLETED", "CANCELLED"), "the second to leave")
    (tmp_path / "go").touch()
    assert server.wait(job)["phase"] == "succeeded"
    assert (tmp_path / "starts").read_text().split() == ["1"]


def test_the_doctor_finds_all_of_it_well(server: LiveServer) -> None:
    with server.http() as http:
        findings = [json.loads(line) for line in http.get("/v1/engines/slurm/doctor").text.splitlines()]
    bad = [one for one in findings if one["status"] != "ok" and one["name"] != "accounting"]
    assert bad == []
    assert {"controller", "pool low", "python on a node", "root on a node", "server from a node"} <= {
        one["name"] for one in findings
    }


def test_an_elastic_gang_goes_on_without_a_lost_node_and_grows_back(
    rig: SlurmRig, server: LiveServer, tmp_path: Path
) -> None:
    loses_a_node_and_grows_back(rig, server, tmp_path, most=4)
    states = ("squeue", "-h", "-t", "pending,running", "-O", "State")
    until(lambda: not rig.tool(*states).split(), "no Slurm job of another size to be left")
