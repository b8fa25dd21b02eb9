"""Followers: every event once, over restarts, outages and events that can't be folded; and how far behind they are."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection

from live import until
from muster.control import follow
from muster.control.follow import Follower
from muster.core.errors import Unavailable
from muster.core.event import Event
from muster.core.server_events import ServerLeads
from muster.store.base import Entry, RunPatch, Store
from muster.store.commit import GroupCommit
from muster.store.direct import DirectCommit
from muster.store.registry import open_store
from scheduler_kit import job_event


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    made = open_store("memory:" if request.param == "memory" else f"sqlite:///{tmp_path}/m.db")
    yield made
    made.close()


class Folded:
    """Keeps the seqs that were folded in the store itself, so that a test sees what was written once or twice."""

    def __init__(self, store: Store, commit: Any = None, **more: Any) -> None:
        self.store = store
        self.commit = commit or DirectCommit(store, lambda events: None)
        self.bad: set[int] = set()
        self.follower = Follower("test", self.fold, store, self.commit, **more)

    def fold(self, events: Sequence[Event]) -> Entry:
        if self.bad & {event.seq for event in events}:
            raise KeyError("spec")
        return Entry(patches=[RunPatch("log", {"seqs": [*self.seqs(), *(event.seq for event in events)]})])

    def seqs(self) -> list[int]:
        found: list[int] = self.store.run("log").get("seqs", [])
        return found


def submit(store: Store, *numbers: int) -> list[Event]:
    return store.append([job_event(number) for number in numbers])


def test_every_event_once_over_restarts(store: Store) -> None:
    submit(store, 1, 2)
    assert Folded(store).follower.reach()
    submit(store, 3)
    again = Folded(store)
    assert again.follower.reach()
    assert not again.follower.reach()
    assert again.seqs() == [1, 2, 3]
    assert store.marks() == {"test": 3}


@pytest.mark.parametrize("page", [1, 2, 3])
def test_pages(store: Store, page: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "PAGE", page)
    made = Folded(store)
    submit(store, *range(1, 8))
    made.follower.reach()
    made.follower.on_commit(submit(store, *range(8, 15)))
    made.follower.reach()
    assert made.seqs() == list(range(1, 15))


def test_what_was_just_committed_is_not_read_again(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Folded(store)
    made.follower.on_commit(submit(store, 1))
    made.follower.reach()
    monkeypatch.setattr(store, "events", None)
    made.follower.on_commit(submit(store, 2, 3))
    made.follower.on_commit(submit(store, 4))
    made.follower.reach()
    assert made.seqs() == [1, 2, 3, 4]


@pytest.mark.parametrize("lost", ["some", "many", "inner"])
def test_what_it_was_not_told_is_read(store: Store, lost: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "HELD", 5)
    made = Folded(store)
    made.follower.on_commit(submit(store, 1))
    made.follower.reach()
    if lost == "some":
        submit(store, 2)
        made.follower.on_commit(submit(store, 3))
    elif lost == "many":
        made.follower.on_commit(submit(store, *range(2, 20)))
    else:
        events = submit(store, 2, 3, 4)
        made.follower.on_commit([events[0], events[2]])
    made.follower.reach()
    assert made.seqs() == list(range(1, store.version() + 1))


def test_one_kind_alone(store: Store) -> None:
    made = Folded(store, kind="server.leads")
    lead = Event(ServerLeads(holder="a", epoch=1), 5.0)
    submit(store, 1)
    store.append([lead])
    made.follower.reach()
    for batch in ([job_event(2)], [job_event(3), lead]):
        made.follower.on_commit(store.append(batch))
    made.follower.reach()
    submit(store, 4)
    assert (made.seqs(), made.follower.lag().behind) == ([2, 5], 1)
    made.follower.reach()
    assert made.follower.lag().behind == 0


def test_one_that_begins_behind_the_last_misses_nothing_after_that(store: Store) -> None:
    submit(store, 1, 2)
    Folded(store, begin="last").follower.reach()
    submit(store, 3)
    again = Folded(store, begin="last")
    again.follower.reach()
    assert again.seqs() == [3]


def test_an_event_that_can_not_be_folded_is_set_aside(store: Store) -> None:
    made = Folded(store)
    made.bad = {2}
    submit(store, 1, 2, 3)
    made.follower.reach()
    assert made.seqs() == [1, 3]
    (aside,) = store.set_aside()
    assert (aside.source, aside.run) == ("event 2 for the follower test", "job-2")
    assert (b'"job.submitted"' in aside.data, "KeyError" in aside.error) == (True, True)
    assert store.marks() == {"test": 3}


def test_a_write_that_the_record_refuses_is_set_aside_too(tmp_path: Path) -> None:
    store = open_store(f"sqlite:///{tmp_path}/m.db")

    def fold(events: Sequence[Event]) -> Entry:
        def record(connection: Connection) -> None:
            if any(event.seq == 2 for event in events):
                raise ValueError("no")

        return Entry(records=[record])

    submit(store, 1, 2, 3)
    Follower("test", fold, store, DirectCommit(store, lambda events: None)).reach()
    assert [one.source for one in store.set_aside()] == ["event 2 for the follower test"]
    assert store.marks() == {"test": 3}
    store.close()


@pytest.mark.parametrize("lose", ["request", "answer"])
def test_an_outage_loses_nothing_and_folds_nothing_twice(store: Store, lose: str) -> None:
    class Flaky(DirectCommit):
        broken = True

        def submit(self, proposal: Any) -> Any:
            if self.broken and lose == "request":
                raise Unavailable("The database went away.")
            done = super().submit(proposal)
            if self.broken:
                done.result()
                raise Unavailable("The connection broke during the commit.")
            return done

    commit = Flaky(store, lambda events: None)
    made = Folded(store, commit)
    submit(store, 1, 2)
    with pytest.raises(Unavailable):
        made.follower.reach()
    commit.broken = False
    made.follower.reach()
    assert made.seqs() == [1, 2]


def test_its_thread_is_woken_by_commits_and_says_what_is_wrong(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "FALLBACK", 0.05)
    told: list[Folded] = []
    commit = GroupCommit(store, on_commit=lambda events: [one.follower.on_commit(events) for one in told] and None)
    broken = threading.Event()

    class Troubled(Folded):
        def fold(self, events: Sequence[Event]) -> Entry:
            if broken.is_set():
                raise Unavailable("no database")
            return super().fold(events)

    made = Troubled(store, commit)
    told.append(made)
    commit.start()
    made.follower.start()
    try:
        commit.submit(lambda state: Entry([job_event(1)])).result()
        until(lambda: made.seqs() == [1], "the first")
        broken.set()
        commit.submit(lambda state: Entry([job_event(2)])).result()
        until(lambda: made.follower.lag().trouble == "no database", "the trouble to be told")
        assert made.follower.lag().behind == 1
        broken.clear()
        until(lambda: made.seqs() == [1, 2], "the second")
        until(lambda: not made.follower.lag().trouble, "the trouble to be over")
    finally:
        made.follower.close()
        commit.close()


@pytest.mark.parametrize("bad", [False, True])
def test_a_shutdown_does_not_wait_for_a_backlog(store: Store, bad: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "PAGE", 10)
    folding, go_on = threading.Event(), threading.Event()

    class Slow(Folded):
        def fold(self, events: Sequence[Event]) -> Entry:
            folding.set()
            assert go_on.wait(180)
            return super().fold(events)

    submit(store, *range(1, 101))
    made = Slow(store)
    made.bad = set(range(1, 101)) if bad else set()
    made.follower.start()
    assert folding.wait(180)
    closing = threading.Thread(target=made.follower.close, args=(True,))
    closing.start()
    assert made.follower._stopped.wait(180)
    go_on.set()
    closing.join(180)
    assert not closing.is_alive()
    left = store.marks()["test"]
    assert left == (2 if bad else 20), "the batch in progress, and one more"
    again = Folded(store)
    again.follower.reach()
    assert again.seqs() == list(range(3 if bad else 1, 101))


def test_one_that_may_not_act_does_nothing(store: Store) -> None:
    made = Folded(store, may_act=lambda: False)
    submit(store, 1)
    made.follower.start()
    made.follower.close(once_more=True)
    assert made.seqs() == []


def test_one_that_is_not_durable_begins_behind_the_last(store: Store) -> None:
    submit(store, 1)
    made = Folded(store, durable=False)
    made.follower.reach()
    submit(store, 2)
    made.follower.reach()
    assert (made.seqs(), store.marks()) == ([2], {})
