"""Slurm's accounts and its REST server, on a real one with MariaDB: limits that are named, and books that agree."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cluster_suite import COUNT, HELD, SAVE, submit
from live import LiveServer, until
from muster.control.usage_audit import Attempted, compare
from muster.engines.base import Usage
from rigs.slurm_rig import SlurmRig
from slurm_kit import slurm_server

pytestmark = pytest.mark.component("slurm")
ALL: dict[str, Any] = {"resources": {"accelerators": "H100:2"}, "nproc": 1}


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmRig]:
    rig = SlurmRig(accounting=True, rest=True)
    try:
        rig.start(tmp_path_factory.mktemp("slurm"))
        yield rig
    finally:
        rig.close()


@pytest.fixture(scope="module")
def server(rig: SlurmRig, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with slurm_server(rig, tmp_path_factory.mktemp("home")) as server:
        yield server


def test_a_limit_of_the_account_is_named_and_lifts(rig: SlurmRig, server: LiveServer, tmp_path: Path) -> None:
    rig.tool("sacctmgr", "-i", "modify", "account", "lab", "set", "GrpTRES=gres/gpu=2")
    try:
        first = submit(rig, server, tmp_path, COUNT + HELD, slurm={"account": "lab"}, **ALL)
        until(lambda: (tmp_path / "up-0").exists(), "the first")
        second = server.submit("true", pool="low", slurm={"account": "lab"}, **ALL)["id"]
        reason = until(
            lambda: (
                (r := server.get(f"/v1/jobs/{second}/why")["reason"])
                and r["data"].get("engine_reason", "").startswith("Assoc")
                and r
            ),
            "the limit",
        )
        assert "GPUs" in reason["message"]
    finally:
        rig.tool("sacctmgr", "-i", "modify", "account", "lab", "set", "GrpTRES=gres/gpu=-1")
    (tmp_path / "go").touch()
    assert [server.wait(job)["phase"] for job in (first, second)] == ["succeeded", "succeeded"]


def test_an_account_that_does_not_exist_is_refused_with_slurms_words(server: LiveServer) -> None:
    ended = server.wait(server.submit("true", pool="low", slurm={"account": "nobodys"})["id"])
    assert (ended["phase"], ended["attempt"], ended["reason"]["code"]) == ("failed", 1, "engine_refused")
    assert "Invalid account" in ended["reason"]["message"]


def test_slurms_books_agree_with_musters(rig: SlurmRig, server: LiveServer, tmp_path: Path) -> None:
    job = submit(rig, server, tmp_path, COUNT + HELD, num_nodes=2, **ALL)
    until(lambda: len(list(tmp_path.glob("up-*"))) == 2, "both ranks")
    rig.tool("scontrol", "requeue", rig.slurm_id(job))
    until(lambda: (tmp_path / "starts").read_text().split() == ["1", "1", "2", "2"], "its second start")
    (tmp_path / "go").touch()
    assert server.wait(job)["phase"] == "succeeded"

    def usages() -> list[Usage]:
        found = server.get("/v1/engines/slurm/usage", since=3600)["usage"]
        mine = [Usage(**{**one, "nodes": tuple(one["nodes"])}) for one in found if one["job"] == job]
        return mine if len(mine) == 2 and all(one.ended_at for one in mine) else []

    theirs = until(usages, "both runs on Slurm's books")
    ours = [
        Attempted(job, one["number"], tuple(w["node"] for w in one["workers"]), one["running_at"], one["ended_at"], 4)
        for one in server.get(f"/v1/jobs/{job}/attempts")["attempts"]
    ]
    assert compare(ours, theirs) == []
    assert {one.state for one in theirs} == {"REQUEUED", "COMPLETED"}
    assert all(one.accelerator_seconds == 4 * one.about["elapsed"] for one in theirs)


def test_through_slurmrestd_gangs_run_and_stop(
    rig: SlurmRig, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    with slurm_server(rig, tmp_path_factory.mktemp("rest"), rig.rest_config) as server:
        job = submit(rig, server, tmp_path, SAVE, num_nodes=2, **ALL)
        until(lambda: len(list(tmp_path.glob("up-*"))) == 2, "both ranks")
        until(lambda: set(server.job(job)["nodes"]) <= {"n1", "n2", "n3", "n4"}, "where they are")
        server.post(f"/v1/jobs/{job}/stop", {"grace": 30})
        assert server.wait(job)["phase"] == "stopped"
        assert sorted(path.name for path in tmp_path.glob("saved-*")) == ["saved-0", "saved-1"]
        alike = [{"spec": {"name": f"alike-{i}", "run": "true", "pool": "low"}} for i in range(3)]
        for one in server.post("/v1/jobs/batch", {"jobs": alike})["jobs"]:
            assert server.wait(one["id"])["phase"] == "succeeded"
        assert "ok" in {one["status"] for one in server.post("/v1/nodes/n1/check")["findings"]}
        refused = server.wait(server.submit("true", pool="low", slurm={"constraint": "nosuch"})["id"])
        elsewhere = server.submit("echo $SLURMD_NODENAME", pool="low", slurm={"exclude": "n[1-3]"})["id"]
        assert (server.wait(elsewhere)["phase"], server.output(elsewhere)) == ("succeeded", "n4\n"), server.job(
            elsewhere
        )["reason"]
        assert (refused["phase"], refused["reason"]["code"]) == ("failed", "engine_refused")
