"""Files that a rank gives away: what is kept is what was there at the call, and a killed rank loses none."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from components import small_disk
from ingest_kit import PATIENCE, wait_for
from muster import wire
from muster.runtime import files as module
from muster.runtime.files import Files, check_path
from muster.runtime.reporter import Reporter

LARGE = module.SMALL + 1


@pytest.fixture
def rank(tmp_path: Path) -> Path:
    folder = tmp_path / "rank-0"
    folder.mkdir()
    return folder


def kept(rank: Path) -> dict[str, bytes]:
    """What the launcher would find: the names with their content, in order."""
    notes = sorted((rank / "files").glob("*.json"))
    docs = [(json.loads(note.read_text())["doc"], note.with_suffix(".data")) for note in notes]
    return {doc.get("path") or doc["name"]: data.read_bytes() for doc, data in docs}


@pytest.mark.parametrize("size", [0, 10, LARGE])
def test_a_file_is_kept_as_it_was_at_the_call(tmp_path, rank, size):
    source, gift = tmp_path / "model.pt", Files(Reporter(rank))
    source.write_bytes(b"1" * size)
    gift.artifact(source, "models/1.pt")
    assert gift.flush()
    source.write_bytes(b"2" * (size + 1))  # into the same place, as most programs do it
    gift.artifact(source)
    gift.flush()
    source.unlink()
    assert kept(rank) == {"models/1.pt": b"1" * size, "model.pt": b"2" * (size + 1)}


def test_a_large_file_may_be_removed_before_the_thread_has_copied_it(tmp_path, rank):
    source, gift, go = tmp_path / "big", Files(Reporter(rank)), threading.Event()
    source.write_bytes(b"x" * LARGE)
    gift.later(lambda: go.wait(PATIENCE) and None)  # the thread is held up
    gift.artifact(source)
    source.unlink()
    go.set()
    gift.flush()
    assert kept(rank) == {"big": b"x" * LARGE}


def test_files_from_many_threads_are_all_kept(tmp_path, rank):
    gift = Files(Reporter(rank))
    for n in range(8):
        (tmp_path / f"{n}").write_bytes(str(n).encode() * LARGE)
    threads = [threading.Thread(target=gift.artifact, args=(tmp_path / f"{n}",)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    gift.flush()
    assert kept(rank) == {f"{n}": str(n).encode() * LARGE for n in range(8)}
    assert all(path.stat().st_nlink == 1 for path in (rank / "files").glob("*.data"))


def test_a_file_of_another_disk_is_copied_from_its_descriptor(tmp_path, rank):
    gift = Files(Reporter(rank))
    with small_disk(tmp_path / "disk", "4m") as disk:
        (disk / "far").write_bytes(b"f" * LARGE)
        gift.artifact(disk / "far")
        (disk / "far").unlink()
        gift.flush()
    assert kept(rank) == {"far": b"f" * LARGE}


def test_a_folder_is_kept_with_its_tree(tmp_path, rank):
    source, gift = tmp_path / "out", Files(Reporter(rank))
    (source / "deep" / "er").mkdir(parents=True)
    for name in ("a.txt", "deep/b.txt", "deep/er/c.txt"):
        (source / name).write_text(name)
    gift.artifact(source)
    gift.artifact(source, "under/that")
    names = ["a.txt", "deep/b.txt", "deep/er/c.txt"]
    assert kept(rank) == {f"{root}/{name}": name.encode() for root in ("out", "under/that") for name in names}


def test_nothing_is_there_to_give_is_told(tmp_path, rank):
    with pytest.raises(FileNotFoundError, match="is no file and no folder"):
        Files(Reporter(rank)).artifact(tmp_path / "absent")


@pytest.mark.parametrize(
    "name",
    ["", "/etc/passwd", "../x", "a/../b", "a//b", "./a", "a\\b", "a\0b", "\ud800", "x" * 256, "a/" * 500 + "b", "a/"],
)
def test_a_name_that_can_not_be_stored_is_refused_before_anything_is_kept(tmp_path, rank, name):
    (tmp_path / "file").write_text("x")
    with pytest.raises(ValueError, match="can't be stored"):
        Files(Reporter(rank)).artifact(tmp_path / "file", name)
    assert not (rank / "files").exists()


@given(st.text(max_size=40))
def test_a_name_that_passes_stays_below_its_root(name):
    try:
        check_path(name)
    except ValueError:
        return
    root = Path("/place/of/artifacts")
    assert Path(os.path.normpath(root / name)).is_relative_to(root)
    assert Path(os.path.normpath(root / name)) != root


def test_outside_muster_nothing_is_kept_and_nothing_fails(tmp_path, monkeypatch):
    monkeypatch.delenv(wire.RANK_DIR, raising=False)
    (tmp_path / "file").write_text("x")
    Files(Reporter()).artifact(tmp_path / "file")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


GIVER = """
import sys
from muster import runtime
for n in range(1 << 30):
    open(sys.argv[1], "wb").write(str(n).encode() * 60_000)
    runtime.artifact(sys.argv[1], f"n{n}")
    sys.stdout.write(f"{n}\\n")
    sys.stdout.flush()
"""


def test_a_rank_that_is_killed_loses_no_file_that_it_gave_away(tmp_path, rank):
    env = {**os.environ, wire.RANK_DIR: str(rank)}
    giver = subprocess.Popen(
        [sys.executable, "-c", GIVER, str(tmp_path / "source")], env=env, stdout=subprocess.PIPE, text=True
    )
    with giver:
        assert giver.stdout is not None
        for line in giver.stdout:
            if line == "20\n":
                break
        giver.send_signal(signal.SIGKILL)
        given_away = 20 + len(giver.stdout.read().split())
    found = kept(rank)
    assert all(f"n{n}" in found for n in range(given_away + 1))
    assert len(found) <= given_away + 2


def test_a_full_disk_is_told_and_the_rest_goes_on(tmp_path, capfd):
    with small_disk(tmp_path / "disk", "6m") as disk:
        reporter = Reporter(disk)
        reporter.log({"x": 1.0}, 0)  # its segment takes four of the six
        gift = Files(reporter)
        (tmp_path / "big").write_bytes(b"b" * (5 << 20))
        (tmp_path / "small").write_bytes(b"s" * (200 << 10))
        gift.artifact(tmp_path / "big")
        gift.flush()
        assert "not recorded" in capfd.readouterr().err
        gift.artifact(tmp_path / "small")
        reporter.log({"x": 2.0}, 1)
        wait_for(lambda: (disk / "files").exists())
        notes = sorted((disk / "files").glob("*.json"))
        assert [json.loads(note.read_text())["doc"]["path"] for note in notes][-1] == "small"
        assert sorted(path.suffix for path in (disk / "files").glob("*.data")) == [".data"]
