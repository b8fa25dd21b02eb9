"""Launchers whose run starts from another run's checkpoint: what ranks and the server are told, who waits, what a kill
leaves."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ingest_kit import PATIENCE, wait_for
from launcher_kit import LauncherFixture, launcher_fixture, order
from muster import wire
from muster.control.decode import decode
from muster.runtime import checkpoint, launch_start, processes, sandbox

SHOWS = f"""exec {sys.executable} -c '
import os
from muster import runtime
found = runtime.last_checkpoint()
print("from", found.name, (found / "state").read_text(), os.environ["MUSTER_START_STEP"], flush=True)
'"""
SHOWS_ENVS = "echo from $MUSTER_START_FROM step ${MUSTER_START_STEP-none} known ${MUSTER_CHECKPOINT_KNOWN-none}"


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LauncherFixture]:
    for name in (wire.RANK, wire.RANK_DIR, wire.CHECKPOINT_DIR, wire.CHECKPOINT_KEEP, wire.ATTEMPT):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "kept").mkdir()
    with launcher_fixture(tmp_path) as made:
        yield made


def save(shop: LauncherFixture, *steps: int) -> None:
    for step in steps:
        with checkpoint(step, shop.root / "kept" / "gpt-1") as at:
            (at / "state").write_text(f"state of {step}")


def folder(shop: LauncherFixture, run: str, step: int | None = None, **changes: Any) -> Path:
    kept = {"checkpoint_dir": str(shop.root / "kept" / "tune-2"), "start": wire.Start("gpt-1", step, share=True)}
    return shop.folder(run, **{**kept, **changes})


def told(shop: LauncherFixture, rank: int = 0) -> list[dict[str, Any]]:
    stream = bytes(shop.server.attempt().streams.get((rank, "host"), b""))
    return [doc for doc in decode(stream, {}).docs if doc["type"] == "taken"]


def test_a_launch_is_written_and_read_whole(shop: LauncherFixture) -> None:
    for start in (None, wire.Start("gpt-1"), wire.Start("gpt-1", 7, "s3://b/x", share=True)):
        launch = shop.launch("true", start=start)
        assert wire.Launch.from_json(launch.to_json()) == launch
    older = json.loads(shop.launch("true").to_json())
    del older["start"]
    assert wire.Launch.from_json(json.dumps(older)).start is None


def test_all_workers_start_from_what_the_first_takes_and_it_alone_tells_the_server(shop: LauncherFixture) -> None:
    save(shop, 100, 200)
    second = folder(shop, SHOWS, num_nodes=2, worker=1)
    waiting = shop.start(second)
    wait_for(lambda: (second / "launcher.json").exists(), "the second launcher")
    first = folder(shop, SHOWS, num_nodes=2)
    assert shop.run(first).outcome == "succeeded", shop.server.log()
    assert waiting.wait(PATIENCE) == 0
    for rank in (0, 1):
        assert "from step-000000200 state of 200 200\n" in shop.server.log(rank)
    assert "starts from step 200 of gpt-1, whose files are" in shop.server.log(0)
    (doc,) = told(shop)
    how = "copy" if os.geteuid() == 0 else "link"
    assert (doc["step"], doc["how"], doc["bytes"]) == (200, how, len("state of 200"))
    assert doc["path"] == str(shop.root / "kept" / "tune-2" / "step-000000200")
    assert told(shop, 1) == []


def test_a_worker_that_waits_for_the_first_leaves_when_it_is_told_to(shop: LauncherFixture) -> None:
    waiting = folder(shop, SHOWS, num_nodes=2, worker=1)
    launcher = shop.start(waiting)
    wait_for(lambda: (waiting / "launcher.json").exists(), "the launcher")
    order(waiting, launcher.pid, wire.Command(1, "stop", "user_stop", grace=5.0))
    assert launcher.wait(PATIENCE) == 0
    ended = shop.ended(waiting)
    assert (ended.outcome, ended.reason, ended.ranks) == ("stopped", "user_stop", ())


