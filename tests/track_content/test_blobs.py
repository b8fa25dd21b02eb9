"""Content by its digest: kept once, whole or not at all, and collected when nobody refers to it."""

from __future__ import annotations

import errno
import io
import json
import os
import random
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from content_kit import Content, both, content, local, sha
from sqlalchemy import event, func, insert, select

from components import small_disk
from live import until
from muster.core.errors import Conflict, Invalid, NotFound, Unavailable
from muster.store.record_tables import blob_owners, media, notes
from muster.track.blob_store import SMALL, LocalBlobs
from muster.track.holders import of_project, of_user
from muster.track.record_db import RecordDb


def files(kept: Content) -> list[str]:
    blob_store = kept.blobs.blob_store
    assert isinstance(blob_store, LocalBlobs)
    return [path.name for path in blob_store.folder.rglob("*") if path.is_file()]


def manifest(kept: Content, **files: str) -> str:
    named = {path: [kept.add(text), len(text), 0o644] for path, text in files.items()}
    return kept.add(json.dumps(named))


class TestPut:
    @both
    def test_the_same_content_is_kept_once(self, kept: Content) -> None:
        assert kept.blobs.put(io.BytesIO(b"hello")) == (sha("hello"), 5)
        assert kept.blobs.put([b"he", b"llo"], sha("hello"), 5) == (sha("hello"), 5)
        assert files(kept) == [sha("hello")]
        assert b"".join(kept.blobs.open(sha("hello"))) == b"hello"
        assert b"".join(kept.blobs.open(sha("hello"), 1, 3)) == b"el"

    def test_nothing_is_content_too(self, kept: Content) -> None:
        assert kept.blobs.put([]) == (sha(""), 0)
        assert list(kept.blobs.open(sha(""))) == []

    @pytest.mark.parametrize(("digest", "size"), [(sha("other"), None), (None, 6), (sha("hello"), 4)])
    def test_what_is_not_as_expected_leaves_nothing(self, kept: Content, digest: str | None, size: int | None) -> None:
        with pytest.raises(Invalid):
            kept.blobs.put([b"hello"], digest, size)
        assert files(kept) == []
        assert kept.blobs.missing([sha("hello")]) == [sha("hello")]

    def test_a_reader_that_fails_leaves_nothing(self, kept: Content) -> None:
        def broken():
            yield b"half"
            raise ConnectionError("cut off")

        with pytest.raises(ConnectionError):
            kept.blobs.put(broken())
        assert files(kept) == []

    def test_a_lost_file_is_put_back_by_an_upload(self, kept: Content) -> None:
        digest = kept.add("precious")
        kept.blobs.blob_store.delete(digest)
        with pytest.raises(NotFound, match="backup"):
            list(kept.blobs.open(digest))
        kept.add("precious")
        assert b"".join(kept.blobs.open(digest)) == b"precious"

    def test_blocks_of_a_large_one(self, kept: Content) -> None:
        data = random.Random(1).randbytes(5 << 20)
        digest = kept.add(data)
        found = list(kept.blobs.open(digest))
        assert b"".join(found) == data
        assert max(map(len, found)) == 1 << 20


