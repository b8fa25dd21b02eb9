"""Committing on the caller's own thread, and a store that keeps the live state alone: what a simulation runs on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future

from muster.core.errors import Unavailable
from muster.core.event import Event
from muster.core.job import Job
from muster.core.state import Changes, State, apply
from muster.store.base import Proposal
from muster.store.memory import MemoryStore


class LiveStore(MemoryStore):
    """Folds events into the state as every store does, and keeps neither them nor what has ended nor anything else.

    Nothing is encoded, so an event may carry objects where its JSON would have text. What can't be folded can't be
    taken back either: there is no log to start again from.
    """

    def open(self) -> None:
        """There is nothing to load."""

    def job(self, job_id: str) -> Job | None:
        return self.state().jobs.get(job_id)

    def transact(self, proposals: Sequence[Proposal]) -> list[list[Event] | Exception]:
        results: list[list[Event] | Exception] = []
        with self._lock:
            self._freshen()
            for proposal in proposals:
                try:
                    events = proposal(self._state).events
                except Exception as error:  # it is the proposer's, who gets it back
                    results.append(error)
                else:
                    results.append(self.fold(events) if events else [])
        return results

    def fold(self, events: Sequence[Event]) -> list[Event]:
        """Takes in what a proposal wants written."""
        state, folded, changes = self._state, [], Changes()
        self._stale = True
        for event in events:
            if event.seq or event.time < state.time:  # used before, or late: the caller's own is left as it is
                event = event.stamped(0)
                event.time = max(event.time, state.time)
            event.seq = state.version + 1
            apply(state, event, changes)
            folded.append(event)
        self._stale = False
        return folded

    def _load(self) -> State:
        raise Unavailable("An event could not be folded, and no log is kept to start again from.", "This is a bug.")


class DirectCommit:
    """A `GroupCommit` without a thread: whoever submits commits, so a proposal costs a call and waits for nobody."""

    def __init__(self, store: LiveStore, on_commit: Callable[[Sequence[Event]], None]) -> None:
        self._store = store
        self._on_commit = on_commit

    def start(self) -> None:
        """There is nothing to start."""

    def close(self) -> None:
        """Nothing waits."""

    def submit(self, proposal: Proposal) -> Future[list[Event]]:
        future: Future[list[Event]] = Future()
        (result,) = self.each([proposal])
        if isinstance(result, Exception):
            future.set_exception(result)
        else:
            future.set_result(result)
        return future

    def run(self, proposals: Sequence[Proposal]) -> None:
        """As of `GroupCommit`."""
        state, done, failure = self._store.state(), list[Event](), None
        for proposal in proposals:
            try:
                events = proposal(state).events
            except Exception as error:  # the others are committed all the same
                failure = failure or error
            else:
                if events:
                    done += self._store.fold(events)
        if done:
            self._on_commit(done)
        if failure is not None:
            raise failure

    def each(self, proposals: Sequence[Proposal]) -> list[list[Event] | Exception]:
        """One result a proposal: its events, or what it raised."""
        results = self._store.transact(proposals)
        events = [event for result in results if not isinstance(result, Exception) for event in result]
        if events:
            self._on_commit(events)
        return results
