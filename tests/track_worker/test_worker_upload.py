"""A launcher ships the files of its ranks, its hardware and its environment; whatever is killed, once and all of it."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ingest_kit import PATIENCE, wait_for
from launcher_kit import LauncherFixture, launcher_fixture, read_exit
from muster.control.decode import decode

GIVE = f"""{sys.executable} - <<'END'
from muster import runtime
for n in range(3):
    open("file", "w").write(f"content {{n}}")
    runtime.artifact("file", f"out/{{n}}.txt")
runtime.text("said", 1, "hello")
runtime.image("drawn", 2, memoryview(bytes(12)).cast("B", [2, 2, 3]))
END
"""


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LauncherFixture]:
    monkeypatch.setenv("MUSTER_HOME", str(tmp_path / "home"))
    with launcher_fixture(tmp_path) as made:
        yield made


def once(docs: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """By id, as the server keeps them: what was sent twice is the same."""
    found: dict[str, dict[str, Any]] = {}
    for doc in docs:
        assert found.setdefault(doc["id"], doc) == doc
    return found


def arrived(shop: LauncherFixture, rank: int = 0) -> dict[str, bytes]:
    docs = once(shop.server.documents("artifact", rank)).values()
    assert all(len(shop.server.blobs[doc["digest"]]) == doc["bytes"] for doc in docs)
    return {doc["path"]: shop.server.blobs[doc["digest"]] for doc in docs}


WANTED = {f"out/{n}.txt": f"content {n}".encode() for n in range(3)}


def test_files_arrive_before_their_documents_and_are_removed(shop):
    folder = shop.folder(GIVE)
    assert shop.run(folder).reason == "completed"
    assert arrived(shop) == WANTED
    (drawn,) = shop.server.documents("media")
    assert (drawn["kind"], drawn["name"], drawn["rank"]) == ("image", "drawn", 0)
    assert shop.server.blobs[drawn["digest"]].startswith(b"\x89PNG")
    (said,) = shop.server.documents("media", stream="spool")
    assert said["data"] == {"text": "hello"}
    assert not list((folder / "rank-0" / "files").iterdir())
    assert (folder / "done").exists()


def test_files_of_every_rank_are_told_by_the_first(shop):
    run = f'{sys.executable} -c \'from muster import runtime as r; open(str(r.rank()), "w").write("x"); '
    folder = shop.folder(run + "r.artifact(str(r.rank()))'", nproc=2)
    assert shop.run(folder).reason == "completed"
    assert {doc["path"]: doc["rank"] for doc in shop.server.documents("artifact", 0)} == {"0": 0, "1": 1}
    assert shop.server.documents("artifact", 1) == []
    assert len(shop.server.puts) == 1  # the same content is sent once


def test_the_end_is_told_while_files_still_wait_and_the_launcher_stays_for_them(shop):
    shop.server.blob_fault = lambda digest: 503
    folder = shop.folder(GIVE)
    launcher = shop.start(folder)
    wait_for(lambda: shop.server.attempt().exits)
    wait_for(lambda: len(shop.server.puts) > 1)
    assert launcher.poll() is None
    assert not (folder / "done").exists()
    shop.server.blob_fault = lambda digest: None
    assert launcher.wait(PATIENCE) == 0
    assert arrived(shop) == WANTED


def test_a_server_that_is_away_gets_everything_when_it_is_back(shop):
    shop.server.go_away()
    folder = shop.folder(GIVE)
    launcher = shop.start(folder)
    wait_for(lambda: read_exit(folder))
    shop.server.come()
    assert launcher.wait(PATIENCE) == 0
    assert arrived(shop) == WANTED


@pytest.mark.parametrize("point", ["after_upload", "after_document", "before_exit_json", "after_exit_json"])
def test_a_launcher_that_is_killed_loses_and_doubles_no_file(shop, point):
    folder = shop.folder(GIVE)
    assert shop.start(folder, MUSTER_FAULT_LAUNCHER=point).wait(PATIENCE) == -signal.SIGKILL
    shop.run(folder, "--recover")
    assert arrived(shop) == WANTED
    assert len(once(shop.server.documents("media"))) == 1


@pytest.mark.parametrize(
    "note",
    [
        {"doc": {"type": "artifact"}, "mtime_ns": 1},
        {"doc": {"type": "artifact", "about": "x"}, "mtime_ns": 1, "size": 99},
        {"doc": {"type": "artifact"}, "pid": "me"},
        {"doc": "an artifact"},
        ["doc"],
        {"doc": {"type": "artifact"}, "source": "/a\0b"},
    ],
)
def test_a_note_that_makes_no_sense_costs_its_own_file_and_no_other(shop, note):
    folder = shop.folder(GIVE)
    odd = folder / "rank-0" / "files"
    odd.mkdir(parents=True, exist_ok=True)
    (odd / "0.json").write_text(json.dumps(note))
    if "source" not in note:
        (odd / "0.data").write_text("x")
    assert shop.run(folder).reason == "completed"
    assert WANTED.items() <= arrived(shop).items()
    assert (folder / "done").exists()


def test_a_rank_that_is_killed_has_its_files_shipped(shop):
    folder = shop.folder(GIVE + "kill -9 $$")
    assert shop.run(folder).outcome == "failed"
    assert arrived(shop) == WANTED


def test_what_the_server_refuses_is_told_and_the_rest_goes_on(shop):
    bad = hashlib.sha256(b"content 1").hexdigest()
    shop.server.blob_fault = lambda digest: 413 if digest == bad else None
    folder = shop.folder(GIVE)
    assert shop.run(folder).reason == "completed"
    assert arrived(shop) == {name: data for name, data in WANTED.items() if name != "out/1.txt"}
    (note,) = shop.server.documents("note")
    assert "out/1.txt" in note["text"]
    assert "413" in note["text"]


def test_a_copy_that_its_rank_did_not_finish_comes_from_the_source(shop):
    """As a rank leaves it that was killed while its thread copied from another disk."""
    folder = shop.folder("true")
    files = folder / "rank-0" / "files"
    files.mkdir(parents=True)
    for name, there in (("there", True), ("gone", False)):
        source = shop.root / name
        if there:
            source.write_bytes(b"the original")
        doc = {"id": name, "time": 1.0, "type": "artifact", "path": name, "kind": "file", "about": {}}
        note = {"doc": doc, "source": str(source), "size": 12, "mtime_ns": 1, "pid": 2**22 + 1, "start_ticks": 1}
        (files / f"{name}.json").write_text(json.dumps(note))
    assert shop.run(folder).reason == "completed"
    assert arrived(shop) == {"there": b"the original"}
    (note,) = shop.server.documents("note")
    assert "gone" in note["text"]


def test_the_environment_of_a_worker_is_captured_once_even_for_the_shortest(shop):
    folder = shop.folder("true", envs={"NCCL_DEBUG": "INFO", "SEED": "7", "PRIVATE": "hidden"}, nproc=2)
    assert shop.run(folder).reason == "completed"
    (doc,) = shop.server.documents("environment")
    assert doc["python"]["version"].count(".") == 2
    assert "pytest" in doc["packages"] or doc["packages"]
    assert doc["host"]["cpus"] >= 1
    assert (doc["env"]["NCCL_DEBUG"], doc["seeds"]["SEED"]) == ("INFO", "7")
    assert "PRIVATE" not in doc["env"]
    assert shop.server.documents("environment", 1) == []


def test_secrets_enter_no_document(shop):
    shop.server.secrets = {"HF_HUB_THING": "s3cr3t-value", "MY_SEED": "s3cr3t-seed"}
    envs = {"CUDA_NOTE": "has s3cr3t-value in it", "TORCH_AUTH_TOKEN": "t0k3n"}
    folder = shop.folder("true", secrets=("HF_HUB_THING", "MY_SEED"), envs=envs)
    assert shop.run(folder).reason == "completed"
    (doc,) = shop.server.documents("environment")
    assert doc["packages"]
    text = json.dumps(doc)
    assert not [word for word in ("s3cr3t-value", "s3cr3t-seed", "t0k3n") if word in text]


def test_hardware_is_sampled_for_every_rank_while_it_runs(shop):
    spin = f"{sys.executable} -c 'import os, time\nwhile not os.path.exists(\"stop\"): pass'"
    folder = shop.folder(spin, nproc=2)
    launcher = shop.start(folder)

    def columns(rank: int) -> dict[str, Any]:
        return dict(decode(bytes(shop.server.attempt().streams.get((rank, "host"), b"")), {}).columns)

    for rank in (0, 1):
        found = wait_for(lambda rank=rank: columns(rank))
        assert 0.05 < found["system/cpu"].values[0] < 4
        assert found["system/memory"].values[0] > 1e6
        assert {"system/disk_read", "system/disk_write"} <= set(found)
        assert found["system/cpu"].steps[0] in range(60)
    (shop.root / "work" / "stop").touch()
    assert launcher.wait(PATIENCE) == 0


def test_a_host_stream_goes_on_after_its_launcher_died(shop):
    folder = shop.folder("echo up; exec sleep 631")
    launcher = shop.start(folder)
    wait_for(lambda: shop.server.documents("environment"))
    os.kill(launcher.pid, signal.SIGKILL)
    launcher.wait()
    (folder / "rank-0" / "files").mkdir(exist_ok=True)
    (folder / "rank-0" / "files" / "1.data").write_bytes(b"late")
    doc = {"id": "1", "time": 1.0, "type": "artifact", "path": "late", "kind": "file", "about": {}}
    (folder / "rank-0" / "files" / "1.json").write_text(json.dumps({"doc": doc}))
    shop.run(folder, "--recover")
    assert arrived(shop) == {"late": b"late"}
    assert len(shop.server.documents("environment")) == 1
