"""The last step in memory: a killed rank goes on from it bit for bit, and nothing is kept where memory is short."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from loop_kit import PATIENCE, Run, make_tokens, settings, states

from gang_kit import gang
from muster import wire
from muster.runtime import memory_checkpoints
from muster.train import memory
from muster.train.checkpoint import Saver, Snapshot
from muster.train.config import Every, read_config
from muster.train.errors import ConfigError
from muster.train.memory import SHARE, MemorySaves

STEPS = 36


def kept(root: Path) -> list[int]:
    """The steps of the checkpoints in memory."""
    return [int(path.name[5:14]) for path in (root / "shared" / "job").glob("train-*/step-*")]


def killed_between_saves(root: Path, mesh: dict[str, int]) -> dict[str, Any]:
    """A gang of two is killed between two saves on disk."""
    straight = settings(root / "straight", root / "data", steps=STEPS, mesh=mesh, checkpoint={"every": 18})
    Run(root / "straight", straight, 2).start().end()
    config = settings(root / "killed", root / "data", steps=STEPS, mesh=mesh, checkpoint={"every": 18, "memory": 3})
    envs = {wire.CHECKPOINT_MEMORY: str(root / "shared" / "job")}
    first = Run(root / "killed", config, 2, envs).start()
    assert first.kill_when(lambda: first.reached(20) and any(step > 18 for step in kept(root))), first.printed()
    newest = max(kept(root))  # two, if it was killed right after a commit
    second = Run(root / "killed", config, 2, envs).start().end()
    return {
        "newest": newest,
        "codes": second.codes,
        "began": min(second.metric("loss")),
        "notes": second.notes(),
        "weights": [states(root / each, STEPS) for each in ("straight", "killed")],
        "left": kept(root),
        "known": [doc["step"] for doc in second.docs("checkpoint")],
    }


@pytest.mark.parametrize("mesh", [{"dp": 2}], ids=str)
def test_a_killed_gang_goes_on_from_memory_bit_for_bit(tmp_path: Path, mesh: dict[str, int]) -> None:
    make_tokens(tmp_path / "data")
    (found,) = gang(1, killed_between_saves, tmp_path, mesh, group=False, timeout=PATIENCE)
    assert found["codes"] == [0, 0]
    assert found["began"] == found["newest"] + 1, "it did not go on from the newest"
    assert found["newest"] > 18, "the one on disk is as new"
    assert any(f"continuing after step {found['newest']} ({tmp_path}/shared" in note for note in found["notes"])
    assert found["weights"][0] == found["weights"][1]
    assert found["known"] == [STEPS], "the platform was told of one in memory"
    assert found["left"] == [], "it is kept although the last step is on disk"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in (wire.RANK, wire.WORLD_SIZE, wire.RANK_DIR, wire.CHECKPOINT_KNOWN):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(wire.CHECKPOINT_MEMORY, str(tmp_path / "shared" / "job"))
    return tmp_path


def snapshot(step: int) -> Snapshot:
    return Snapshot({"weight": torch.full((1000,), float(step))}, shared={"step": step})


def size() -> int:
    return 4000


def keep(saves: MemorySaves, step: int) -> None:
    assert saves.saver is not None
    saves.save(snapshot(step))
    saves.saver.wait()


def test_the_newest_of_both_counts_and_only_if_it_is_whole(place: Path) -> None:
    with Saver(place / "disk") as disk, MemorySaves(disk, Every(steps=1), "disk", True) as saves:
        assert saves.saver is not None
        saves.begin(disk.newest(memory=saves.saver))
        disk.save(snapshot(10), wait=True)
        keep(saves, 11)
        keep(saves, 12)
        assert kept(place) == [12]
        found = disk.newest(memory=saves.saver)
        assert found is not None
        assert (found.step, saves.saver.holds(found), disk.holds(found)) == (12, True, False)
        disk.save(snapshot(13), wait=True)
        assert (disk.newest(memory=saves.saver) or found).step == 13
        keep(saves, 14)
        (file,) = (place / "shared" / "job").glob("train-*/step-*/*.bin")
        file.write_bytes(bytes(len(file.read_bytes())))
        found = disk.newest(memory=saves.saver)
        assert found is not None
        assert found.step == 13, "a damaged one was used"
        disk.save(snapshot(9), wait=True)  # the run went back: commits count, not steps
        assert (disk.newest(memory=saves.saver) or found).step == 9
        saves.begin(found)
        assert kept(place) == []
    assert [each.name for each in (place / "disk").glob("step-*")] != []


def test_saves_are_paced_by_their_cost_and_by_steps(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "FIRST_SECONDS", 0.0)
    with Saver(place / "disk") as disk:
        with MemorySaves(disk, Every(), "auto", True, _pause=0.0) as saves:
            assert not saves.due(0, size), "nothing was done"
            for step in (1, 2, 3):
                assert saves.due(step, size)
                keep(saves, step)
                saves.due(step, size)
                saves._at -= saves._pause
            last = saves.saver and saves.saver.poll()
            assert last is not None
            assert saves._pause == last.seconds / SHARE
        with MemorySaves(disk, Every(steps=3), "steps", True) as saves:
            assert [saves.due(step, size) for step in (2, 3, 4)] == [False, True, True]
            keep(saves, 3)
            assert [saves.due(step, size) for step in (4, 5, 6)] == [False, False, True]
        with MemorySaves(disk, None, "off", True) as saves:
            assert saves.saver is None
            assert not saves.due(1, size)


def test_short_memory_is_told_once_and_nothing_is_kept(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(memory, "noted", told.append)
    with Saver(place / "disk") as disk, MemorySaves(disk, Every(steps=1), "disk", True) as saves:
        keep(saves, 1)
        monkeypatch.setattr(memory_checkpoints, "LEFT_LEAST", 1 << 60)
        for step in (2, 3):
            saves._short_until = 0.0
            assert not saves.due(step, size)
        assert len(told) == 1
        assert "not kept in memory, only on disk: it has 0 MB" in told[0]
        monkeypatch.undo()
    assert kept(place) == [1], "what was kept still counts"


def test_an_error_ends_the_keeping_and_not_the_run(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(memory, "noted", told.append)
    with Saver(place / "disk") as disk, MemorySaves(disk, Every(steps=1), "disk", True) as saves:
        assert saves.saver is not None
        keep(saves, 1)
        shutil.rmtree(saves.saver.where)
        Path(saves.saver.where).touch()  # no folder any more
        saves.save(snapshot(2))
        saving = saves.saver.poll()
        assert saving is not None
        assert saving.wait(60)
        assert [saves.due(step, size) for step in (3, 4)] == [False, False]
        disk.save(snapshot(5), wait=True)
    assert len(told) == 1
    assert "not kept in memory, only on disk: the checkpoint of step 2 was not saved" in told[0]


def test_the_setting(tmp_path: Path) -> None:
    def read(value: Any) -> Every | None:
        return read_config({"task": "language", "steps": 1, "checkpoint": {"memory": value}}).checkpoint.memory

    assert [read(value) for value in ("auto", True, 5, "30s")] == [Every(), Every(), Every(5), Every(seconds=30.0)]
    assert read(False) is None
    assert read("off") is None
    with pytest.raises(ConfigError, match=r"checkpoint\.memory.*auto, off, steps"):
        read("sometimes")
