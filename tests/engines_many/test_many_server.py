"""A server with this machine and a cluster beside it: what a user types, and what is left when either goes away."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from toy import Toy, node, slots

from live import LiveServer, stop_everything, until
from muster.cli.main import main
from muster.engines.registry import KINDS
from muster.server.settings import Settings

HERE = Path(__file__).parent
# A server that knows one kind of engine more, and looks at it often.
BEGIN = """
import sys
from functools import partial
from muster.cli.main import main
from muster.control import listen
from muster.engines import many, registry
registry.KINDS["toy"] = "toy"
registry.RemoteEngine = partial(registry.RemoteEngine, nodes_every=0.1)
many.AWAY_AFTER, listen.NODES_EVERY = 0.2, 0.5  # seconds
sys.exit(main())
"""
NODES = [*slots("gpu", 4), node("m1", role="machine"), node("m2", role="machine", health="suspect", why="cold")]
Muster = Callable[..., tuple[int, str]]


@dataclass
class Beside(LiveServer):
    """`muster up` with the toy cluster."""

    @property
    def toy(self) -> Toy:
        return Toy(self.home.parent / "toy")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Beside]:
    folder = tmp_path_factory.mktemp("beside")
    script = folder / "begin.py"
    script.write_text(BEGIN)
    config = f'[engines.local]\n[engines.far]\nkind = "toy"\nfolder = "{folder / "toy"}"\n'
    made = Beside(folder / "home", config=config, env={"PYTHONPATH": str(HERE)})
    made.toy.nodes(*NODES)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(KINDS, "toy", "toy")
        patch.setattr(sys, "executable", str(_python(folder, script)))
        made.start()
        try:
            until(lambda: any(one["name"] == "m1" for one in made.get("/v1/nodes")["nodes"]), "the cluster's machines")
            yield made
        finally:
            stop_everything(made)


def _python(folder: Path, script: Path) -> Path:
    """`python -m muster ...` with one kind of engine more; anything else is left alone."""
    path = folder / "python"
    real = sys.executable
    path.write_text(
        f'#!/bin/sh\nif [ "$1 $2" = "-m muster" ]; then shift 2; exec {real} {script} "$@"; fi\nexec {real} "$@"\n'
    )
    path.chmod(0o755)
    return path


@pytest.fixture
def muster(server: Beside, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Muster:
    for name in ("MUSTER_URL", "MUSTER_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("MUSTER_HOME", str(server.home))
    monkeypatch.setenv("COLUMNS", "200")

    def call(*words: str) -> tuple[int, str]:
        capsys.readouterr()
        code = main(words)
        captured = capsys.readouterr()
        return code, captured.out + captured.err

    return call


def why(server: Beside, job: str) -> dict[str, Any]:
    found: dict[str, Any] = server.get(f"/v1/jobs/{job}/why")
    return found


def handed(server: Beside, job: str) -> dict[str, Any]:
    found: dict[str, Any] = until(lambda: server.toy.gangs().get(f"{job}.1"), f"{job} to be handed over")
    return found


def test_a_job_on_the_cluster_and_what_is_shown_of_it(server: Beside, muster: Muster) -> None:
    spec = {"pool": "gpu", "workdir": None, "gpus": 2, "num_nodes": 2, "image": "train:1"}
    job = server.submit("nobody-has-this", **spec, slurm={"qos": "no"}, kubernetes={"queue": "no"})["id"]
    gang = handed(server, job)
    assert (gang["pool"], gang["workers"], gang["image"], gang["options"]) == ("gpu", 2, "train:1", {})
    found = until(lambda: (told := why(server, job))["reason"] and told, "the cluster's own word")
    assert (found["reason"]["code"], found["reason"]["message"]) == ("engine_queue", "others go first")
    assert found["reason"]["data"]["engine_reason"] == "Priority"

    server.toy.becomes(f"{job}.1", "running", node="m1")
    running = server.wait(job, "running")
    until(lambda: server.job(job)["nodes"] == ["m1", "m1"], "the machine to be known")
    assert running["pool"] == "gpu"
    nodes = {one["name"]: one for one in server.get("/v1/nodes")["nodes"]}
    assert nodes["m1"]["jobs"] == [job]
    assert (nodes["m1"]["engine"], nodes["m1"]["role"]) == ("far", "machine")
    assert nodes["m2"]["health"] == "suspect"
    assert not any(one["role"] == "slot" for one in nodes.values())
    code, said = muster("nodes")
    assert code == 0
    assert "engine" in said.splitlines()[0]
    assert "gpu/1" not in said

    code, said = muster("engines")
    assert code == 0
    assert [line.split()[:3] for line in said.splitlines()[1:]] == [["local", "local", "ok"], ["far", "toy", "ok"]]
    code, said = muster("engines", "show", "far", "--json")
    view = json.loads(said)
    assert (view["pools"], view["nodes"], view["healthy"], view["gangs"]["running"]) == (["gpu"], 2, 1, 1)
    assert muster("engines", "show", "far")[0] == 0

    server.toy.becomes(f"{job}.1", "ended", node="m1", outcome="succeeded")
    assert server.wait(job)["phase"] == "succeeded"
    until(lambda: not server.toy.gangs(), "the cluster to be told to forget it")
    (attempt,) = server.get(f"/v1/jobs/{job}/attempts")["attempts"]
    began, ended = attempt["running_at"], attempt["ended_at"]
    server.toy.keep(job, 1, "m1", began, ended, 4 * (ended - began))
    code, said = muster("engines", "reconcile", "far")
    assert code == 0, said
    assert said.startswith("1 attempts and 1 records of far agree.")
    server.toy.keep(job, 1, "m2", began, ended, 4 * (ended - began))
    code, said = muster("engines", "reconcile", "far")
    assert code == 1
    assert said.splitlines()[1].split() == [job, "1", "nodes", "m1", "m2"]


def test_a_drain_reaches_the_cluster(server: Beside, muster: Muster) -> None:
    assert muster("nodes", "drain", "m1", "--reason", "new fan")[0] == 0
    until(lambda: server.toy.calls("drain"), "the drain")
    assert server.toy.calls("drain")[0] == ["m1", "new fan"]  # and perhaps once more, until the cluster shows it
    assert muster("nodes", "undrain", "m1")[0] == 0
    until(lambda: server.toy.calls("undrain"), "the undrain")
    assert muster("nodes", "drain", "gpu/1")[0] == 1


def test_an_engine_that_is_away_loses_no_job_and_gets_none(server: Beside, muster: Muster) -> None:
    first = server.submit("true", pool="gpu", gpus=2, workdir=None)["id"]
    handed(server, first)
    server.toy.becomes(f"{first}.1", "running", node="m1")
    server.wait(first, "running")
    server.toy.down()
    until(lambda: not server.get("/v1/engines/far")["ok"], "it to be found away")
    until(lambda: server.get("/v1/engines/far")["away"], "nothing to be planned there")
    second = server.submit("true", pool="gpu", gpus=2, workdir=None)["id"]
    found = until(lambda: (told := why(server, second))["reason"]["code"] == "engine_away" and told, "its reason")
    assert "'far' of pool 'gpu' can't be reached: the toy cluster does not answer" in found["reason"]["message"]
    _, said = muster("engines")
    assert "away" in said
    assert "Wake it." in said
    server.submit("true", name="here")
    assert server.wait("here")["phase"] == "succeeded"

    server.kill()
    server.start()  # while the cluster is away
    assert server.wait(first, "running")["attempt"] == 1
    assert not any(event["kind"] == "node.left" for event in server.get("/v1/events", job="")["events"])
    server.toy.down(False)
    handed(server, second)
    server.toy.becomes(f"{first}.1", "ended", node="m1", outcome="succeeded")
    assert (server.wait(first)["phase"], server.job(first)["attempt"]) == ("succeeded", 1)
    assert server.toy.calls("launch")[-2:] == [[first, 1], [second, 1]]
    server.post(f"/v1/jobs/{second}/stop")
    server.wait(second)


def test_only_superusers_are_told_what_is_wrong(server: Beside, muster: Muster) -> None:
    token = server.post("/v1/tokens", {"name": "ada", "user": "ada", "role": "member"})["token"]
    with server.http(token) as http:
        (view,) = [one for one in http.get("/v1/engines").json()["engines"] if one["name"] == "far"]
        assert (view["ok"], view["detail"], view["hint"]) == (True, "", "")
        assert http.get("/v1/engines/far/doctor").status_code == 403
        assert http.get("/v1/engines/far/usage").status_code == 403
        assert http.get("/v1/engines/far/reconcile").status_code == 403
    assert server.get("/v1/engines/far")["detail"] == "the folder toy"
    assert server.get("/v1/engines/far/usage")["usage"][0]["state"] == "COMPLETED"
    code, said = muster("engines", "usage", "far", "--since", "1d")
    assert code == 0
    assert said.splitlines()[1].split()[1:3] == ["1", "COMPLETED"]
    assert muster("engines", "usage", "local")[0] == 1


def test_what_each_pool_would_offer_is_told(server: Beside, muster: Muster, tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_text("pools: {local: {price: 0.5}, gpu: {burst: 10m, price: 2}}")
    (tmp_path / "job.yaml").write_text("run: sleep 1000\nnum_nodes: 1\n")
    (tmp_path / "two.yaml").write_text("run: sleep 1000\nnum_nodes: 2\nworkdir: .\n")
    assert muster("queue", "apply", str(tmp_path / "policy.yaml"))[0] == 0
    try:
        assert "It is for bursts" in muster("queue", "rules")[1]
        code, said = muster("submit", "--dry-run", str(tmp_path / "job.yaml"))
        assert code == 0
        assert "would start  at once, on local-0 in pool local" in said
        assert "in pool local (local): at once, 0.50 an hour" in said
        assert "in pool gpu (far): about" in said
        assert "2.00 an hour; open to it from" in said
        code, said = muster("submit", "--dry-run", str(tmp_path / "two.yaml"), "--json")
        view = json.loads(said)
        assert (view["starts_now"], [one["pool"] for one in view["offers"]]) == (False, ["gpu", "local"])
        assert view["offers"][1]["why_not"] == "2 such nodes are needed, and it has 1"
        job = server.submit("true", num_nodes=2, workdir=None)["id"]
        code, said = muster("why", job)
        assert code == 0
        assert "pool 'gpu' opens to it in 10 min; it would cost about 4.00 an hour there" in said
        assert "in pool local (local): 2 such nodes are needed, and it has 1" in said
        assert "in pool gpu (far)" in muster("queue", "forecast", job)[1]
        server.post(f"/v1/jobs/{job}/stop")
    finally:
        (tmp_path / "policy.yaml").write_text("{}")
        assert muster("queue", "apply", str(tmp_path / "policy.yaml"))[0] == 0


def test_a_pool_that_grows_takes_jobs_before_it_has_nodes(server: Beside) -> None:
    server.toy.grows("cloud", 3)
    until(lambda: server.get("/v1/engines/far")["pools"] == ["cloud", "gpu"], "the pool")
    job = server.submit("true", pool="cloud", gpus=2, num_nodes=3, workdir=None)["id"]
    until(lambda: server.toy.calls("want")[-1:] == [[["cloud", 2, 3]]], "the cluster to be told who waits")
    with server.http() as http:
        body = {"spec": {"run": "true", "pool": "cloud", "gpus": 2, "num_nodes": 4}}
        refused = http.post("/v1/jobs", json=body)
    assert refused.json()["error"]["reasons"][0]["code"] == "never_fits"
    server.toy.nodes(*NODES, *[node(f"c{number}", "cloud") for number in range(3)])
    gang = handed(server, job)
    assert sorted(gang["seats"]) == ["c0", "c1", "c2"]
    until(lambda: server.toy.calls("want")[-1] == [], "nobody to wait any more")
    server.post(f"/v1/jobs/{job}/stop")
    assert server.wait(job)["phase"] == "stopped"


def test_engines_of_the_command_line_have_the_settings_of_their_table(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text('[engines.slurm]\nroot = "/shared"\n')
    loaded = Settings.load(tmp_path, {"engines": ["ray", "slurm"]})
    assert loaded.engines == {"ray": {}, "slurm": {"root": "/shared"}}
    assert Settings.load(tmp_path, {}).engines == {"slurm": {"root": "/shared"}}
    (tmp_path / "config.toml").write_text("")
    assert Settings.load(tmp_path, {"engines": ["ray"]}).engines == {"ray": {}}
    assert Settings.load(tmp_path, {}).engines == {}


def test_the_doctor_looks_at_an_engine_with_a_server_and_at_last_without(server: Beside, muster: Muster) -> None:
    code, said = muster("doctor", "--engine", "far")
    assert code == 0
    assert "ok    folder: toy" in said
    assert "warn  nodes: 9 nodes" in said
    server.toy.down()
    code, said = muster("doctor", "--engine", "far", "--json")
    assert code == 1
    assert [one["status"] for one in json.loads(said)["checks"]] == ["ok", "fail"]
    server.toy.down(False)
    told = 'Add the table `[engines.nobody]`, with `kind` set to `"ray"` or `"slurm"` or `"kubernetes"`'
    code, said = muster("doctor", "--engine", "nobody")
    assert code == 1
    assert told in said
    code, said = muster("doctor", "--engine", "slurm")
    assert code == 1
    assert "Add the table `[engines.slurm]` to config.toml" in said
    assert "`muster up --engine slurm`; docs/slurm.md has its settings" in said
    assert "Did you mean `slurm`?" in muster("doctor", "--engine", "slrum")[1]
    assert muster("doctor", "--engine", "local")[0] == 0
    server.stop()
    code, said = muster("doctor", "--engine", "far")
    assert code == 0
    assert "looked at from here" in said
    assert "warn  nodes: 9 nodes" in said
    code, said = muster("doctor", "--engine", "nobody")
    assert code == 1
    assert told in said
