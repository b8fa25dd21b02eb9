"""Journals of Optuna, on both databases: one order, nothing twice, nothing of a deleted one."""

from __future__ import annotations

import threading
from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.core.errors import Conflict, Invalid, NotFound, Refused
from muster.store.base import EventFilter
from muster.track import optuna_journals
from muster.track.optuna_journals import OptunaJournals
from muster.track.usage import Usage
from record_kit import Record


def append(to: OptunaJournals, *logs: str, name: str = "j", key: str = "", journal: int = 0) -> int:
    return to.append("default", name, "ada", key or uuid4().hex, logs, journal).first


def read_all(of: OptunaJournals, name: str = "j", after: int = 0) -> list[str]:
    found: list[str] = []
    while True:
        page = of.read("default", name, after + len(found))
        found += page.logs
        if after + len(found) >= page.end:
            return found
        assert page.logs, "a page has at least one log"


def test_logs_have_one_order_and_are_read_from_any_number(record: Record) -> None:
    journals = record.track.optuna
    assert journals.read("default", "j", 0) == (0, 0, [])
    assert [append(journals, "a", "b"), append(journals, "c"), append(journals, "d", name="other")] == [0, 2, 0]
    known = journals.read("default", "j", 0)
    assert known == (known.id, 3, ["a", "b", "c"])
    assert journals.read("default", "j", 2, known.id).logs == ["c"]
    assert journals.read("default", "j", 3, known.id).logs == journals.read("default", "j", 300, known.id).logs == []
    assert journals.between(known.id, 1, 2) == ["b"]
    again = OptunaJournals(record.track.db, Usage(record.track.db))  # as after a restart of the server
    assert read_all(again) == ["a", "b", "c"]
    assert append(again, "e") == 3
    listed = [(one.project, one.name, one.user, one.logs, one.bytes) for one in again.journals(["default"])]
    assert listed == [("default", "j", "ada", 4, 4), ("default", "other", "ada", 1, 1)]
    assert again.journals(["elsewhere"]) == []


def test_a_repeated_append_appends_nothing(record: Record) -> None:
    journals = record.track.optuna
    key = uuid4().hex
    assert append(journals, "a", "b", key=key) == 0
    assert append(journals, "c") == 2
    assert append(journals, "a", "b", key=key) == 0
    again = OptunaJournals(record.track.db, Usage(record.track.db))
    assert append(again, "a", "b", key=key) == 0
    assert append(again, "a", key=key, name="other") == 0  # a key is of one journal
    assert read_all(again) == ["a", "b", "c"]
    kinds = [event.kind for event in record.store.events(EventFilter()) if event.kind.startswith("optuna.")]
    assert kinds == ["optuna.created", "optuna.created"]


@settings(max_examples=15, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5), st.booleans()), max_size=20))
def test_many_writers_that_repeat_what_they_sent(plan: list[tuple[int, int, bool]]) -> None:
    """Against a list, which is what a journal is."""
    journals, expected = _JOURNALS[0], list[str]()
    name = f"h{uuid4().hex}"
    for turn, (writer, count, twice) in enumerate(plan):
        logs = [f"{writer}:{turn}:{at}" for at in range(count)]
        key = uuid4().hex
        for _ in range(1 + twice):
            assert append(journals, *logs, name=name, key=key) == len(expected)
        expected += logs
    for after in range(len(expected) + 1):
        assert read_all(journals, name, after) == expected[after:]


_JOURNALS: list[OptunaJournals] = []


@pytest.fixture(autouse=True)
def kept(light: Record) -> None:
    _JOURNALS[:] = [light.track.optuna]


def test_threads_that_append_at_once_get_every_number_once(record: Record) -> None:
    journals, found = record.track.optuna, list[int]()

    def work(writer: int) -> None:
        for turn in range(20):
            found.append(append(journals, f"{writer}:{turn}"))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert sorted(found) == list(range(160))
    assert sorted(read_all(journals)) == sorted(f"{writer}:{turn}" for writer in range(8) for turn in range(20))
    assert len([one for one in journals.journals(None) if one.name == "j"]) == 1


def test_nothing_is_written_into_a_journal_that_was_deleted(record: Record) -> None:
    journals = record.track.optuna
    append(journals, "a")
    old = journals.read("default", "j", 0).id
    journals.save_snapshot("default", "j", old, "f", 1, b"x")
    journals.delete("default", "j", "ada")
    with pytest.raises(NotFound):
        journals.delete("default", "j", "ada")
    for _ in range(2):
        with pytest.raises(Conflict):
            append(journals, "b", journal=old)
        with pytest.raises(Conflict):
            journals.read("default", "j", 0, old)
        with pytest.raises(Conflict):
            journals.save_snapshot("default", "j", old, "f", 1, b"x")
        assert append(journals, "new") in (0, 1)  # somebody makes it anew, and it has another id
    assert journals.read("default", "j", 0).id > old
    assert journals.snapshot("default", "j", "f") is None


def test_a_page_is_bounded(record: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    journals = record.track.optuna
    logs = [f"{n:03}" for n in range(100)]
    append(journals, *logs)
    monkeypatch.setattr(optuna_journals, "_PAGE_LOGS", 7)
    assert journals.read("default", "j", 3).logs == logs[3:10]
    monkeypatch.setattr(optuna_journals, "_PAGE_BYTES", 7)
    assert journals.read("default", "j", 3).logs == logs[3:5]
    monkeypatch.setattr(optuna_journals, "_PAGE_BYTES", 1)
    assert journals.read("default", "j", 3).logs == logs[3:4]
    assert read_all(journals) == logs


def test_what_is_too_much_or_can_not_be_stored_is_refused(record: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    journals = record.track.optuna
    for logs in ((), ["a"] * 1001, ["\0"], ["\ud800"]):
        with pytest.raises(Invalid):
            append(journals, *logs)
    with pytest.raises(Invalid, match="can't be the name"):
        append(journals, "a", name="../x")
    monkeypatch.setattr(optuna_journals, "LOGS_MAX", 3)
    append(journals, "a", "b", "c")
    with pytest.raises(Invalid, match="is full"):
        append(journals, "d")
    full = OptunaJournals(record.track.db, Usage(record.track.db, {"default": 10}.get))
    with pytest.raises(Refused) as refused:
        append(full, "x" * 8, name="k")
    assert [one.code for one in refused.value.reasons] == ["over_quota"]
    append(full, "x" * 7, name="k")  # with the three that are there
    assert [one.name for one in full.journals(None)] == ["j", "k"]


def test_of_snapshots_the_one_with_most_logs_is_kept(record: Record) -> None:
    journals = record.track.optuna
    append(journals, *"abcdefgh")
    here = journals.read("default", "j", 0).id
    assert journals.snapshot("default", "j", "f") is None
    assert journals.save_snapshot("default", "j", here, "f", 4, b"four") == 4
    assert journals.save_snapshot("default", "j", here, "f", 2, b"two") == 4
    assert journals.snapshot("default", "j", "f") == b"four"
    assert journals.save_snapshot("default", "j", here, "f", 8, b"eight") == 8
    assert journals.snapshot("default", "j", "f") == b"eight"
    with pytest.raises(Invalid):
        journals.save_snapshot("default", "j", here, "f", 9, b"more than there are")
    for number, name in enumerate("ghijk", 3):  # of more versions than a journal keeps
        journals.save_snapshot("default", "j", here, name, number, name.encode())
    kept = {name for name in "fghijk" if journals.snapshot("default", "j", name)}
    assert kept == {"f", "i", "j", "k"}
