"""Reading output costs what is returned: the last lines are read from the end, pages are bounded, gaps are told."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from muster.core.state import State
from muster.server import log_reader
from muster.server.log_reader import LogReader
from muster.store.base import Entry, LogChunk, Store, StreamWrite
from muster.store.registry import open_store
from scheduler_kit import job_event

LINE = b"%07d ................................................................................ \n"


class Counting:
    """A store that counts the bytes of output which are read from it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.read = 0

    def logs(self, *args: Any, **kwargs: Any) -> list[LogChunk]:
        found = self._store.logs(*args, **kwargs)
        self.read += sum(len(chunk.data) for chunk in found)
        return found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Counting]:
    urls = {"memory": lambda: "memory:", "sqlite": lambda: f"sqlite:///{tmp_path}/muster.db"}
    opened = open_store(urls.get(request.param, lambda: request.getfixturevalue("tables_url"))())
    yield Counting(opened)
    opened.close()


def reader(store: Counting, attempt: int | None = None, rank: int | None = None, after: int = 0) -> LogReader:
    leader: Any = SimpleNamespace(store=store, log_limit=10_000_000)
    return LogReader(leader, job_of(store), attempt, rank, after)


def job_of(store: Counting) -> Any:
    if not store.state().jobs:
        store.append([job_event(1)])
    return next(iter(store.state().jobs.values()))


def write(
    store: Counting,
    rank: int,
    start: int,
    data: bytes,
    keep: int | None = None,
    attempt: int = 1,
    time: float = 0.0,
) -> None:
    job = job_of(store).id
    streams = [StreamWrite(job, attempt, rank, "log", start, start + len(data), log=data, keep=keep, time=time)]

    def propose(state: State) -> Entry:
        return Entry(streams=streams)

    assert store.transact([propose]) == [[]]