class TestDurable:
    """What is acknowledged must be on the disk before the row that names it."""

    @pytest.mark.parametrize("size", [0, 100, SMALL, SMALL + 1])
    def test_file_and_folder_are_flushed_before_the_row(
        self, kept: Content, size: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        flushed: list[tuple[Path, int]] = []  # with the size of a file
        before: list[tuple[Path, int]] = []  # those that came before the row
        sync, write = os.fsync, RecordDb.write

        def note_flush(handle: int) -> None:
            sync(handle)
            path = Path(f"/proc/self/fd/{handle}").readlink()
            flushed.append((path, path.stat().st_size if path.is_file() else 0))

        def note_write(db: RecordDb, *given: Any, **more: Any) -> Any:
            before.extend(flushed)
            return write(db, *given, **more)

        monkeypatch.setattr(os, "fsync", note_flush)
        monkeypatch.setattr(RecordDb, "write", note_write)
        data = random.Random(size).randbytes(size)
        target = store_of(kept).path(kept.add(data))
        assert target.read_bytes() == data
        folder = store_of(kept).folder
        first, parent = (target, size) if size <= SMALL else (before[-2][0], size), (target.parent, 0)
        assert before[-2:] == [first, parent]
        assert first[0] == target or first[0].parent.name == "incoming"
        assert {(folder, 0), (folder.parent, 0)} <= set(before)

    @pytest.mark.parametrize("left", [b"", b"hel", b"hellx", b"hello and more"])
    def test_what_a_crash_left_in_its_place_is_replaced(self, kept: Content, left: bytes) -> None:
        kept.add("other")
        target = store_of(kept).path(sha("hello"))
        target.write_bytes(left)
        assert kept.add("hello") == sha("hello")
        assert b"".join(kept.blobs.open(sha("hello"))) == b"hello"
        assert sorted(files(kept)) == sorted([sha("hello"), sha("other")])

    def test_a_flush_that_fails_is_no_upload(self, kept: Content, monkeypatch: pytest.MonkeyPatch) -> None:
        kept.add("other")

        def full(handle: int) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", full)
            with pytest.raises(Unavailable, match="full"):
                upload(kept, "a.txt", b"content")
        assert kept.artifacts.list("run") == []
        assert kept.blobs.missing([sha("content")]) == [sha("content")]
        upload(kept, "a.txt", b"content")
        assert b"".join(kept.blobs.open(sha("content"))) == b"content"

    def test_an_upload_is_one_transaction(self, kept: Content, monkeypatch: pytest.MonkeyPatch) -> None:
        batches = committed(kept, monkeypatch)
        upload(kept, "a.txt", b"content")
        assert batches == [1]
        assert [(one.path, one.digest, one.bytes) for one in kept.artifacts.list("run")] == [
            ("a.txt", sha("content"), 7)
        ]

    def test_uploads_to_one_run_share_a_transaction(self, kept: Content, monkeypatch: pytest.MonkeyPatch) -> None:
        batches = committed(kept, monkeypatch, wait_for=8)
        with ThreadPoolExecutor(9) as lanes:
            list(lanes.map(lambda n: upload(kept, f"{n}.txt", f"content {n}".encode()), range(9)))
        assert sum(batches) == 9
        assert len(batches) <= 2
        assert len(kept.artifacts.list("run")) == 9

    def test_paths_that_arrive_together_do_not_clash(self, kept: Content, monkeypatch: pytest.MonkeyPatch) -> None:
        """The second is refused while the first is not written yet."""
        writing, go = threading.Event(), threading.Event()
        keep = kept.blobs.keep

        def slow(*given: Any, **more: Any) -> tuple[str, int]:
            writing.set()
            assert go.wait(60)
            return keep(*given, **more)

        monkeypatch.setattr(kept.blobs, "keep", slow)
        with ThreadPoolExecutor(1) as lanes:
            first = lanes.submit(upload, kept, "a/b", b"1")
            assert writing.wait(60)
            for path in ("a", "a/b/c"):
                with pytest.raises(Conflict, match="both a file and a folder"):
                    upload(kept, path, b"2")
            go.set()
            first.result(60)
        upload(kept, "a/c", b"3")
        assert [one.path for one in kept.artifacts.list("run")] == ["a/b", "a/c"]


def store_of(kept: Content) -> LocalBlobs:
    assert isinstance(kept.blobs.blob_store, LocalBlobs)
    return kept.blobs.blob_store


def upload(kept: Content, path: str, data: bytes) -> None:
    stage = kept.blobs.stage()
    try:
        stage.write(data)
        kept.artifacts.upload("run", path, stage, len(data), "user:ada")
    finally:
        stage.drop()


def committed(kept: Content, monkeypatch: pytest.MonkeyPatch, wait_for: int = 0) -> list[int]:
    """Sizes of the transactions from now on. The first one is held up until so many proposals wait behind it."""
    commit: Any = kept.db.commit
    sizes: list[int] = []
    transact = commit._store.transact

    def counted(proposals: Sequence[Any]) -> Any:
        sizes.append(len(proposals))
        if len(sizes) == 1:
            others = wait_for + 1 - len(proposals)  # some may have come with the first
            until(lambda: commit._pending.qsize() >= others, "the others to be submitted", 60)
        return transact(proposals)

    monkeypatch.setattr(commit._store, "transact", counted)
    return sizes


@pytest.mark.component("tmpfs")
class TestHolders:
    @both
    def test_who_uploaded_it_may_name_it_until_it_is_collected(self, kept: Content) -> None:
        one, two = sha("one"), sha("two")
        ada, bob, worker = of_user("ada", []), of_user("bob", ["vision"]), of_project("vision")
        kept.blobs.put([b"one"], owner=ada.owner)
        kept.blobs.put_many([(one, b"one"), (two, b"two"), (two, b"two")], worker.owner)
        assert kept.blobs.missing([two, one], ada) == [two]
        assert kept.blobs.missing([two, one], bob) == []  # what the workers of a project upload is its members', too
        assert kept.blobs.missing([two, one], of_user("eve", ["other"])) == [two, one]
        assert kept.blobs.missing([two, one], of_user("root", None)) == []
        assert kept.blobs.has([two, one], ada) == {one}
        kept.pass_days(2)
        kept.blobs.collect()
        with kept.db.reading() as connection:
            assert connection.scalar(select(func.count()).select_from(blob_owners)) == 0
        kept.blobs.put([b"one"], owner=worker.owner)
        assert kept.blobs.missing([one], ada) == [one]

    def test_a_question_about_a_thousand_files_is_a_few_statements(self, kept: Content) -> None:
        asked: list[str] = []
        reader = kept.db.database.reader
        event.listen(reader, "before_cursor_execute", lambda *given: asked.append(given[2]))
        kept.blobs.missing([sha(str(number)) for number in range(900)], of_user("ada", ["vision", "default"]))
        assert len([text for text in asked if "blobs" in text]) == 2


def test_a_full_disk_leaves_nothing_and_says_so(tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "4m") as disk, content(f"sqlite:///{tmp_path}/m.db", local(disk)) as kept:
        with pytest.raises(Unavailable, match=r"full.*Free some space"):
            kept.blobs.put([b"x" * (1 << 20)] * 8)
        assert files(kept) == []
        assert kept.add("small") == sha("small")


class TestCollect:
    @both
    def test_only_what_is_old_and_nobody_refers_to(self, kept: Content) -> None:
        old, named = kept.add("old"), kept.add("named")
        kept.artifacts.put("run-1", "a/b.txt", named)
        kept.pass_days(2)
        young = kept.add("young")
        assert kept.blobs.collect(dry_run=True).blobs == 1
        assert kept.blobs.has([old])
        assert (kept.blobs.collect().blobs, kept.blobs.collect().blobs) == (1, 0)
        assert kept.blobs.has([old, named, young]) == {named, young}
        assert sorted(files(kept)) == sorted([named, young])

    @both
    def test_references_in_documents_and_snapshots(self, kept: Content) -> None:
        image, page, loose = kept.add("image"), kept.add("page"), kept.add("loose")
        tree = manifest(kept, **{"train.py": "import torch"})
        kept.artifacts.put("run-1", "muster/code.json", tree, kind="code")
        about = {"run": "run-1", "time": 1.0}
        row = {**about, "name": "i", "step": 1, "attempt": 1, "rank": 0, "kind": "image"}
        note = {**about, "project": "p", "author": "ada", "kind": "note", "text": "see", "mark": None}
        kept.db.write(
            lambda c: c.execute(insert(media), {**row, "doc": json.dumps({"digest": image})}),
            lambda c: c.execute(insert(notes), {**note, "doc": json.dumps({"attachments": [{"digest": page}]})}),
        )
        kept.pass_days(2)
        kept.blobs.collect()
        assert kept.blobs.missing([image, page, tree, sha("import torch"), loose]) == [loose]

    @both
    def test_a_question_makes_it_young(self, kept: Content) -> None:
        digest = kept.add("asked for")
        kept.pass_days(2)
        assert kept.blobs.missing([digest, sha("never seen")]) == [sha("never seen")]
        assert kept.blobs.collect().blobs == 0
        assert kept.blobs.has([digest])

    @both
    def test_release_does_not_wait_but_keeps_what_is_needed(self, kept: Content) -> None:
        secret, shared = kept.add("secret"), kept.add("shared")
        kept.artifacts.put("run-1", "x", secret)
        kept.artifacts.put("run-1", "y", shared)
        kept.artifacts.put("run-2", "y", shared)
        kept.artifacts.remove("run-1", "x")
        kept.artifacts.remove("run-1", "y")
        kept.blobs._protected.clear()  # as if an hour had passed since the uploads
        assert kept.blobs.release([secret, shared]).blobs == 1
        assert kept.blobs.has([secret, shared]) == {shared}
        assert files(kept) == [shared]

    def test_release_spares_what_somebody_was_just_told_to_be_there(self, kept: Content) -> None:
        digest = kept.add("told")
        kept.blobs._protected.clear()
        assert kept.blobs.missing([digest]) == []
        assert kept.blobs.release([digest]).blobs == 0

    def test_nothing_is_remembered_of_what_is_not_there(self, kept: Content) -> None:
        """However many somebody asks about."""
        there, foreign = kept.add("there"), kept.add("foreign")
        kept.blobs._protected.clear()
        many = [sha(f"absent {number}") for number in range(2_000)]
        assert kept.blobs.missing([*many, there]) == many
        assert kept.blobs.missing([*many, foreign], of_user("ada", ())) == [*many, foreign]
        assert kept.blobs._protected.keys() == {there}
        tree = kept.add(json.dumps({f"f{number}": [digest, 1, 0o644] for number, digest in enumerate(many)}))
        assert not kept.snapshots.whole(tree, of_user("ada", None))
        assert kept.blobs._protected.keys() == {there, tree}

    def test_a_bundle_that_just_came_is_spared(self, kept: Content) -> None:
        items = [(sha(text), text.encode()) for text in ("one", "two")]
        kept.blobs.put_many(items)
        assert kept.blobs.release(digest for digest, _ in items).blobs == 0

    def test_minutes_after_boot_nothing_counts_as_told(self, kept: Content, monkeypatch: pytest.MonkeyPatch) -> None:
        steady = [60.0]  # seconds since the boot
        monkeypatch.setattr("muster.track.blobs.time", SimpleNamespace(monotonic=lambda: steady[0]))
        unasked, asked = kept.add("unasked"), kept.add("asked")
        kept.blobs._protected.clear()  # a server that has just been started
        assert kept.blobs.missing([asked]) == []
        assert kept.blobs.release([unasked, asked]).blobs == 1
        assert kept.blobs.has([unasked, asked]) == {asked}
        steady[0] += 3_601.0
        assert kept.blobs.release([asked]).blobs == 1

    def test_what_a_crash_left(self, kept: Content) -> None:
        """A file without a row is what a kill leaves between the two."""
        stage = kept.blobs.stage()
        stage.write(b"orphan")
        kept.blobs.blob_store.keep(stage)
        kept.add("row")
        assert len(files(kept)) == 2
        kept.blobs.collect(grace=-1.0)
        assert files(kept) == []

    @both
    def test_collecting_while_others_upload(self, kept: Content) -> None:
        """Everybody who was told that content is there, or who uploaded it, finds it when the artifact is written."""
        texts, broken = [f"text {n}" for n in range(6)], list[str]()

        def client(seed: int, turn: int) -> None:
            choose = random.Random(100 * turn + seed)
            for text in choose.sample(texts, 4):
                path = f"{seed}/{text}"
                if kept.blobs.missing([sha(text)]):
                    kept.add(text)
                try:
                    made = kept.artifacts.put("run", path, sha(text))
                    assert b"".join(kept.artifacts.open(made)).decode() == text
                    kept.artifacts.remove("run", path)
                except NotFound as error:
                    broken.append(str(error))

        for turn in range(6):
            kept.pass_days(2)  # so that all that is there is old and nobody's
            clients = [threading.Thread(target=client, args=(seed, turn)) for seed in range(3)]
            for thread in clients:
                thread.start()
            while any(thread.is_alive() for thread in clients):
                kept.blobs.collect()
                kept.blobs.release(map(sha, texts))
        assert broken == []
