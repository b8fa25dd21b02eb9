"""Commits on the caller's thread, and a store that holds only the live state; all of it for simulations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future

from muster.core.errors import Unavailable
from muster.core.event import Event
from muster.core.job import Job
from muster.core.state import Changes, State, apply
from muster.store.base import Proposal, Store
from muster.store.memory import MemoryStore


class LiveStore(MemoryStore):
    """Folds events into the state like every store, but keeps neither the events nor finished jobs nor anything else.

    Nothing is encoded, so a payload may hold objects in place of JSON. An event that can't be folded can't be undone:
    there is no log to reload from.
    """

    def open(self) -> None:
        """Nothing to load."""

    def job(self, job_id: str) -> Job | None:
        return self.state().jobs.get(job_id)

    def transact(self, proposals: Sequence[Proposal]) -> list[list[Event] | Exception]:
        results: list[list[Event] | Exception] = []
        with self._lock:
            self._freshen()
            for proposal in proposals:
                try:
                    events = proposal(self._state).events
                except Exception as error:  # returned to the proposer
                    results.append(error)
                else:
                    results.append(self.fold(events) if events else [])
        return results

    def fold(self, events: Sequence[Event]) -> list[Event]:
        """Folds the events of a proposal into the state."""
        state, folded, changes = self._state, [], Changes()
        self._stale = True
        for event in events:
            if event.seq or event.time < state.time:  # already used, or late: the caller's event is not changed
                event = event.stamped(0)
                event.time = max(event.time, state.time)
            event.seq = state.version + 1
            apply(state, event, changes)
            folded.append(event)
        self._stale = False
        return folded

    def _load(self) -> State:
        raise Unavailable("An event could not be folded, and no log is kept to start again from.", "This is a bug.")


class SerialCommit:
    """A `GroupCommit` without a thread, over any store: what is submitted is committed at once."""

    def __init__(self, store: Store, on_commit: Callable[[Sequence[Event]], None]) -> None:
        self._store = store
        self._on_commit = on_commit

    def start(self) -> None:
        """Nothing to start."""

    def close(self) -> None:
        """Nothing is pending."""

    def submit(self, proposal: Proposal) -> Future[list[Event]]:
        future: Future[list[Event]] = Future()
        (result,) = self.each([proposal])
        if isinstance(result, Exception):
            future.set_exception(result)
        else:
            future.set_result(result)
        return future

    def run(self, proposals: Sequence[Proposal]) -> None:
        """Like `GroupCommit.run`, in one transaction."""
        for result in self.each(proposals):
            if isinstance(result, Exception):
                raise result

    def each(self, proposals: Sequence[Proposal]) -> list[list[Event] | Exception]:
        """One result for each proposal: its events, or what it raised."""
        results = self._store.transact(proposals)
        events = [event for result in results if not isinstance(result, Exception) for event in result]
        if events:
            self._on_commit(events)
        return results


class DirectCommit(SerialCommit):
    """The same over a `LiveStore`: a proposal costs one call."""

    def __init__(self, store: LiveStore, on_commit: Callable[[Sequence[Event]], None]) -> None:
        super().__init__(store, on_commit)
        self._live = store

    def run(self, proposals: Sequence[Proposal]) -> None:
        state, done, failure = self._live.state(), list[Event](), None
        for proposal in proposals:
            try:
                events = proposal(state).events
            except Exception as error:  # the other proposals are still committed
                failure = failure or error
            else:
                if events:
                    done += self._live.fold(events)
        if done:
            self._on_commit(done)
        if failure is not None:
            raise failure
