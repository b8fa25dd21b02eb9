"""A write of the record that fails takes nothing else with it: it is refused, or set aside with its bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy
from sqlalchemy import Connection, select

from muster.core.errors import RecordFailed, Unavailable
from muster.core.event import Event
from muster.core.record_events import NoteAdded
from muster.store import record_tables, tables
from muster.store.base import Entry, EventFilter, SetAside, StreamWrite
from muster.store.insert import add
from muster.store.registry import open_store
from muster.store.sql import SqlStore
from scheduler_kit import job_event

NOTE = {"project": "p", "run": "r", "time": 1.0, "author": "a", "kind": "note", "text": "t", "doc": "{}"}


@pytest.fixture(params=["sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqlStore]:
    url = f"sqlite:///{tmp_path}/m.db" if request.param == "sqlite" else request.getfixturevalue("tables_url")
    made = open_store(url)
    assert isinstance(made, SqlStore)
    yield made
    made.close()


def note(mark: str) -> Callable[[Connection], None]:
    return lambda connection: add(connection, record_tables.notes, [{**NOTE, "mark": mark}])


def nonsense(connection: Connection) -> None:
    connection.execute(sqlalchemy.text("INSERT INTO nowhere VALUES (1)"))


def twice(connection: Connection) -> None:
    """The same key again, as a database refuses it."""
    row = {"name": "m", "value": 1}
    for _ in range(2):
        connection.execute(record_tables.track_marks.insert(), row)


def mistaken(connection: Connection) -> None:
    raise KeyError("a field that is not there")


def notes(store: SqlStore) -> list[str]:
    with store._db.reading() as connection:
        marks = connection.execute(select(record_tables.notes.c.mark)).scalars()
        return sorted(str(mark) for mark in marks)


FAILING = pytest.mark.parametrize("failing", [nonsense, twice, mistaken])


@FAILING
def test_the_others_of_the_batch_are_written(store: SqlStore, failing: Callable[[Connection], None]) -> None:
    audit = Event(NoteAdded(), 5.0, "ada", "p", "r")
    state = store.state()
    results = store.transact([
        lambda state: Entry([job_event(1)], records=[note("first")]),
        lambda state: Entry([audit], records=[note("lost"), failing]),
        lambda state: Entry([job_event(2)], records=[note("last")]),
    ])  # fmt: skip
    assert isinstance(results[1], RecordFailed)
    assert store.state() is state, "nothing had to be loaded anew"
    assert notes(store) == ["first", "last"]
    found = store.events(EventFilter())
    assert [event.kind for event in found] == ["job.submitted", "record.refused", "job.submitted"]
    assert (found[1].actor, found[1].data.kind) == ("ada", "note.added")
    assert store.set_aside() == []
    store.append([job_event(3)])
    assert store.version() == 4


@FAILING
def test_what_would_be_sent_again_is_set_aside_with_its_bytes(
    store: SqlStore, failing: Callable[[Connection], None]
) -> None:
    write = StreamWrite("j", 1, 0, "spool", 0, 8)
    origin = SetAside("spool of rank 0", "j", 1, b"12345678", time=7.0)
    entry = Entry(streams=[write], records=[note("lost"), failing], origin=lambda: [origin])
    (result,) = store.transact([lambda state: entry])
    assert result == []
    assert store.streams("j", 1)[(0, "spool")].acked == 8, "it is acknowledged, and nobody sends it again"
    (aside,) = store.set_aside()
    assert (aside.source, aside.run, aside.attempt, aside.data, aside.time) == (
        "spool of rank 0", "j", 1, b"12345678", 7.0,
    )  # fmt: skip
    assert "could not be written" in aside.error
    assert notes(store) == []


@FAILING
def test_an_event_that_the_state_follows_from_stays(store: SqlStore, failing: Callable[[Connection], None]) -> None:
    row: tuple[Any, dict[str, Any]] = (record_tables.track_marks, {"name": "x", "value": 1})
    store.transact([lambda state: Entry([job_event(1)], rows=[row], records=[failing])])
    assert store.job("job-1") is not None
    (aside,) = store.set_aside()
    assert (aside.source, aside.run) == ("job.submitted", "job-1")
    assert b'"track_marks"' in aside.data


def test_errors_that_quote_what_no_database_holds_are_kept(store: SqlStore) -> None:
    def quoting(connection: Connection) -> None:
        raise ValueError("got 'a\0b\ud800c'")

    row: tuple[Any, dict[str, Any]] = (record_tables.track_marks, {"name": "x\ud800", "value": b"\xff"})
    aside = SetAside("event \0\ud800", "r\0", 1, b"12", "KeyError('\0\ud800')")
    results = store.transact([
        lambda state: Entry(aside=[aside]),
        lambda state: Entry([job_event(1)], records=[quoting], rows=[row]),
        lambda state: Entry([Event(NoteAdded(), 9.0, "ada", "p", "r")], records=[quoting]),
    ])  # fmt: skip
    assert isinstance(results[2], RecordFailed)
    refused = store.events(EventFilter(kind="record.refused"))
    assert "'a\ufffdb?c'" in refused[0].data.error
    rows, first = store.set_aside()
    assert (first.source, first.run, first.error) == ("event \ufffd?", "r\ufffd", "KeyError('\ufffd?')")
    assert b"track_marks" in rows.data
    assert b"\\ud800" in rows.data


def test_the_mark_of_a_follower_stays_with_what_it_wrote(store: SqlStore) -> None:
    results = store.transact([
        lambda state: Entry(marks={"a": 5}, records=[note("one")]),
        lambda state: Entry(marks={"b": 6}, records=[mistaken]),
        lambda state: Entry(marks={"c": 7}),
    ])  # fmt: skip
    assert isinstance(results[1], RecordFailed)
    assert store.marks() == {"a": 5, "c": 7}


def test_a_database_in_trouble_fails_the_batch_and_sets_nothing_aside(store: SqlStore) -> None:
    def full(connection: Connection) -> None:
        raise Unavailable("The disk is full.")

    with pytest.raises(Unavailable):
        store.transact([lambda state: Entry([job_event(1)], records=[full], origin=lambda: [SetAside("x")])])
    assert (store.version(), store.set_aside()) == (0, [])
    with store._db.reading() as connection:
        assert connection.execute(select(tables.jobs)).all() == []


def test_rows_of_many_entries_take_one_statement(store: SqlStore) -> None:
    seen: list[str] = []

    @sqlalchemy.event.listens_for(store._db.writer, "before_cursor_execute")
    def note_statement(conn: Any, cursor: Any, statement: str, *more: Any) -> None:
        seen.append(statement)

    def entry(number: int) -> Entry:
        return Entry([job_event(number)], rows=[(record_tables.notes, {**NOTE, "mark": f"m{number}"})])

    store.transact([lambda state, n=n: entry(n) for n in range(1, 6)])
    assert notes(store) == [f"m{n}" for n in range(1, 6)]
    assert sum("INTO notes" in statement for statement in seen) == 1
    assert sum(statement.startswith("SAVEPOINT") for statement in seen) == 1
