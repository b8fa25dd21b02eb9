"""A node without the job's folder: its ranks start in the snapshot, and nothing else than the snapshot gets there."""

from __future__ import annotations

import hashlib
import json
import signal
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest_kit import PATIENCE, IngestServer, ingest_server, wait_for
from launcher_kit import LauncherFixture, launcher_fixture, read_exit
from muster.runtime import code
from muster.runtime.channel import Away, Channel, Gone

FILES = {"train.sh": (b"#!/bin/sh\necho from $(basename $0)\n", 0o755), "pkg/data.txt": (b"data\n", 0o644)}


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[LauncherFixture]:
    with launcher_fixture(tmp_path) as made:
        yield made


def offer(server: IngestServer, files: dict[str, tuple[bytes, int]]) -> str:
    """Has the server hold a snapshot; its digest."""
    manifest = {path: [_digest(data), len(data), mode] for path, (data, mode) in files.items()}
    text = json.dumps(manifest, ensure_ascii=False).encode()
    server.blobs |= {_digest(data): data for data, _ in files.values()} | {_digest(text): text}
    server.code = _digest(text)
    return server.code


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def bring(server: IngestServer, tree: str, into: Path, cache: Path, tries: int = 100) -> Path:
    left = iter([True] * tries)
    channel = Channel([server.url], None, "token", None)
    return code.bring(channel, tree, into, cache, lambda seconds: next(left, False))


def test_ranks_start_in_the_snapshot_where_their_folder_is_not(shop: LauncherFixture) -> None:
    tree = offer(shop.server, FILES)
    folder = shop.folder("./train.sh; cat pkg/data.txt; pwd", workdir="/no/such/folder", code=tree)
    ended = shop.run(folder)
    assert (ended.reason, shop.server.log()) == ("completed", f"from train.sh\ndata\n{folder}/code\n")


def test_where_the_folder_is_there_nothing_is_fetched(shop: LauncherFixture) -> None:
    tree = offer(shop.server, FILES)
    assert shop.run(shop.folder("pwd", code=tree)).reason == "completed"
    assert (shop.server.log(), shop.server.bundles) == (f"{shop.root}/work\n", [])


def test_what_a_node_has_is_not_fetched_again_and_no_job_can_spoil_it(shop: LauncherFixture, tmp_path: Path) -> None:
    tree = offer(shop.server, FILES)
    run, scratch = "echo spoiled >> pkg/data.txt; cat pkg/data.txt", str(tmp_path / "node")
    for attempt in (1, 2):
        folder = shop.folder(run, workdir="/no/such", code=tree, attempt=attempt, token=f"t{attempt}")
        assert shop.run(folder, MUSTER_SCRATCH=scratch).reason == "completed"
        assert shop.server.log(token=f"t{attempt}") == "data\nspoiled\n"
    assert len(shop.server.bundles) == 1


def test_a_snapshot_that_is_gone_is_a_folder_that_is_missing(shop: LauncherFixture) -> None:
    ended = shop.run(shop.folder("true", workdir="/no/such", code="0" * 64))
    assert (ended.outcome, ended.reason) == ("failed", "workdir_missing")
    assert "/no/such is not a directory on node local-0, and its snapshot can't be had" in ended.detail


def test_a_stop_reaches_a_launcher_that_waits_for_its_code(shop: LauncherFixture) -> None:
    shop.server.go_away()
    folder = shop.folder("true", workdir="/no/such", code="0" * 64)
    launcher = shop.start(folder)
    wait_for((folder / "launcher.json").exists)
    launcher.send_signal(signal.SIGTERM)
    assert wait_for(lambda: read_exit(folder)).reason == "node_lost"


def test_a_launcher_killed_while_it_fetches_starts_nothing_later(shop: LauncherFixture) -> None:
    tree = offer(shop.server, FILES)
    folder = shop.folder("touch /no/such/started", workdir="/no/such", code=tree)
    assert shop.start(folder, MUSTER_FAULT_LAUNCHER="after_fetching").wait(PATIENCE) == -signal.SIGKILL
    assert shop.run(folder).reason == "launcher_lost"
    assert not (folder / "code").exists()


def test_a_file_that_was_damaged_on_the_node_is_fetched_again(tmp_path: Path) -> None:
    with ingest_server() as server:
        tree = offer(server, FILES)
        cache = tmp_path / "cache"
        bring(server, tree, tmp_path / "one", cache)
        for path in cache.glob("[0-9a-f]*"):
            path.write_bytes(path.read_bytes()[:-1])  # the manifest as well
        made = bring(server, tree, tmp_path / "two", cache)
        assert (made / "pkg" / "data.txt").read_bytes() == b"data\n"
        assert len(server.bundles) == 3  # one file was seen to be damaged after the other


def test_what_the_server_sends_instead_is_not_taken(tmp_path: Path) -> None:
    with ingest_server() as server:
        tree = offer(server, FILES)
        damage = (
            lambda raw: raw.replace(b"data", b"evil"),
            lambda raw: b"",
            lambda raw: raw[:-3],
            lambda raw: b"x" * 99,
        )
        for fault in damage:
            server.code_fault = fault
            with pytest.raises(Gone, match="is not that"):
                bring(server, tree, tmp_path / "made", tmp_path / "cache")
        assert not (tmp_path / "made").exists()
        server.code_fault = lambda raw: raw
        assert bring(server, tree, tmp_path / "made", tmp_path / "cache").is_dir()
        server.code = offer(server, {"other": (b"", 0o644)})
        with pytest.raises(Gone, match="is not that"):
            bring(server, "0" * 64, tmp_path / "more", tmp_path / "cache")


def test_told_to_stop_it_gives_up(tmp_path: Path) -> None:
    with ingest_server() as server:
        tree = offer(server, FILES)
        server.go_away()
        with pytest.raises(Away):
            bring(server, tree, tmp_path / "made", tmp_path / "cache", tries=0)


BAD = ["/etc/passwd", "../up", "a/../../up", "", ".", "a//b", "a/./b", "..", "a/..", "nul\0"]


@pytest.mark.parametrize("path", BAD)
def test_no_path_leads_out_of_the_folder(tmp_path: Path, path: str) -> None:
    with ingest_server() as server:
        tree = offer(server, {path: (b"evil", 0o644)})
        with pytest.raises(Gone, match="its manifest holds"):
            bring(server, tree, tmp_path / "made", tmp_path / "cache")
    assert not (tmp_path / "made").exists()


PARTS = st.text(st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=20)
TREES = st.dictionaries(
    PARTS.filter(lambda part: part not in (".", "..") and len(part.encode()) < 200),
    st.tuples(st.binary(max_size=300), st.sampled_from([0o644, 0o755])),
    max_size=20,
)


@given(files=TREES)
def test_a_snapshot_comes_as_it_was(files: dict[str, tuple[bytes, int]]) -> None:
    with ingest_server() as server, TemporaryDirectory() as room:
        made = bring(server, offer(server, files), Path(room) / "made", Path(room) / "cache")
        found = {path.name: (path.read_bytes(), path.stat().st_mode & 0o777) for path in made.iterdir()}
    assert found == files


@given(sizes=st.dictionaries(st.text(max_size=4), st.integers(0, 3 * code.BUNDLE), max_size=30))
def test_files_are_asked_for_in_portions_each_once(sizes: dict[str, int]) -> None:
    portions = list(code.groups(sizes))
    assert [digest for portion in portions for digest in portion] == list(sizes)
    for portion in portions:
        assert len(portion) == 1 or sum(sizes[digest] for digest in portion) <= code.BUNDLE
