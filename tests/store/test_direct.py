"""Committing on the caller's thread into a store that keeps the live state alone."""

from __future__ import annotations

import pytest

from muster.core.errors import Conflict, Invalid, Unavailable
from muster.core.event import Event
from muster.core.parse import parse_job
from muster.core.payload import decode
from muster.core.server_events import ServerLeads
from muster.core.state import State
from muster.store.base import Entry, EventFilter
from muster.store.direct import DirectCommit, LiveStore
from muster.store.memory import MemoryStore
from scheduler_kit import job_event, node_event
from store_kit import plain

NOTE = Event(ServerLeads(holder="a", epoch=1), 5.0)


@pytest.fixture
def store() -> LiveStore:
    made = LiveStore()
    made.open()
    return made


def test_it_stamps_and_never_lets_time_run_backwards(store: LiveStore) -> None:
    early, late = Event(ServerLeads(), 20.0), Event(ServerLeads(), 95.0)
    store.append([Event(ServerLeads(), 90.0)])
    assert [(event.seq, event.time) for event in store.append([early, late])] == [(2, 90.0), (3, 95.0)]
    assert (early.seq, early.time) == (0, 20.0)
    assert (store.state().version, store.state().time) == (3, 95.0)


def test_the_same_event_may_be_appended_twice(store: LiveStore) -> None:
    event = Event(ServerLeads(), 5.0)
    assert [one.seq for one in [*store.append([event]), *store.append([event])]] == [1, 2]


def test_it_folds_as_the_memory_store_does(store: LiveStore) -> None:
    events = [node_event("n1", 4, 8), job_event(1, gpus=2), job_event(2), NOTE]
    other = MemoryStore()
    other.open()
    for one in (store, other):
        one.append([event.stamped(0) for event in events], expected_version=0)
    assert plain(store.state().jobs) == plain(other.state().jobs)
    assert plain(store.state().nodes) == plain(other.state().nodes)
    assert store.events(EventFilter()) == []
    with pytest.raises(Conflict, match="version 4"):
        store.append([NOTE], expected_version=0)


def test_an_event_may_carry_the_spec_itself(store: LiveStore) -> None:
    event = job_event(1, gpus=2)
    spec = parse_job({"name": "job", "run": "true", "gpus": 2})
    event.data.spec = spec
    store.append([event])
    job = store.job("job-1")
    assert job is not None
    assert job.spec is spec


def test_a_proposal_that_raises_is_refused_alone(store: LiveStore) -> None:
    told: list[int] = []
    commit = DirectCommit(store, lambda events: told.extend(event.seq for event in events))

    def bad(state: State) -> Entry:
        raise Invalid("no")

    seen: list[int] = []

    def good(state: State) -> Entry:
        seen.append(state.version)
        return Entry([NOTE.stamped(0)])

    first, second, third = commit.each([good, bad, good])
    assert seen == [0, 1]
    assert [event.seq for event in first] == [1]
    assert isinstance(second, Invalid)
    assert [event.seq for event in third] == [2]
    assert told == [1, 2]
    with pytest.raises(Invalid):
        commit.run([bad, good])
    assert told == [1, 2, 3]
    assert [event.seq for event in commit.submit(good).result()] == [4]
    with pytest.raises(Invalid):
        commit.submit(bad).result()


def test_nobody_is_told_of_nothing(store: LiveStore) -> None:
    commit = DirectCommit(store, lambda events: pytest.fail("there was nothing to tell"))
    commit.run([lambda state: Entry()])
    assert commit.submit(lambda state: Entry()).result() == []


def test_what_cannot_be_folded_is_the_end_of_it(store: LiveStore) -> None:
    nonsense = Event(decode("attempt.planned", {"seats": []}), 1.0, job="nobody", attempt=1)
    with pytest.raises(KeyError):
        store.append([nonsense])
    with pytest.raises(Unavailable, match="no log is kept"):
        store.state()