def fill(store: Counting, rank: int, size: int) -> bytes:
    text = b"".join(LINE % number for number in range(size // len(LINE % 0)))
    for at in range(0, len(text), 4 << 20):
        write(store, rank, at, text[at : at + (4 << 20)])
    return text


def test_the_last_line_of_a_long_log_costs_one_chunk(store: Counting) -> None:
    text = fill(store, 0, 20_000_000)
    found = reader(store).tail(1)
    assert [view["text"] for view in found] == [(text[-len(LINE % 0) :]).decode()]
    assert store.read <= 4 * (64 << 10)


def test_many_lines_cost_what_they_are(store: Counting) -> None:
    text = fill(store, 0, 8_000_000)
    (view,) = reader(store).tail(10_000)
    assert view["text"].encode() == text[-10_000 * len(LINE % 0) :]
    assert store.read <= 5 * len(view["text"])


def test_of_each_rank_and_then_on_from_there(store: Counting) -> None:
    for rank in range(5):
        write(store, rank, 0, b"".join(b"rank %d line %d\n" % (rank, line) for line in range(100)))
    store.attempts = lambda job_id: [SimpleNamespace(number=1)]
    following = reader(store)
    assert {view["rank"]: view["text"] for view in following.tail(2)} == {
        rank: f"rank {rank} line 98\nrank {rank} line 99\n" for rank in range(5)
    }
    write(store, 3, sum(len(f"rank 3 line {line}\n") for line in range(100)), b"new\n")
    assert [(view["rank"], view["text"]) for view in following.read(1 << 20)[0]] == [(3, "new\n")]
    assert [view["rank"] for view in reader(store, rank=2).tail(1)] == [2]
    assert reader(store).tail(0) == []
    assert reader(store, attempt=7).tail(5) == []


def test_lines_are_those_that_a_terminal_shows(store: Counting) -> None:
    texts = [b"", b"a", b"a\n", b"a\nb", b"\n\n\n", b"a\nb\nc\nd", b"a\nb\nc\n"]
    for attempt, text in enumerate(texts, 1):
        for at in range(len(text)):
            write(store, 0, at, text[at : at + 1], attempt=attempt)
        for lines in (1, 2, 3, 50):
            shown = "".join(view["text"] for view in reader(store, attempt).tail(lines))
            assert shown == "".join(text.decode().splitlines(keepends=True)[-lines:])


def test_what_one_answer_holds_is_bounded(store: Counting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_reader, "TAIL_BYTES", 40_000)
    monkeypatch.setattr(log_reader, "TAIL_RANKS", 4)
    for rank in range(6):
        write(store, rank, 0, b"x" * 300_000 + b"\n" + b"y" * 100 + b"\n")
    found = reader(store).tail(100_000)
    assert sum(len(view["text"]) for view in found) <= 41_000
    assert all(view["text"].endswith(f"{'y' * 100}\n") for view in found[:4])
    assert found[4]["text"] == "[muster] 2 more ranks are not shown: ask for one of them alone\n"


def test_a_page_is_as_large_as_was_asked_for(store: Counting) -> None:
    store.attempts = lambda job_id: [SimpleNamespace(number=1)]
    text = fill(store, 0, 3_000_000)
    one = reader(store)
    store.read = 0
    views, complete = one.read(100_000)
    assert not complete
    assert store.read <= 200_000
    rest, complete = one.read(1 << 30)
    assert complete
    assert "".join(view["text"] for view in views + rest).encode() == text


def test_attempts_come_in_the_order_of_arrival(store: Counting) -> None:
    job = job_of(store)
    texts = []
    for number in range(40):
        attempt = 1 + (number // 3) % 2 if number < 20 else 2
        offset = sum(len(text) for who, text in texts if who == attempt)
        text = b"line %d\n" % number
        write(store, 0, offset, text, attempt=attempt)
        texts.append((attempt, text))
    both: Any = SimpleNamespace(number=1), SimpleNamespace(number=2)
    store.attempts = lambda job_id: list(both) if job_id == job.id else []
    views, complete = reader(store).read(1 << 20)
    assert complete
    assert [(view["attempt"], view["text"].encode()) for view in views] == texts


def test_a_gap_is_a_line_that_says_how_much_is_missing_and_why(store: Counting) -> None:
    store.attempts = lambda job_id: [SimpleNamespace(number=1)]
    write(store, 0, 0, b"one\n")
    following, late = reader(store), reader(store)
    assert [view["text"] for view in following.read(1 << 20)[0]] == ["one\n"]
    write(store, 0, 1_000, b"two\n")
    (marker, two) = following.read(1 << 20)[0]
    assert (marker["dropped"], marker["offset"], marker["end"], two["text"]) == (996, 4, 1_000, "two\n")
    assert "996 bytes of the output of rank 0 are missing here: its worker could not keep them" in marker["text"]
    write(store, 0, 20_000_000, b"three\n")
    assert (
        "past `log_limit` (10MB of each rank) the first and the last part are kept" in late.read(1 << 20)[0][1]["text"]
    )
    # Who comes back with the id of a line that stands for a gap gets what is behind the gap.
    again = reader(store, after=marker["id"]).read(1 << 20)[0]
    assert [view["text"] for view in again if "dropped" not in view] == ["two\n", "three\n"]
    assert next(view["text"] for view in reader(store).tail(2)).splitlines()[1] == "three"


def test_who_has_seen_what_was_dropped_since_is_not_told_that_it_is_missing(store: Counting) -> None:
    store.attempts = lambda job_id: [SimpleNamespace(number=1)]
    text, following, seen = b"".join(LINE % number for number in range(2_000)), reader(store), ""
    for at in range(0, len(text), 1_000):
        write(store, 0, at, text[at : at + 1_000], keep=40_000)
        seen += "".join(view["text"] for view in following.read(1 << 20)[0])
    assert seen.encode() == text
    assert any("dropped" in view for view in reader(store).read(1 << 20)[0])


def test_the_last_lines_have_the_times_of_their_chunks_and_what_is_older_is_left_out(store: Counting) -> None:
    at = 0
    for number, text in enumerate([b"a\nb\n", b"c\n", b"d\nhalf", b" and half\ne\n"]):
        write(store, 0, at, text, time=100.0 + number)
        at += len(text)
    (view,) = reader(store).tail(4)
    assert (view["text"], view["times"]) == ("c\nd\nhalf and half\ne\n", [(0, 101.0), (1, 102.0), (2, 103.0)])
    leader: Any = SimpleNamespace(store=store, log_limit=10_000_000)
    since = LogReader(leader, job_of(store), 1, None, 0, since=102.0)
    views, end = since.read(1 << 20)
    assert end
    assert [view["text"] for view in views] == ["d\nhalf", " and half\ne\n"], "nothing counts as missing"
    assert [view["times"] for view in views] == [[(0, 102.0)], [(0, 103.0)]]
    (view,) = LogReader(leader, job_of(store), None, None, 0, since=102.0).tail(99)
    assert view["text"] == "d\nhalf and half\ne\n"
