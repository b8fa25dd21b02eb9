"""Group commit: one transaction for a crowd, everyone answered, and an end that loses nothing."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path

import pytest

from muster.core.errors import Conflict, Invalid, Unavailable
from muster.core.event import Event
from muster.core.server_events import ServerLeads
from muster.core.state import State
from muster.store.base import Entry, Proposal, RunPatch
from muster.store.commit import GroupCommit
from muster.store.memory import MemoryStore
from muster.store.registry import open_store
from scheduler_kit import job_event

NOTE = Event(ServerLeads(holder="a", epoch=1), 5.0)
PATIENCE = 30.0  # seconds


class CountingStore(MemoryStore):
    """Remembers how many proposals came in each transaction."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []

    def transact(self, proposals: Sequence[Proposal]) -> list[list[Event] | Exception]:
        self.sizes.append(len(proposals))
        return super().transact(proposals)


@pytest.fixture
def store() -> CountingStore:
    return CountingStore()


@pytest.fixture
def told() -> list[list[int]]:
    return []


@pytest.fixture
def commit(store: CountingStore, told: list[list[int]]) -> Iterator[GroupCommit]:
    made = GroupCommit(store, lambda events: told.append([event.seq for event in events]))
    made.start()
    yield made
    made.close()


def note(state: State) -> Entry:
    return Entry([NOTE])


def seqs(future: Future[list[Event]]) -> list[int]:
    return [event.seq for event in future.result(PATIENCE)]


def hold(commit: GroupCommit) -> threading.Event:
    """Keeps the thread busy in a transaction of its own until the event is set."""
    entered, release = threading.Event(), threading.Event()

    def wait(state: State) -> Entry:
        entered.set()
        assert release.wait(PATIENCE)
        return Entry()

    commit.submit(wait)
    assert entered.wait(PATIENCE)
    return release


def test_a_lone_proposal(commit: GroupCommit) -> None:
    assert seqs(commit.submit(note)) == [1]
    assert seqs(commit.submit(note)) == [2]


def test_a_crowd_shares_one_transaction(commit: GroupCommit, store: CountingStore, told: list[list[int]]) -> None:
    release = hold(commit)
    crowd = [commit.submit(lambda state: Entry([job_event(state.next_number)])) for _ in range(100)]
    release.set()
    assert [seqs(future) for future in crowd] == [[seq] for seq in range(1, 101)]
    assert store.sizes == [1, 100]
    assert told == [list(range(1, 101))]


def test_what_is_refused_is_refused_alone(commit: GroupCommit) -> None:
    def refuse(state: State) -> Entry:
        raise Invalid("no")

    release = hold(commit)
    first, second, third = commit.submit(note), commit.submit(refuse), commit.submit(note)
    release.set()
    assert (seqs(first), seqs(third)) == ([1], [2])
    with pytest.raises(Invalid):
        second.result(PATIENCE)


def test_a_failed_transaction_is_told_to_all_and_the_next_goes_on(tmp_path: Path) -> None:
    ours, theirs = (open_store(f"sqlite:///{tmp_path}/m.db") for _ in range(2))
    told: list[int] = []
    commit = GroupCommit(ours, lambda events: told.extend(event.seq for event in events))
    commit.start()
    theirs.append([NOTE])
    release = hold(commit)
    crowd = [commit.submit(note) for _ in range(3)]
    release.set()
    for future in crowd:
        with pytest.raises(Conflict):
            future.result(PATIENCE)
    assert seqs(commit.submit(note)) == [2]
    assert told == [2]
    commit.close()
    ours.close()
    theirs.close()


def test_listeners_hear_before_those_who_wait(store: CountingStore) -> None:
    heard: list[int] = []
    futures: list[Future[list[Event]]] = []
    commit = GroupCommit(store, lambda events: heard.extend(int(future.done()) for future in futures))
    futures.append(commit.submit(note))
    commit.start()
    assert seqs(futures[0]) == [1]
    assert heard == [0]
    commit.close()


def test_listeners_hear_of_events_only(commit: GroupCommit, told: list[list[int]]) -> None:
    commit.submit(lambda state: Entry()).result(PATIENCE)
    commit.submit(lambda state: Entry(patches=[RunPatch("j", {"step": 1})])).result(PATIENCE)
    commit.submit(note).result(PATIENCE)
    assert told == [[1]]


def test_a_listener_that_fails_does_no_harm(store: CountingStore, caplog: pytest.LogCaptureFixture) -> None:
    def fail(events: Sequence[Event]) -> None:
        raise RuntimeError("a listener's own mistake")

    commit = GroupCommit(store, fail)
    commit.start()
    with caplog.at_level(logging.ERROR):
        assert seqs(commit.submit(note)) == [1]
        assert seqs(commit.submit(note)) == [2]
    assert "a listener's own mistake" in caplog.text
    commit.close()


def test_who_no_longer_waits_is_left_out(commit: GroupCommit, store: CountingStore) -> None:
    release = hold(commit)
    first, second = commit.submit(note), commit.submit(note)
    assert first.cancel()
    release.set()
    assert seqs(second) == [1]
    assert store.state().version == 1


@pytest.mark.parametrize("started", [True, False])
def test_closing_commits_what_came_before_and_lets_nothing_in(store: CountingStore, started: bool) -> None:
    commit = GroupCommit(store, lambda events: None)
    if started:
        commit.start()
    futures = [commit.submit(note) for _ in range(20)]
    commit.close()
    assert [seqs(future) for future in futures] == [[seq] for seq in range(1, 21)]
    with pytest.raises(Unavailable, match="stopping"):
        commit.submit(note)
    commit.close()
