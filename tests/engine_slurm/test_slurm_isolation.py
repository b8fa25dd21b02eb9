"""Members' jobs on a real Slurm: what they can't get at, and that they run like any others."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster_suite import nodes_of
from isolation_kit import TRAINS, attack, member, program, rank_pid, submit
from live import LiveServer, below, until
from rigs.slurm_rig import SlurmRig
from slurm_kit import slurm_server

pytestmark = pytest.mark.component("slurm")


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
    with slurm_server(rig, tmp_path_factory.mktemp("home")) as server:
        yield server


def test_a_members_job_gets_at_no_token_of_another_gang(server: LiveServer) -> None:
    ada, eve = member(server, "ada"), member(server, "eve", "vision")
    with server.http() as http:
        assert http.put("/v1/projects/default/secrets/DEEP", json={"value": "sentinel-secret"}).status_code < 300
    held = submit(server, ada, "exec sleep 1000", secrets=["DEEP"])
    pid = rank_pid(held)
    launcher = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    gangs = [str(path) for path in below(server.home.parent, "gang.json")]
    assert gangs, "the gang's folder is elsewhere"
    more = [*gangs, *map(str, Path("/tmp").glob(f"muster-*/workers/{held}*/launch.json"))]
    assert attack(server, eve, [pid, launcher], Path("/root"), more, project="vision", queue="vision") == []
    assert server.job(held)["phase"] == "running"
    server.post(f"/v1/jobs/{held}/stop", {"force": True})
    server.wait(held)


def test_an_ordinary_job_reports_saves_is_killed_and_goes_on(server: LiveServer) -> None:
    retry = {"max_restarts": 1, "on": ["worker"], "backoff": "0s"}
    job = submit(server, member(server, "ada"), program(TRAINS), retry=retry)
    ended = server.wait(job)
    assert (ended["phase"], ended["attempt"]) == ("succeeded", 2), server.output(job)
    assert "SIGKILL" in json.dumps(server.get(f"/v1/jobs/{job}/attempts")["attempts"][0])
    assert "goes on from step-000000007 seven" in server.output(job)
    until(lambda: len(server.get(f"/v1/runs/{job}/artifacts")["files"]) == 2, "its files")


def test_a_node_that_can_keep_nobody_apart_runs_no_members_job(
    rig: SlurmRig, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("bin")
    (folder / "bwrap").write_text("#!/bin/sh\necho no such luck >&2\nexit 1\n")
    (folder / "bwrap").chmod(0o755)
    server = LiveServer(tmp_path_factory.mktemp("other"), config=rig.config, env=dict(rig.env))
    server.env["PATH"] = f"{folder}:{server.env.get('PATH', os.environ['PATH'])}"
    server.start()
    try:
        until(lambda: len(nodes_of(server)) >= 4, "the cluster's nodes")
        token = member(server, "ada")
        job = submit(server, token, "id -u")
        ended = server.wait(job)
        assert (ended["phase"], ended["reason"]["code"]) == ("failed", "not_isolated")
        assert "no such luck" in ended["reason"]["message"]
        assert "trust_members" in ended["reason"]["hint"]
        own = server.submit("id -u", workdir="/")["id"]
        assert server.wait(own)["phase"] == "succeeded"
    finally:
        server.stop()
