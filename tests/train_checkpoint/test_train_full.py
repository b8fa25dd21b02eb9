"""A full disk in the middle of a save: a clear error on all ranks, older checkpoints intact, and training goes on."""

from __future__ import annotations

import resource

import pytest
from ckpt_kit import check_loads, names, snapshot

from components import small_disk
from gang_kit import gang
from muster.runtime import rank_info
from muster.train.checkpoint import Saver, newest, restore
from muster.train.errors import CheckpointFull


def test_a_full_disk(tmp_path):
    with small_disk(tmp_path / "disk", "1m") as disk, Saver(disk) as saver:
        saver.save(snapshot(1), wait=True)
        words = r"step 2 was not saved: .*No space left.*bytes were free\); those before it in .* are intact. Free some"
        with pytest.raises(CheckpointFull, match=words):
            saver.save(snapshot(2, rows=40_000), wait=True)
        assert names(disk) == ["step-000000001"]
        check_loads(saver.newest(), 1)
        (disk / "other").write_bytes(bytes(900_000))  # somebody else's files fill it up while training goes on
        with pytest.raises(CheckpointFull, match="step 3 was not saved"):
            saver.save(snapshot(3, rows=8_000), wait=True)
        (disk / "other").unlink()
        saver.save(snapshot(4), wait=True)
        assert names(disk) == ["step-000000001", "step-000000004"]


def one_rank_is_full(where: str) -> tuple[list[str], int | None]:
    """Rank 1 may write no file of more than a few bytes for a while, as with a quota that is used up."""
    said = []
    with Saver(where, tolerate=0) as saver:
        saver.save(snapshot(1), wait=True)
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        if rank_info.rank() == 1:
            resource.setrlimit(resource.RLIMIT_FSIZE, (16, hard))
        saving = saver.save(snapshot(2))
        assert saving is not None
        try:
            saver.save(snapshot(3))
        except CheckpointFull as error:
            said.append(str(error))
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
        saver.save(snapshot(4), wait=True)
        found = saver.newest()
    return said, found.step if found else None


def test_one_rank_of_two_has_no_room(tmp_path):
    for said, step in gang(2, one_rank_is_full, str(tmp_path)):
        assert step == 4
        (text,) = said
        assert "step 2 was not saved: rank 1: [Errno 27] File too large" in text
        assert "are intact. Free some space" in text
    assert names(tmp_path) == ["step-000000001", "step-000000004"]
    found = newest(tmp_path)
    state = snapshot(9)
    assert restore(found, state).extra is None  # two ranks saved it
    assert state.model["steps"] == 4
