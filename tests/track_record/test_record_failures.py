"""Each kind of write of the record, made to fail: nothing else is held up or sent again, and its bytes are kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Connection

from muster.core.errors import RecordFailed
from muster.core.event import SYSTEM, Event
from muster.core.payload import KINDS, decode
from muster.core.record_events import NoteAdded
from muster.core.server_events import ServerLeads
from muster.store import records as store_records
from muster.store.base import Entry
from muster.track import document_rows, event_rows, intake
from muster.track.metrics import append
from muster.wire import WorkerExit
from record_kit import Record

END = WorkerExit("succeeded", "completed", "", exit_code=0, time=1.0)


def broken(*words: Any, **more: Any) -> Any:
    raise KeyError("a column that is not there")


def broken_record(*words: Any, **more: Any) -> Callable[[Connection], None]:
    return broken


# What a worker sends, and what of Muster's own is broken when it arrives.
SENT: dict[str, tuple[Any, str, Any, dict[str, Any], list[dict[str, Any]]]] = {
    "points": (append, "encode", lambda groups: object(), {"rows": [(1, 0.5)]}, []),
    "params": (document_rows, "take_params", broken, {}, [{"type": "params", "values": {"lr": 1}}]),
    "tags": (document_rows, "tags_record", broken_record, {}, [{"type": "tags", "values": {"a": "b"}}]),
    "note": (document_rows, "add_rank_note", broken, {}, [{"type": "note", "text": "hi"}]),
    "data": (document_rows, "put", broken, {}, [{"type": "data", "name": "c4", "role": "input"}]),
    "environment": (document_rows, "take_environment", broken, {}, [{"type": "environment", "python": "3.11"}]),
    "media": (document_rows, "_known_media", broken, {}, [
        {"type": "media", "name": "m", "kind": "text", "step": 1, "data": "x", "id": "1"}]),
}  # fmt: skip


@pytest.mark.parametrize("kind", SENT)
def test_what_a_worker_sends(record: Record, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    module, name, instead, given, docs = SENT[kind]
    job, other = record.submit(), record.submit()
    record.start(job)
    record.start(other)
    state = record.store.state()
    with monkeypatch.context() as patch:
        patch.setattr(module, name, instead)
        reply = record.report(job, *docs, **given)
    assert reply.acked[(0, "spool")] == record.sent[(job, 1, 0, "spool")], "it would be sent again and again"
    assert record.store.state() is state, "the state was loaded anew"
    (aside,) = record.store.set_aside()
    assert (aside.source, aside.run, aside.attempt) == ("spool of rank 0, from byte 0", job, 1)
    assert len(aside.data) == record.sent[(job, 1, 0, "spool")]
    record.report(job, rows=[(2, 0.25)])
    assert record.track.metrics.points(job, "loss", attempt=1).value[-1] == 0.25, "what comes later is kept"


def test_the_end_of_a_run_outside(record: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    run = record.track.runs.create(project="default", user="ada", source="sdk").id
    with monkeypatch.context() as patch:
        patch.setattr(intake, "_ended", broken_record)
        assert record.report(run, exit=END).done
    (aside,) = record.store.set_aside()
    assert (aside.source, aside.run) == ("what worker 0 said of itself", run)


def test_what_a_person_changes_is_refused_and_told(record: Record) -> None:
    run = record.track.runs.create(project="default", user="ada", source="sdk").id
    event = Event(NoteAdded(), record.later(), "ada", "default", run)
    with pytest.raises(RecordFailed):
        record.track.db.write(broken, events=[event])
    assert record.store.set_aside() == []


def test_the_rows_of_a_job_that_is_accepted(record: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = {"name": "x", "run": "true"}
    data = {"number": 1, "name": "x", "queue": "default", "user": "a", "key": None, "spec": spec}
    event = Event(decode("job.submitted", data), 1.0, "a", "default", "x-1")
    rows = record.track.submitted.rows_of_event(event, event.data, {})
    with monkeypatch.context() as patch:
        patch.setattr(store_records, "add_all", broken)
        record.commit.submit(lambda state: Entry([event], rows=rows)).result()
    assert record.store.job("x-1") is not None
    (aside,) = record.store.set_aside()
    assert (aside.source, aside.run) == ("job.submitted", "x-1")
    record.follower.reach()
    assert record.track.runs.need("x-1").name == "x", "the follower of the log writes what is missing"


@pytest.mark.parametrize("kind", ["attempt.running", "job.succeeded"])
def test_what_the_log_says(record: Record, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    job = record.submit()
    with monkeypatch.context() as patch:
        patch.setitem(event_rows._HANDLERS, KINDS[kind], broken)
        record.start(job)
        record.end(job, 1)
    (aside,) = record.store.set_aside()
    assert aside.source.endswith("for the follower record")
    assert f'"{kind}"'.encode() in aside.data
    assert record.track.runs.need(job).phase == "succeeded"
    record.events(Event(ServerLeads(holder="a", epoch=1), record.later(), SYSTEM))
    assert record.follower.lag().behind == 0
