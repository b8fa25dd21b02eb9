"""Deleting a run really deletes it, even while it logs."""

from __future__ import annotations

import io
import threading

import pytest
from sqlalchemy import String, cast, inspect, select

from muster.control.follow import Follower
from muster.core.errors import Conflict, NotFound, Unavailable
from muster.core.event import Event
from muster.core.record_events import RunPurged
from muster.store.base import Entry, EventFilter
from muster.store.tables import metadata
from muster.wire import Batch, Piece, WorkerExit
from record_kit import Record


def everywhere(record: Record, text: str) -> list[str]:
    """The tables in which the text still stands."""
    found = []
    with record.track.db.reading() as connection:
        for name in inspect(connection).get_table_names():
            table = metadata.tables.get(name)
            for column in table.columns if table is not None else ():
                if connection.execute(select(column).where(cast(column, String).contains(text))).first() is not None:
                    found.append(name)
    return sorted(set(found))


@pytest.fixture
def full(record: Record) -> str:
    """A job that has a row in every table."""
    job = record.submit("python train.py --lr 1", data=["d@v1"], tags={"a": "b"}, purpose="why")
    record.start(job)
    digest, _ = record.track.blobs.put(io.BytesIO(b"content of the run"), owner="project:default")
    record.report(
        job,
        {"type": "params", "values": {"lr": 2}},
        {"type": "artifact", "path": "a.txt", "digest": digest, "bytes": 18, "kind": "file"},
        {"type": "media", "id": "1", "kind": "text", "name": "m", "step": 1, "data": {"text": "x"}},
        {"type": "checkpoint", "step": 40, "path": "/c/40", "bytes": 5},
        {"type": "note", "text": "hello"},
        {"type": "data", "name": "made", "role": "output"},
        rows=[(0, 1.0)],
    )
    record.ingest.accept(job, 1, Batch(0, "running", None, (Piece(0, "log", 0, b"output"),)))
    record.end(job, 1)
    return job


def test_nothing_is_left(record: Record, full: str) -> None:
    for folder in ("checkpoints", "attempts"):
        (record.home / "local" / folder / full).mkdir(parents=True)
    (record.home / "local" / "checkpoints" / full / "step-40").write_bytes(b"x")
    counts = record.track.purge.purge(full, "eve")
    assert counts["runs"] == counts["artifacts"] == counts["media"] == counts["log_chunks"] == 1
    assert counts["links"] == 3
    assert everywhere(record, full) == ["attempts", "events", "jobs", "track_marks"]
    assert not list((record.home / "local" / "checkpoints").iterdir())
    assert record.track.blobs.collect(grace=0).blobs == 1  # nothing refers to it any more
    event = record.store.events(EventFilter(job=full, last=True, limit=1))[0]
    assert (event.kind, event.actor, event.data.rows) == ("run.purged", "eve", counts)
    with pytest.raises(NotFound):
        record.track.purge.purge(full, "eve")


def test_neither_the_log_nor_a_late_worker_brings_it_back(record: Record, full: str) -> None:
    record.track.purge.purge(full, "eve")
    reply = record.report(full, {"type": "params", "values": {"late": 1}}, rows=[(9, 9.0)])
    assert reply.acked[(0, "spool")] == record.sent[(full, 1, 0, "spool")]
    record.commit.submit(lambda state: Entry(marks={"record": 0})).result()
    Follower("record", record.track.fold.fold, record.store, record.commit).reach()
    assert everywhere(record, full) == ["attempts", "events", "jobs", "track_marks"]


def test_an_id_is_never_given_again(light: Record) -> None:
    run = light.track.runs.create(project="p", user="ada", source="import:x").id
    light.track.purge.purge(run, "eve")
    with pytest.raises(Conflict, match="is, or was"):
        light.track.runs.create(project="p", user="ada", source="import:x", id=run)


def test_a_run_that_is_deleted_while_it_logs(record: Record) -> None:
    run = record.track.runs.create(project="p", user="ada", source="sdk").id
    stop = threading.Event()
    failures: list[BaseException] = []

    def log() -> None:
        step = 0
        while not stop.is_set():
            try:
                record.report(run, {"type": "params", "values": {f"p{step}": step}}, rows=[(step, 1.0)])
            except BaseException as error:
                failures.append(error)
                return
            step += 1

    writer = threading.Thread(target=log)
    writer.start()
    try:
        while not record.track.runs.params([run])[run]:
            pass
        record.track.purge.purge(run, "eve")
        acked = record.report(run, rank=1, rows=[(0, 1.0)]).acked[(1, "spool")]
    finally:
        stop.set()
        writer.join()
    assert failures == []
    assert acked == record.sent[(run, 1, 1, "spool")]
    assert record.report(run, exit=WorkerExit("succeeded", "completed", "", 5.0)).done
    assert everywhere(record, run) == ["events", "track_marks"]


def test_what_is_refused(record: Record) -> None:
    job = record.submit()
    with pytest.raises(Conflict, match="is queued"):
        record.track.purge.purge(job, "eve")
    record.start(job)
    record.end(job, 1)
    record.track.models.register("gpt", user="ada", run=job, project="p")
    with pytest.raises(Conflict, match="gpt/1 was made from"):
        record.track.purge.purge(job, "eve")
    record.track.models.delete("gpt")
    record.track.purge.purge(job, "eve")


def test_a_deletion_that_fails_changes_nothing(light: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    run = light.track.runs.create(project="p", user="ada", source="sdk").id

    def full_disk(*_: object) -> object:
        raise Unavailable("The disk is full.")

    with monkeypatch.context() as patch:
        patch.setattr(type(light.store), "_write", full_disk)
        with pytest.raises(Unavailable):
            light.track.purge.purge(run, "eve")
    light.report(run, {"type": "params", "values": {"a": 1}})
    assert light.track.runs.params([run])[run] == {"a": "1"}


def test_what_others_refer_to_stays(record: Record) -> None:
    runs = [record.track.runs.create(project="p", user="ada", source="sdk").id for _ in range(2)]
    digest, _ = record.track.blobs.put(io.BytesIO(b"shared"), owner="project:default")
    for run in runs:
        record.track.artifacts.put(run, "a", digest)
    record.track.purge.purge(runs[0], "eve")
    record.track.blobs.collect(grace=0)
    assert b"".join(record.track.blobs.open(digest)) == b"shared"
    record.track.purge.purge(runs[1], "eve")
    record.track.blobs.collect(grace=0)
    with pytest.raises(NotFound):
        b"".join(record.track.blobs.open(digest))


def test_the_bytes_are_overwritten(light: Record) -> None:
    secret = "a-very-secret-value-" * 20
    run = light.track.runs.create(project="p", user="ada", source="sdk", params={"k": secret}).id
    light.track.purge.purge(run, "eve")
    light.store.close()
    files = [path for path in light.home.parent.iterdir() if path.name.startswith("m.db")]
    assert files
    assert all(b"a-very-secret-value" not in path.read_bytes() for path in files)


def test_the_marks_of_purged_runs_outlive_the_server(record: Record) -> None:
    run = record.track.runs.create(project="p", user="ada", source="sdk").id
    record.track.purge.purge(run, "eve")
    fresh = type(record.track.purged)(record.track.db)
    assert run in fresh
    assert "other" not in fresh
    event = Event(RunPurged(rows={}), record.later(), "eve", "p", "elsewhere")
    record.commit.submit(lambda state: Entry([event])).result()
    record.follower.reach()
    assert "elsewhere" in type(record.track.purged)(record.track.db)
