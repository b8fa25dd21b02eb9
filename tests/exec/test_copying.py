"""The stream of `muster cp` alone: what arrives as it was sent, and what a hostile sender can't make of it."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.copying import CopyError, receive, send


def sent(path: Path) -> bytes:
    found = bytearray()
    send(str(path), found.extend)
    return bytes(found)


def in_parts(stream: bytes, size: int = 1000) -> Callable[[], bytes]:
    parts = iter([stream[at : at + size] for at in range(0, len(stream), size)])
    return lambda: next(parts, b"")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    root = tmp_path / "from" / "tree"
    (root / "deep" / "er").mkdir(parents=True)
    (root / "empty").mkdir()
    (root / "a.txt").write_bytes(b"a" * 300_000)
    (root / "deep" / "none").touch()
    (root / "deep" / "runs.sh").write_text("#!/bin/sh\n")
    (root / "deep" / "runs.sh").chmod(0o755)
    (root / "deep" / "odd\n\udcff é").write_text("odd")
    (root / "deep" / "er" / "up").symlink_to("../../a.txt")
    os.mkfifo(root / "pipe")
    return root


@pytest.mark.parametrize("size", [1, 7, 4096, 1 << 20])
def test_a_folder_arrives_as_it_was(tree: Path, tmp_path: Path, size: int) -> None:
    target = tmp_path / "to"
    copied = receive(in_parts(sent(tree), size), target)
    assert (copied.files, copied.skipped) == (4, 1)
    names = {path.relative_to(tree) for path in tree.rglob("*")} - {Path("pipe")}
    assert {path.relative_to(target) for path in target.rglob("*")} == names
    assert all((target / name).read_bytes() == (tree / name).read_bytes() for name in names if (tree / name).is_file())
    assert os.access(target / "deep" / "runs.sh", os.X_OK)
    assert (target / "deep" / "er" / "up").readlink() == Path("../../a.txt")
    again = receive(in_parts(sent(tree)), tmp_path / "to")  # into a folder that exists
    assert (tmp_path / "to" / "tree" / "a.txt").exists()
    assert again.files == 4


def test_a_copy_into_a_folder_that_has_it_replaces_its_files_and_keeps_the_others(tree: Path, tmp_path: Path) -> None:
    old = tmp_path / "to" / "tree"
    old.mkdir(parents=True)
    (old / "a.txt").write_text("old")
    (old / "own").write_text("kept")
    receive(in_parts(sent(tree)), tmp_path / "to")
    assert ((old / "own").read_text(), (old / "a.txt").stat().st_size) == ("kept", 300_000)


@given(st.integers(0, 310_000))
@settings(max_examples=25, deadline=None)
def test_a_stream_that_breaks_off_leaves_nothing(tmp_path_factory: pytest.TempPathFactory, cut: int) -> None:
    folder = tmp_path_factory.mktemp("cut")
    (folder / "a").write_bytes(b"x" * 300_000)
    whole = sent(folder / "a")
    stream = whole[: min(cut, len(whole) - 1)]
    with pytest.raises(CopyError):
        receive(in_parts(stream, 4096), folder / "b")
    assert [path.name for path in folder.iterdir()] == ["a"]


def test_a_byte_that_changes_on_its_way_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 1000)
    stream = sent(tmp_path / "a").replace(b"xxxxx", b"xxyxx", 1)
    with pytest.raises(CopyError, match="did not come as it was sent"):
        receive(in_parts(stream), tmp_path / "b")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def entry(**fields: Any) -> bytes:
    return json.dumps(fields).encode() + b"\n"


def a_file(path: Any, data: bytes = b"evil") -> bytes:
    return entry(kind="file", path=path, size=len(data)) + data + hashlib.sha256(data).digest()


BEGIN, FOLDER, END = (
    entry(kind="begin", name="x", bytes=4),
    entry(kind="folder", path=""),
    entry(kind="end", files=1, skipped=0),
)


@pytest.mark.parametrize(
    "hostile",
    [
        BEGIN + FOLDER + a_file("../evil") + END,
        BEGIN + FOLDER + a_file("a/../../evil") + END,
        BEGIN + FOLDER + a_file("/tmp/muster-evil") + END,
        BEGIN + FOLDER + a_file("./evil") + END,
        BEGIN + FOLDER + a_file("a//evil") + END,
        BEGIN + FOLDER + a_file("a\0b") + END,
        BEGIN + FOLDER + a_file(7) + END,
        BEGIN + FOLDER + a_file("a") + a_file("a") + END,
        BEGIN + FOLDER + entry(kind="link", path="l", to="/etc") + a_file("a") + END,
        BEGIN + FOLDER + entry(kind="link", path="l", to="..") + a_file("l/evil") + END,
        BEGIN + FOLDER + entry(kind="link", path="l", to="a") + a_file("l/evil") + END,
        BEGIN + FOLDER + entry(kind="link", path="l", to="x/../../evil") + a_file("a") + END,
        BEGIN + FOLDER + entry(kind="folder", path="d") + entry(kind="link", path="d/l", to="../../x")
        + a_file("a") + END,
        # Each is inside by its words; the second one leads out by way of the first.
        BEGIN + FOLDER + entry(kind="folder", path="d") + entry(kind="link", path="d/up", to="..")
        + entry(kind="link", path="l", to="d/up/../evil") + a_file("a") + END,
        BEGIN + entry(kind="link", path="", to="/etc/passwd") + entry(kind="end", files=0, skipped=0),
        BEGIN + entry(kind="device", path="") + END,
        BEGIN + entry(kind="file", path="", size=-1) + END,
        BEGIN + a_file(""),
        BEGIN + a_file("") + entry(kind="end", files=2, skipped=0),
        BEGIN + entry(kind="end", files=0, skipped=0),
        entry(kind="begin", name="../../evil", bytes=0) + a_file("") + END,
        entry(kind="begin", name=3, bytes=0),
        b"not a copy\n",
        b"[]\n",
        b"x" * 200_000,
        b"[" * 60_000 + b"\n",
        b"",
    ],
)  # fmt: skip
def test_what_a_hostile_sender_sends_is_refused_and_leaves_nothing(tmp_path: Path, hostile: bytes) -> None:
    target = tmp_path / "folder"
    target.mkdir()
    with pytest.raises((CopyError, OSError)):
        receive(in_parts(hostile), target)
    assert [path.name for path in tmp_path.rglob("*")] == ["folder"]
    assert not Path("/tmp/muster-evil").exists()


@given(st.binary(max_size=400))
@settings(deadline=None)
def test_any_bytes_are_refused_in_words(tmp_path_factory: pytest.TempPathFactory, garbage: bytes) -> None:
    folder = tmp_path_factory.getbasetemp() / "garbage"
    folder.mkdir(exist_ok=True)
    with pytest.raises((CopyError, OSError)):
        receive(in_parts(BEGIN + garbage), folder / "b")
    assert list(folder.iterdir()) == []
