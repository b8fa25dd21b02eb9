"""From a submission with its snapshot, through artifacts, to `muster runs reproduce`, on a real server."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from content_kit import sha

from live import LiveServer, until
from muster import Client
from muster.cli.main import main
from muster.cli.runs_reproduce import _spec
from muster.client import artifact_calls
from muster.client.reproduce import Reproduction, differences
from muster.core.errors import Invalid, NotFound, Unavailable
from muster.core.spec import JobSpec, dump_job
from muster.core.spec_engines import KubernetesSection


@pytest.fixture
def client(server: LiveServer, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("MUSTER_HOME", str(server.home))
    monkeypatch.delenv("MUSTER_URL", raising=False)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    with Client(home=server.home) as made:
        yield made


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    (folder / "lib").mkdir(parents=True)
    (folder / "main.sh").write_text("#!/bin/sh\ncat lib/words.txt; echo seed $SEED\n")
    (folder / "main.sh").chmod(0o755)
    (folder / "lib" / "words.txt").write_text("then\n")
    (folder / ".env").write_text("TOKEN=1\n")
    monkeypatch.chdir(folder)
    return folder


def muster(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    """Runs a verb of `muster runs` and gives its JSON."""
    capsys.readouterr()
    main(["runs", *words, "--json"])
    return json.loads(capsys.readouterr().out)


def reproduce(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    return muster(capsys, "reproduce", *words)


def artifacts(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    return muster(capsys, "artifacts", *words)


def test_the_same_files_run_again(client: Client, server: LiveServer, project: Path, capsys) -> None:
    job = client.submit({"name": "words", "run": "./main.sh", "workdir": ".", "envs": {"SEED": "1"}})
    assert server.wait(job.id)["phase"] == "succeeded"
    (project / "lib" / "words.txt").write_text("now\n")  # the folder has moved on
    shutil.rmtree(project / "lib")
    planned = reproduce(capsys, job.id, "--dry-run")
    assert planned["job"] is None
    assert not Path(planned["folder"]).exists()
    made = reproduce(capsys, job.id, "-o", "envs.SEED=2")
    again = server.wait(made["job"]["id"])
    assert again["phase"] == "succeeded"
    assert server.output(again["id"]) == "then\nseed 2\n"
    folder = Path(made["folder"])
    assert folder.parent == server.home / "reproduced"
    assert (folder / "main.sh").stat().st_mode & 0o777 == 0o755
    spec = client.spec(again["id"])["spec"]
    assert (spec["tags"]["reproduces"], spec["workdir"]) == (job.id, str(folder))
    assert client.code(again["id"])["tree"] == client.code(job.id)["tree"]
    whys = {one["what"]: one["why"] for one in made["differences"]}
    assert ".env" in whys["code"]
    (folder / "lib" / "words.txt").write_text("touched\n")  # what somebody changed there is put right
    (folder / "extra").write_text("x")
    third = reproduce(capsys, job.id)
    assert any("beside the snapshot's" in one["why"] for one in third["differences"])
    assert server.output(server.wait(third["job"]["id"])["id"]) == "then\nseed 1\n"


def test_a_dry_run_on_the_same_machine_finds_no_other_environment(client: Client, server, project, capsys) -> None:
    """Its folder is not written, so the Python of the command is asked elsewhere."""
    job = client.submit({"run": f"{sys.executable} -c 'print(1)'", "workdir": "."})
    assert server.wait(job.id)["phase"] == "succeeded"
    until(lambda: client.reproduction(job.id)["environment"].get("packages"), "the environment to be recorded")
    found = reproduce(capsys, job.id, "--dry-run")
    assert not Path(found["folder"]).exists()
    assert {one["what"] for one in found["differences"]} == {"code", "seeds"}, found["differences"]  # .env, and no seed


def test_a_python_that_can_not_be_asked_is_one_difference() -> None:
    then = {"python": {"version": "3.11.2"}, "packages": {f"p{n}": "1" for n in range(167)}}
    then |= {"devices": [{"name": "H100"}] * 2, "host": {}}
    known = {"run": "a-1", "attempts": 1, "seeds": {"SEED": "1"}, "environment": {**then, "env": {}}, "files": {}}
    known |= {"spec": {}, "code": {}, "data": []}
    here = {"python": {}, "packages": {}, "host": {}, "devices": [{"name": "H100"}] * 8}
    told = differences(Reproduction("a-1", known, Path("/x")), here, [])
    assert [one["what"] for one in told] == ["environment", "kernels"]
    fewer = {**here, "python": then["python"], "packages": then["packages"], "devices": [{"name": "H100"}]}
    told = differences(Reproduction("a-1", known, Path("/x")), fewer, [])
    assert [one["why"] for one in told if one["what"] == "hardware"] == ["devices: H100, H100 then, H100 here"]


def test_a_second_submission_sends_nothing_but_itself(client: Client, project: Path, monkeypatch) -> None:
    client.submit({"run": "true", "workdir": "."})
    sent: list[str] = []
    real = client._transport._send
    monkeypatch.setattr(client._transport, "_send", lambda *a, **k: sent.append(f"{a[0]} {a[1]}") or real(*a, **k))
    client.submit({"run": "true", "workdir": "."})
    assert sent == ["POST /v1/blobs/missing", "POST /v1/jobs"]
    sent.clear()
    client.submit_many([{"run": f"echo {n}", "workdir": "."} for n in range(5)])
    assert sent == ["POST /v1/blobs/missing", "POST /v1/jobs/batch"]


def test_without_a_snapshot(client: Client, server: LiveServer, project: Path, monkeypatch, capsys) -> None:
    off = client.submit({"run": "true", "workdir": "."}, snapshot=False)
    monkeypatch.setenv("MUSTER_SNAPSHOT", "0")
    also = client.submit({"run": "true", "workdir": "."})
    nowhere = client.submit({"run": "true"})
    for job in (off, also, nowhere):
        assert client.code(job.id)["files"] is None
        assert client.artifacts(job.id) == []
    made = reproduce(capsys, off.id, "--dry-run")
    assert made["folder"] is None
    assert any("no snapshot was kept" in one["why"] for one in made["differences"])


def test_a_file_that_changes_while_it_is_sent(client: Client, project: Path, monkeypatch) -> None:
    (project / "main.sh").write_text("seen by nobody before")
    real, calls = artifact_calls.upload, []

    async def upload(to: Any, content: dict[str, Any], tree: str = "") -> None:
        if not calls:
            (project / "main.sh").write_text("changed")
        calls.append(1)
        await real(to, content, tree)

    monkeypatch.setattr(artifact_calls, "upload", upload)
    code = client.capture(project)
    assert code is not None
    assert (code["files"], len(calls)) == (2, 3)


def test_a_snapshot_never_fails_a_submission(client: Client, project: Path, monkeypatch) -> None:
    async def broken(to: object, content: object, tree: str = "") -> None:
        raise Unavailable("The disk is full.", "Free some.")

    monkeypatch.setattr(artifact_calls, "upload", broken)
    job = client.submit({"run": "true", "workdir": "."})
    (event,) = client.events(job=job.id, kind="job.submitted")
    assert event["data"]["code"]["tree"] == ""
    assert "disk is full" in " ".join(event["data"]["code"]["notes"])


def test_artifacts_of_a_run(client: Client, project: Path, capsys, tmp_path: Path) -> None:
    job = client.submit({"run": "true", "workdir": "."}, snapshot=False)
    artifacts(capsys, job.id, "put", "main.sh", "lib", "--to", "kept")
    listed = artifacts(capsys, job.id)["artifacts"]
    assert [one["path"] for one in listed] == ["kept/lib/words.txt", "kept/main.sh"]
    artifacts(capsys, job.id, "put", "main.sh", "--to", "top.sh", "--about", "a script")
    got = artifacts(capsys, job.id, "get", "--to", str(tmp_path / "got"))["files"]
    assert (tmp_path / "got" / "kept" / "lib" / "words.txt").read_text() == "then\n"
    assert len(got) == 3
    artifacts(capsys, job.id, "get", "kept/lib", "--to", str(tmp_path / "part"))
    assert (tmp_path / "part" / "lib" / "words.txt").read_text() == "then\n"
    assert artifacts(capsys, job.id, "rm", "kept", "--dry-run")["removed"] == ["kept/lib/words.txt", "kept/main.sh"]
    assert len(artifacts(capsys, job.id, "rm", "kept")["removed"]) == 2
    assert artifacts(capsys, "--collect", "--dry-run")["projects"] == []
    assert [one["doc"]["about"] for one in artifacts(capsys, job.id)["artifacts"]] == ["a script"]


@pytest.mark.parametrize("words", [["put"], ["rm"], ["fly"], ["get", "nothing"], ["put", "nowhere.txt"],
    ["put", "main.sh", "--to", "../up"], ["--collect"]])  # fmt: skip
def test_mistakes_are_told(client: Client, project: Path, capsys, words: list[str]) -> None:
    job = client.submit({"run": "true"}, snapshot=False)
    assert artifacts(capsys, job.id, *words)["error"]["hint"]


def test_a_sharded_checkpoint_is_recorded_as_one(client: Client, project: Path, capsys) -> None:
    job = client.submit({"run": "true"}, snapshot=False)
    folder = project / "step-40"
    folder.mkdir()
    for name in ("__0_0.distcp", "__1_0.distcp", ".metadata"):
        (folder / name).write_bytes(name.encode())
    artifacts(capsys, job.id, "put", "step-40", "--kind", "checkpoint", "--step", "40")
    found = {one["path"]: one for one in client.artifacts(job.id)}
    assert len(found) == 3
    head = found["step-40/.metadata"]["doc"]
    assert (head["format"], head["files"], head["step"]) == ("torch distributed checkpoint", 3, 40)
    assert "torch.distributed.checkpoint.load" in head["load"]
    assert {one["kind"] for one in found.values()} == {"checkpoint"}


def test_damage_on_the_way_down(client: Client, server: LiveServer, project: Path, tmp_path: Path) -> None:
    job = client.submit({"run": "true"}, snapshot=False)
    client.put_artifact(job.id, "main.sh")
    digest = sha((project / "main.sh").read_bytes())
    kept = server.home / "blobs" / digest[:2] / digest
    kept.write_bytes(kept.read_bytes()[::-1])
    with pytest.raises(Unavailable, match="damaged"):
        client.get_artifact(job.id, "main.sh", tmp_path / "x")
    assert not (tmp_path / "x").exists()
    assert list(tmp_path.glob(".x*")) == []
    with pytest.raises(NotFound):
        client.get_artifact(job.id, "nothing", tmp_path / "x")
    with pytest.raises(Invalid):
        client.read_artifact(job.id, "../../secret")


def test_what_can_not_be_the_same() -> None:
    then = {"python": {"version": "3.11.2"}, "packages": {"torch": "2.11", "same": "1", "old": "1"}, "driver": "550"}
    then |= {"devices": [{"name": "H100"}], "env": {}, "host": {"cpu": "x"}}
    here = {"python": {"version": "3.12.1"}, "packages": {"torch": "2.13", "same": "1", "new": "2"}, "devices": []}
    here |= {"host": {"cpu": "x"}}
    known = {"run": "a-1", "attempts": 3, "seeds": {}, "environment": then, "files": {}}
    known["spec"] = {"secrets": ["HF_TOKEN"], "min_nodes": 2, "num_nodes": 4, "data": ["c4@v3"]}
    known["code"] = {"tree": "t", "notes": ["left out: big.bin"]}
    known["data"] = [
        {"name": "mix", "digest": "a" * 64, "newest": "b" * 64},
        {"name": "ok", "digest": "c", "newest": "c"},
    ]
    found = differences(Reproduction("a-1", known, Path("/x")), here, [])
    said = "\n".join(f"{one['what']}: {one['why']}" for one in found)
    for line in (
        "code: left out: big.bin", "environment: Python: 3.11.2 then, 3.12.1 here", "data: mix: it has changed",
        "hardware: driver: 550 then, none here", "hardware: devices: H100 then, none here", "data: c4@v3: no digest",
        "environment: package torch: 2.11 then, 2.13 here", "environment: package new: none then, 2 here",
        "environment: package old: 1 then, none here", "seeds: none is known", "kernels: GPU", "secrets: HF_TOKEN",
        "size: it takes 2 to 4 nodes", "restarts: it took 3 attempts",
    ):  # fmt: skip
        assert line in said, said
    assert "same" not in said
    assert "ok:" not in said


def test_the_command_line_has_the_option(client: Client, server: LiveServer, project: Path) -> None:
    command = [sys.executable, "-m", "muster", "--home", str(server.home), "run", "-d", "--no-snapshot", "true"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=project, check=True)
    assert client.code(done.stdout.split()[1])["files"] is None


def test_what_is_passed_on_as_it_is_keeps_its_types(tmp_path: Path) -> None:
    pod = {"hostNetwork": True, "hostname": "7", "terminationGracePeriodSeconds": 45}
    spec = JobSpec(name="a", run="x", envs={"A": "true"}, tags={"b": "1"}, kubernetes=KubernetesSection(pod=pod))
    made = Reproduction("a-1", {"yaml": dump_job(spec)}, tmp_path)
    again = _spec(made, {"envs": {"SEED": "2"}, "tags": {"c": "2"}})
    assert again == spec.model_copy(
        update={
            "workdir": str(tmp_path),
            "envs": {"A": "true", "SEED": "2"},
            "tags": {"b": "1", "c": "2", "reproduces": "a-1"},
        }
    )