def test_what_is_not_there_ends_the_worker_before_a_rank_starts(shop: LauncherFixture) -> None:
    save(shop, 100)
    for step, where in ((150, "it has 100"), (None, "gpt-9 is not there")):
        changes = {} if step else {"start": wire.Start("gpt-9", share=True), "attempt": 2}
        ended = shop.run(folder(shop, "echo ran", step, **changes))
        assert (ended.outcome, ended.reason, ended.ranks) == ("failed", "start_missing", ())
        assert "on node local-0: " in ended.detail
        assert where in ended.detail
    assert "ran" not in shop.server.log()
    assert told(shop) == []


def test_what_only_the_ranks_can_take_is_left_to_them(shop: LauncherFixture) -> None:
    assert shop.run(folder(shop, SHOWS_ENVS, checkpoint_dir="s3://bucket/runs/tune-2")).outcome == "succeeded"
    assert "from s3://bucket/runs/gpt-1 step none known none\n" in shop.server.log()
    own = wire.Start("gpt-1", 7, "/data/of-its-own")
    assert shop.run(folder(shop, SHOWS_ENVS, start=own, attempt=2, token="other")).outcome == "succeeded"
    assert "from /data/of-its-own step 7 known none\n" in shop.server.log(token="other")
    assert told(shop) == []


@pytest.mark.parametrize("point", ["start_linked_file", "start_verified", "start_taken", "start_settled"])
def test_killed_at_each_step_the_next_attempt_has_it(shop: LauncherFixture, point: str) -> None:
    save(shop, 100)
    if os.geteuid() == 0 and point == "start_linked_file":
        pytest.skip("root gets copies")
    assert shop.start(folder(shop, SHOWS), **{processes.FAULT: point}).wait(PATIENCE) == -9
    assert shop.server.log() == ""
    assert shop.run(folder(shop, SHOWS, attempt=2)).outcome == "succeeded", shop.server.log()
    assert "from step-000000100 state of 100 100\n" in shop.server.log()
    (doc,) = told(shop)
    assert doc["step"] == 100


@pytest.mark.skipif(os.geteuid() != 0, reason="gives folders to another user")
def test_a_folder_that_is_given_to_another_user_takes_no_files_of_others_with_it(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_text("shared")
    source.chmod(0o444)
    own = tmp_path / "own"
    (own / "deep").mkdir(parents=True)
    (own / "deep" / "file").hardlink_to(source)
    (own / "alone").write_text("alone")
    (own / "link").symlink_to(source)
    sandbox.Sandbox(wire.Isolation(65534, 65534, "x"), tmp_path, {}).give(own)
    assert (source.stat().st_uid, source.stat().st_nlink) == (0, 1)
    given = own / "deep" / "file"
    assert (given.stat().st_uid, given.read_text(), given.stat().st_mode & 0o777) == (65534, "shared", 0o444)
    assert (own / "alone").stat().st_uid == (own / "deep").stat().st_uid == 65534
    assert (own / "link").is_symlink()
    assert sorted(path.name for path in own.rglob("*")) == ["alone", "deep", "file", "link"]


def test_the_ranks_user_has_what_is_taken(tmp_path: Path) -> None:
    apart = wire.Isolation(4711, 4712, "x")
    launch = wire.Launch.from_json(
        json.dumps({**json.loads(_plain().to_json()), "isolation": {"uid": 4711, "gid": 4712, "name": "x"}})
    )
    owner = launch_start._owner(launch, True)
    wanted = (apart.uid, apart.gid) if os.geteuid() == 0 else (os.geteuid(), os.getegid())
    assert (owner.uid, owner.gid, owner.links) == (*wanted, True)
    assert launch_start._owner(_plain(), False).uid == os.geteuid()


def _plain() -> wire.Launch:
    return wire.Launch(
        "j", 1, 0, "n", 1, 1, "true", "", {}, (), (), None, "t", "", 0, "/c/j", 3, None, None, None, None, 5.0, 1 << 20,
        start=wire.Start("gpt-1"),
    )  # fmt: skip
