"""Damaged checkpoints are seen, said and skipped; the newest that verifies is loaded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ckpt_kit import check_loads, names, save, snapshot

from muster import wire
from muster.runtime import checkpoint_search
from muster.train.checkpoint import Saver, load, newest, restore
from muster.train.errors import NoGoodCheckpoint


def flip(path: Path, at: float = 0.5) -> None:
    data = bytearray(path.read_bytes())
    data[int(len(data) * at)] ^= 1
    path.write_bytes(data)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


FILES = ("rank-00000-0.bin", "rank-00000.pt", "index.json", "shared.pt")


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize(
    ("spoil", "words"), [(flip, "its checksum is"), (cut, "were saved"), (Path.unlink, "is not there")]
)
def test_each_file_is_looked_at(tmp_path, capfd, name, spoil, words):
    save(tmp_path, 1, 2, 3)
    spoil(tmp_path / "step-000000003" / name)
    found = newest(tmp_path)
    check_loads(found, 2)
    said = capfd.readouterr().err
    assert f"{tmp_path}/step-000000003 is damaged and is not used: {name}" in said
    assert words in said


@pytest.mark.parametrize("text", [None, '{"step": 3', "[]", '{"step": 3, "serial": 9, "time": 0, "files": {}}'])
def test_a_manifest_that_is_none(tmp_path, capfd, text):
    save(tmp_path, 1, 2, 3)
    path = tmp_path / "step-000000003" / "manifest.json"
    path.unlink() if text is None else path.write_text(text)
    check_loads(newest(tmp_path), 2)
    assert "step-000000003 is damaged and is not used" in capfd.readouterr().err


def test_nothing_good_is_none(tmp_path, capfd):
    save(tmp_path, 1, 2)
    for step in (1, 2):
        flip(tmp_path / f"step-00000000{step}" / "rank-00000-0.bin")
    assert newest(tmp_path) is None
    assert newest(tmp_path, checksums=False).step == 2
    assert capfd.readouterr().err.count("damaged") == 2


def test_it_is_reported(tmp_path, monkeypatch):
    said = []
    monkeypatch.setattr(checkpoint_search.reporter, "document", lambda kind, **fields: said.append((kind, fields)))
    save(tmp_path, 1, 2)
    said.clear()
    cut(tmp_path / "step-000000002" / "shared.pt")
    assert newest(tmp_path).step == 1
    ((kind, fields),) = said
    assert (kind, fields["step"]) == ("restore", 1)
    assert fields["skipped"][0]["path"] == f"{tmp_path}/step-000000002"


@pytest.fixture
def known(tmp_path, monkeypatch):
    """A folder of checkpoints up to step 2, which the server knows."""
    where = tmp_path / "job-1"
    save(where, 1, 2)
    monkeypatch.setenv(wire.CHECKPOINT_KNOWN, f"{where}/step-000000002")
    return where


def test_without_a_good_one_it_does_not_begin_again(known):
    for step in (1, 2):
        flip(known / f"step-00000000{step}" / "rank-00000-0.bin")
    with pytest.raises(NoGoodCheckpoint, match=r"rank-00000-0\.bin: its checksum is"), Saver(known) as saver:
        saver.newest()


def test_a_store_that_is_away_is_waited_for_before_anything_is_created_there(known, monkeypatch, capfd):
    away = known.with_name("away")
    known.rename(away)
    pauses = []

    def pause(seconds: float) -> None:
        assert not known.exists()
        pauses.append(seconds)
        if len(pauses) == 3:
            away.rename(known)

    monkeypatch.setattr(checkpoint_search, "_sleep", pause)
    with Saver(known) as saver:
        check_loads(saver.newest(), 2)
    assert pauses == sorted(set(pauses)), "each pause is longer"
    assert "nothing is there" in capfd.readouterr().err


def test_a_store_that_stays_away_ends_the_program(known, monkeypatch):
    known.rename(known.with_name("away"))
    monkeypatch.setenv(wire.CHECKPOINT_WAIT, "0")
    with pytest.raises(NoGoodCheckpoint, match="step 2 was saved there"):
        Saver(known).open()
    assert not known.exists()


def test_one_that_training_did_not_save_is_left_alone(tmp_path, capfd):
    save(tmp_path, 1, 2)
    folder = tmp_path / "step-000000002"
    manifest = json.loads((folder / "manifest.json").read_text())
    del manifest["files"]["index.json"]
    (folder / "manifest.json").write_text(json.dumps(manifest))
    assert newest(tmp_path).step == 1
    assert "something else than training saved it" in capfd.readouterr().err


def test_a_big_file_is_verified_in_blocks_and_files_are_split(tmp_path, monkeypatch):
    monkeypatch.setattr("muster.train.checkpoint.store.FILE_BYTES", 4096)
    monkeypatch.setattr(load, "BLOCK", 1000)
    with Saver(tmp_path) as saver:
        saver.save(snapshot(1, rows=500), wait=True)
        saver.save(snapshot(2, rows=500), wait=True)
    files = [name for name in names(tmp_path / "step-000000002") if name.endswith(".bin")]
    assert len(files) > 1
    check_loads(newest(tmp_path), 2, rows=500)
    flip(tmp_path / "step-000000002" / files[-1], 0.99)
    check_loads(newest(tmp_path), 1, rows=500)


def test_damage_after_it_was_found_is_still_an_error(tmp_path):
    save(tmp_path, 1)
    found = newest(tmp_path)
    path = tmp_path / "step-000000001" / "rank-00000-0.bin"
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(load.CheckpointDamaged, match="ends at byte 40"):
        restore(found, snapshot(5))
