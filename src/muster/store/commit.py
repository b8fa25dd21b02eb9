"""Group commit: one thread collects proposals and commits them in one transaction.

While a transaction is being written to the disk, the next one collects proposals. So a single proposal does not wait
for others, and many proposals share one flush.
"""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from typing import Final, Protocol

from muster.core.errors import Unavailable
from muster.core.event import Event
from muster.store.base import Proposal, Store

_LOG: Final = logging.getLogger(__name__)

Pending = tuple[Proposal, "Future[list[Event]]"]


class Commit(Protocol):
    """Takes proposals and makes them durable."""

    def submit(self, proposal: Proposal) -> Future[list[Event]]:
        """The proposal's events once they are durable; or what it raised, Unavailable or Conflict."""

    def run(self, proposals: Sequence[Proposal]) -> None:
        """Returns once all proposals are durable; raises the error of the first one that failed."""


class GroupCommit:
    """`on_commit` gets the events of a transaction, if it has any, before the futures are resolved. It must be fast."""

    def __init__(self, store: Store, on_commit: Callable[[Sequence[Event]], None]) -> None:
        self._store = store
        self._on_commit = on_commit
        self._pending: queue.SimpleQueue[Pending | None] = queue.SimpleQueue()
        self._gate = threading.Lock()  # so that no proposal is queued after the end marker
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="group-commit", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Commits what was submitted before, then ends. May be called twice."""
        with self._gate:
            if not self._closed:
                self._closed = True
                self._pending.put(None)
        if self._thread.ident is None:
            self._thread.start()  # resolves the futures of proposals that were submitted although it was never started
        self._thread.join()

    def submit(self, proposal: Proposal) -> Future[list[Event]]:
        """The proposal's events once they are durable; or what it raised, Unavailable or Conflict."""
        future: Future[list[Event]] = Future()
        with self._gate:
            if self._closed:
                raise Unavailable("This server is stopping.", "Try again when it is back.")
            self._pending.put((proposal, future))
        return future

    def run(self, proposals: Sequence[Proposal]) -> None:
        futures = [self.submit(proposal) for proposal in proposals]
        wait(futures)  # if one fails, the others are still completed
        for future in futures:
            future.result()

    def _run(self) -> None:
        more = True
        while more:
            batch, more = self._gather()
            batch = [(proposal, future) for proposal, future in batch if future.set_running_or_notify_cancel()]
            if batch:
                self._commit(batch)

    def _gather(self) -> tuple[list[Pending], bool]:
        """Waits for one proposal, then takes all that are queued; False when the end marker was among them."""
        batch: list[Pending] = []
        item = self._pending.get()
        while item is not None:
            batch.append(item)
            try:
                item = self._pending.get_nowait()
            except queue.Empty:
                return batch, True
        return batch, False

    def _commit(self, batch: Sequence[Pending]) -> None:
        try:
            results = self._store.transact([proposal for proposal, _ in batch])
        except Exception as error:
            for _, future in batch:
                future.set_exception(error)
            return
        events = [event for result in results if not isinstance(result, Exception) for event in result]
        if events:
            self._notify(events)
        for (_, future), result in zip(batch, results, strict=True):
            if isinstance(result, Exception):
                future.set_exception(result)
            else:
                future.set_result(result)

    def _notify(self, events: Sequence[Event]) -> None:
        try:
            self._on_commit(events)
        except Exception:
            # The events are committed: an error of a listener must not look like a failed write.
            _LOG.exception("a listener failed after a commit of %d events", len(events))
