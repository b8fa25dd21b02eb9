"""The checkpoint that an attempt starts from: waited for, chosen by the server's word, and never silently none."""

from __future__ import annotations

from pathlib import Path

import pytest

from muster import wire
from muster.runtime import NoGoodCheckpoint, checkpoint, checkpoint_search, last_checkpoint
from muster.runtime.verdict import classify_exit


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The run's folder, as a launcher would name it."""
    for name in (wire.RANK, wire.RANK_DIR, wire.CONTROL, wire.ATTEMPT, wire.CHECKPOINT_KEEP):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(wire.CHECKPOINT_DIR, str(tmp_path / "job-1"))
    return tmp_path / "job-1"


@pytest.fixture
def save(monkeypatch: pytest.MonkeyPatch):
    def saved(*steps: int, attempt: int = 1) -> None:
        monkeypatch.setenv(wire.ATTEMPT, str(attempt))
        for step in steps:
            with checkpoint(step) as place:
                (place / "state").write_text("x" * 100)

    return saved


def know(monkeypatch: pytest.MonkeyPatch, path: Path) -> None:
    monkeypatch.setenv(wire.CHECKPOINT_KNOWN, str(path))


def name(found: Path | None) -> str | None:
    return found.name if found is not None else None


def test_a_run_that_never_saved_begins(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    assert last_checkpoint() is None
    folder.mkdir()
    (folder / "step-000000001").mkdir()
    assert last_checkpoint() is None, "nothing that was committed is known of"


def test_a_run_that_saved_does_not_begin_again(monkeypatch: pytest.MonkeyPatch, folder: Path, save) -> None:
    save(1, 2)
    know(monkeypatch, folder / "step-000000002")
    for step in (1, 2):
        (folder / f"step-00000000{step}" / "state").write_text("y" * 100)
    with pytest.raises(NoGoodCheckpoint, match="step-000000002: state: its checksum is"):
        last_checkpoint()


def test_a_newest_one_that_is_gone_is_named(monkeypatch: pytest.MonkeyPatch, folder: Path, save, capfd) -> None:
    save(1, 2)
    know(monkeypatch, folder / "step-000000003")
    assert name(last_checkpoint()) == "step-000000002"
    assert "step-000000003 is damaged and is not used: it is not there" in capfd.readouterr().err


def test_the_same_folder_at_another_place_is_the_runs_and_another_name_is_not(
    monkeypatch: pytest.MonkeyPatch, folder: Path, tmp_path: Path
) -> None:
    monkeypatch.setenv(wire.CHECKPOINT_WAIT, "0")
    know(monkeypatch, Path("/mnt/elsewhere/job-1/step-000000002"))
    with pytest.raises(NoGoodCheckpoint):
        last_checkpoint()
    assert last_checkpoint(tmp_path / "side") is None


def test_a_folder_that_is_away_is_waited_for(monkeypatch: pytest.MonkeyPatch, folder: Path, save, capfd) -> None:
    save(1)
    know(monkeypatch, folder / "step-000000001")
    folder.rename(folder.with_name("away"))
    folder.mkdir()  # as an engine does, or the point where it is mounted
    pauses: list[float] = []

    def pause(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 4:
            folder.with_name("away").rename(folder)

    monkeypatch.setattr(checkpoint_search, "_sleep", pause)
    assert name(last_checkpoint()) == "step-000000001"
    assert pauses == [0.5, 1.0, 2.0, 4.0]
    said = capfd.readouterr().err
    assert "and step 1 was saved there; the next look is in" in said
    assert "are there again" in said


def test_a_folder_that_can_not_be_read_is_waited_for_too(monkeypatch: pytest.MonkeyPatch, folder: Path, capfd) -> None:
    know(monkeypatch, folder / "step-000000001")
    monkeypatch.setenv(wire.CHECKPOINT_WAIT, "0")
    folder.symlink_to(folder)  # every look at it is an error of the system
    with pytest.raises(NoGoodCheckpoint, match="Too many levels of symbolic links"):
        last_checkpoint()


def test_a_request_to_stop_ends_the_wait(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    know(monkeypatch, folder / "step-000000001")
    monkeypatch.setattr(checkpoint_search.signals, "should_stop", lambda: True)
    with pytest.raises(NoGoodCheckpoint):
        last_checkpoint()


def test_from_scratch_leaves_out_earlier_attempts_and_takes_later_ones(
    monkeypatch: pytest.MonkeyPatch, folder: Path, save
) -> None:
    monkeypatch.setenv(wire.CHECKPOINT_KEEP, "9")
    save(10, 20, attempt=1)
    monkeypatch.setenv(wire.CHECKPOINT_SINCE, "2")
    assert last_checkpoint() is None
    save(5, attempt=2)
    know(monkeypatch, folder / "step-000000005")
    assert name(last_checkpoint()) == "step-000000005"


def test_a_named_one_goes_before_newer_ones_of_earlier_attempts(
    monkeypatch: pytest.MonkeyPatch, folder: Path, save
) -> None:
    monkeypatch.setenv(wire.CHECKPOINT_KEEP, "9")
    save(10, 20, attempt=1)
    monkeypatch.setenv(wire.CHECKPOINT_SINCE, "2")
    monkeypatch.setenv(wire.CHECKPOINT_STEP, "10")
    assert name(last_checkpoint()) == "step-000000010"
    save(12, attempt=2)
    assert name(last_checkpoint()) == "step-000000012"


def test_the_launcher_knows_the_end_by_its_last_line() -> None:
    ended = wire.RankExit(0, 1, None, 1.0)
    trace = 'Traceback (most recent call last):\n  File "a.py", line 1, in <module>\n'
    for line in (
        f"{trace}muster.runtime.checkpoint_search.NoGoodCheckpoint: none is good",
        "muster: rank 3: NoGoodCheckpoint: none is good",
        "muster: NoGoodCheckpoint: none is good",
    ):
        assert classify_exit(ended, 1, f"{line}\n", False) == ("no_good_checkpoint", "none is good")
    for other in ("NoGoodCheckpoint", f"{trace}mine.NoGoodCheckpoint: none"):
        assert classify_exit(ended, 1, other, False).reason == "user_error"
