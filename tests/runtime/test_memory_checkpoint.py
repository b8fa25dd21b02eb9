"""Checkpoints in memory: the newest of memory and disk is used, a torn one is skipped, and nothing is kept unsafely."""

from __future__ import annotations

from pathlib import Path

import pytest
from rank_kit import start

from muster import wire
from muster.runtime import checkpoint, checkpoint_in_memory, last_checkpoint, memory_checkpoints

KILLED = """
import os, sys
from muster import runtime
for step in range(1, 6):
    runtime.checkpoint_in_memory(step, lambda folder: (folder / "state").write_text(str(step)))
def torn(folder):
    (folder / "state").write_text("half")
    os.kill(os.getpid(), 9)
runtime.checkpoint_in_memory(6, torn)
"""


@pytest.fixture(autouse=True)
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in (wire.RANK, wire.RANK_DIR, wire.CONTROL, wire.CHECKPOINT_KEEP, wire.CHECKPOINT_KNOWN):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(wire.ATTEMPT, "1")
    monkeypatch.setenv(wire.CHECKPOINT_DIR, str(tmp_path / "disk"))
    monkeypatch.setenv(wire.CHECKPOINT_MEMORY, str(tmp_path / "shared" / "job-1"))
    return tmp_path / "shared" / "job-1"


def keep(step: int) -> bool:
    return checkpoint_in_memory(step, lambda folder: (folder / "state").write_text(f"state {step}"))


def save(step: int) -> None:
    with checkpoint(step) as folder:
        (folder / "state").write_text(f"state {step}")


def committed(folder: Path) -> list[str]:
    """What is there, torn or not."""
    return sorted(path.name for path in folder.iterdir() if path.name != ".lock")


def test_the_newest_of_memory_and_disk_is_used(memory: Path) -> None:
    save(10)
    assert keep(11)
    assert keep(12)
    assert committed(memory) == ["step-000000012"]
    assert last_checkpoint() == memory / "step-000000012"
    save(12)
    assert last_checkpoint() == memory.parents[1] / "disk" / "step-000000012"
    assert keep(5), "a run that went back: the order of saves counts"
    assert last_checkpoint() == memory / "step-000000005"
    (memory / "step-000000005" / "state").write_text("state 6")
    assert last_checkpoint() == memory.parents[1] / "disk" / "step-000000012"


def test_a_rank_killed_in_the_middle_of_a_save_leaves_the_last_one(memory: Path, tmp_path: Path) -> None:
    (tmp_path / "rank").mkdir()
    names = {wire.CHECKPOINT_MEMORY: str(memory), wire.CHECKPOINT_DIR: str(tmp_path / "disk")}
    with start(KILLED, tmp_path / "rank", **names) as process:
        assert process.wait(60) == -9
    assert last_checkpoint() == memory / "step-000000005"
    assert keep(6)
    assert committed(memory) == ["step-000000006"], "what the killed process left is removed"


def test_what_does_not_count_after_a_resume_is_not_used(memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert keep(3)
    monkeypatch.setenv(wire.CHECKPOINT_SINCE, "2")
    assert last_checkpoint() is None


@pytest.mark.parametrize("above", [False, True])
@pytest.mark.parametrize("what", ["open", "link", "file"])
def test_what_another_user_may_have_made_is_not_used(memory: Path, above: bool, what: str) -> None:
    assert keep(1)
    place = memory.parent if above else memory
    assert {each.stat().st_mode & 0o777 for each in (memory, memory.parent)} == {0o700}
    if what == "open":
        place.chmod(0o755)
    else:
        place.rename(place.with_name("trap"))
        if what == "link":
            place.symlink_to(place.with_name("trap"))
        else:
            place.touch()
    assert not keep(2)
    assert last_checkpoint() is None


def test_outside_a_job_nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(wire.CHECKPOINT_MEMORY)
    assert not keep(1)


def test_what_is_too_large_is_not_kept(memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert keep(1)
    monkeypatch.setattr(memory_checkpoints, "LARGEST_PART", 1 << 60)
    assert not keep(2)
    assert last_checkpoint() == memory / "step-000000001"
    monkeypatch.setattr(memory_checkpoints, "LEFT_LEAST", 1 << 60)
    assert not checkpoint_in_memory(3, lambda folder: pytest.fail("nothing is saved when memory is short"))


def test_an_error_of_the_program_is_its_own(memory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FileNotFoundError):
        checkpoint_in_memory(1, lambda folder: (folder / "no" / "state").write_text("x"))
    with pytest.raises(ValueError, match="step got -1"):
        keep(-1)
    monkeypatch.setenv(wire.RANK, "1")
    with pytest.raises(ValueError, match="on rank 0 alone"):
        keep(1)
    assert committed(memory) == []
