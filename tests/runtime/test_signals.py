"""Requests of the platform, as a real rank sees them in the shared block."""

from __future__ import annotations

import json
import mmap
import struct

import pytest
from rank_kit import documents, run, start

from muster import wire
from muster.runtime import checkpoint, signals
from muster.runtime.folder import Folder

LOOKING = """
import json, sys
import muster.runtime as muster
for line in sys.stdin:
    print(json.dumps([muster.should_stop(), muster.should_save(), muster.stop_deadline()]), flush=True)
"""


@pytest.fixture
def rank(tmp_path):
    """A rank that looks when asked, and the block that it looks at."""
    (tmp_path / "control").write_bytes(bytes(wire.CONTROL_BYTES))
    (tmp_path / "rank-0").mkdir()
    with (tmp_path / "control").open("r+b") as file, mmap.mmap(file.fileno(), wire.CONTROL_BYTES) as block:
        child = start(LOOKING, tmp_path / "rank-0", **{wire.CONTROL: str(tmp_path / "control")})

        def look() -> list[object]:
            child.stdin.write("\n")
            child.stdin.flush()
            return json.loads(child.stdout.readline())

        yield look, block, tmp_path / "rank-0"
        child.communicate()
        assert child.returncode == 0


def test_a_request_to_stop_is_seen_with_its_deadline(rank):
    look, block, _ = rank
    assert look() == [False, False, None]
    struct.pack_into("<d", block, wire.CONTROL_DEADLINE_AT, 1234.5)
    block[wire.CONTROL_STOP_AT] = 1
    assert look() == [True, False, 1234.5]
    assert look() == [True, False, 1234.5]


def test_each_request_to_save_is_seen_once(rank):
    look, block, _ = rank
    block[wire.CONTROL_SAVE_AT] = 1  # before the first look
    assert [look()[1], look()[1]] == [True, False]
    block[wire.CONTROL_SAVE_AT] = 3
    assert [look()[1], look()[1]] == [True, False]
    for count in (255, 0, 1):  # it wraps around
        block[wire.CONTROL_SAVE_AT] = count
        assert [look()[1], look()[1]] == [True, False]


def test_checkpoints_that_others_start_from_are_not_pruned(tmp_path, monkeypatch):
    """What the launcher writes, and what a rank makes of it."""
    for name in (wire.RANK, wire.RANK_DIR, wire.ATTEMPT):
        monkeypatch.delenv(name, raising=False)
    worker = Folder(tmp_path)
    worker.prepare()
    monkeypatch.setenv(wire.CONTROL, str(tmp_path / "control"))
    monkeypatch.setenv(wire.CHECKPOINT_DIR, str(tmp_path / "kept"))
    monkeypatch.setenv(wire.CHECKPOINT_KEEP, "1")
    monkeypatch.setattr(signals, "_block", None)

    def save(step: int) -> list[int]:
        with checkpoint(step) as folder:
            (folder / "state").write_text("x")
        return sorted(int(path.name[5:]) for path in (tmp_path / "kept").glob("step-*"))

    assert [save(0), save(1)] == [[0], [1]]
    worker.keep_steps([1, 0])
    assert [save(2), save(3)] == [[1, 2], [1, 3]]
    worker.keep_steps([])
    assert save(4) == [4]
    worker.keep_steps(range(1000))
    assert len(signals.kept_steps()) == wire.CONTROL_KEEP_MAX


def test_a_rank_that_looks_shows_that_it_does_without_a_report(rank):
    look, _, folder = rank
    assert not list(folder.glob("spool.*"))
    look()
    assert [path.name for path in folder.glob("spool.*")] == ["spool.0"]
    assert documents(folder, "started")


@pytest.mark.parametrize("content", [None, b"", b"short"])
def test_a_block_that_cannot_be_used_is_told_once(tmp_path, content):
    (tmp_path / "rank-0").mkdir()
    if content is not None:
        (tmp_path / "control").write_bytes(content)
    script = "import muster.runtime as m\nassert not (m.should_stop() or m.should_save() or m.stop_deadline())"
    said = run(script, tmp_path / "rank-0", **{wire.CONTROL: str(tmp_path / "control")})
    assert said.count("will not be seen") == 1
