"""Damaged checkpoints are seen, said and skipped; the newest that verifies is loaded."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ckpt_kit import check_loads, names, save, snapshot

from muster.train.checkpoint import Saver, load, newest, restore


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


def test_it_is_noted_in_the_run(tmp_path, monkeypatch):
    notes = []
    monkeypatch.setattr(load.reporter, "note", notes.append)
    save(tmp_path, 1, 2)
    cut(tmp_path / "step-000000002" / "shared.pt")
    assert newest(tmp_path).step == 1
    assert len(notes) == 1
    assert "step-000000002 is damaged" in notes[0]


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
