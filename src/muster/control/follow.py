"""Followers of the event log: each folds every event once, and stores its mark together with what the fold returned.

A commit wakes the follower and passes it the new events in memory. After a restart, or when it is far behind, the
follower reads them from the store. An event that it can't fold is set aside, and the following ones are folded.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from muster.core.errors import Conflict, MusterError, Unavailable
from muster.core.event import Event
from muster.store.base import Entry, EventFilter, SetAside, Store
from muster.store.codec import dumps, storable
from muster.store.commit import Commit

log = logging.getLogger("muster.control")

PAGE: Final = 1000  # events per transaction; other commits wait for it
HELD: Final = 10_000  # events kept in memory for a slow follower; it reads older ones from the store
REST: Final = 0.05  # seconds between two rounds, so that the events of many commits are folded together
FALLBACK: Final = 5.0  # seconds after which a follower looks for events even if nothing woke it
TIMEOUT: Final = 5.0  # seconds that a reader waits for a follower that is far behind

# Returns what to write for these events, which are in the order of the log. The follower adds the mark. A fold must not
# change what it remembers before the write is durable: if the write fails, the same events come again.
Fold = Callable[[Sequence[Event]], Entry]


@dataclass(frozen=True, slots=True)
class Lag:
    """How far a follower is behind the log. `trouble`: the error of its last round, or ""."""

    name: str
    seq: int
    behind: int  # events
    trouble: str = ""


class Follower:
    """Runs a fold over the event log in a thread.

    `kind`: the one kind of events that it folds, or a prefix that ends in "."; None means all. `begin`: where it starts
    without a mark: at the first event of the log, or after the last. `durable`: whether its mark is stored; a follower
    that is not durable starts after the last event each time. `every`: returns the seconds until the next round, for a
    fold that runs at certain times rather than after commits; it then runs even if there is no event.
    """

    def __init__(
        self,
        name: str,
        fold: Fold,
        store: Store,
        commit: Commit,
        may_act: Callable[[], bool] = lambda: True,
        *,
        kind: str | None = None,
        begin: Literal["first", "last"] = "first",
        durable: bool = True,
        every: Callable[[], float] | None = None,
    ) -> None:
        self.name = name
        self._fold, self._store, self._commit, self._may_act = fold, store, commit, may_act
        self._kind, self._begin, self._durable, self._every = kind, begin, durable, every
        self._round = threading.Lock()
        self._at: int | None = None  # seq of the last folded event; None: read it from the store
        self._stored = 0  # the stored mark; it is not moved while there is nothing else to write
        self._held = _Held(kind)
        self._trouble = ""
        self._woken, self._stopped = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"follow-{name}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self, once_more: bool = False) -> None:
        """Waits for the batch in progress; `once_more` folds a last one. The next start goes on from the mark."""
        self._stopped.set()
        self._woken.set()
        if self._thread.ident is not None:
            self._thread.join()
            if once_more:
                self._try()

    def on_commit(self, events: Sequence[Event]) -> None:
        """Called by the thread that commits, so it must be quick."""
        self._held.add(events)
        if self._every is None:
            self._woken.set()

    def reach(self, patience: float | None = TIMEOUT) -> bool:
        """Folds on the caller's thread what is durable by now, for about `patience` seconds; False if nothing was new.

        For a reader that must see everything that was committed before its request.
        """
        if patience is None:
            return self._fold_while(lambda: True)
        until = time.monotonic() + patience
        return self._fold_while(lambda: time.monotonic() <= until, patience)

    def lag(self) -> Lag:
        at = self._at if self._at is not None else self._store.marks().get(self.name, 0)
        return Lag(self.name, at, max(0, self._store.version() - at), self._trouble)

    def _fold_while(self, go_on: Callable[[], bool], patience: float = -1) -> bool:
        """Folds one batch after another while `go_on`; False if nothing was new. `patience`: for another's round."""
        if not self._round.acquire(timeout=patience):
            return False
        try:
            return self._fold_batches(go_on)
        except BaseException:
            self._at = None  # the write may have happened anyway: read the mark from the store
            raise
        finally:
            self._round.release()

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._woken.clear()
            worked = self._try()
            if self._every is not None:
                self._stopped.wait(self._every())
            else:
                self._stopped.wait(REST if worked else FALLBACK)
                self._woken.wait(FALLBACK)

    def _try(self) -> bool:
        try:
            if self._may_act():
                self._fold_while(lambda: not self._stopped.is_set())
            self._trouble = ""
        except MusterError as error:
            self._trouble = storable(error.message)
            log.warning("%s could not follow the log, and tries again: %s", self.name, error)
        except Exception as error:
            self._trouble = storable(repr(error))
            log.exception("%s failed to follow the log, and tries again", self.name)
        return not self._trouble

    def _fold_batches(self, go_on: Callable[[], bool]) -> bool:
        if self._at is None:
            self._at = self._first()
        folded = False
        while True:
            events, end = self._next(self._at)
            if not events and (folded or self._every is None):
                self._at = end
                return folded
            self._at, folded = self._write(events, end), True
            if not go_on():
                return True

    def _first(self) -> int:
        if not self._durable:
            return self._store.version()
        marked = self._store.marks().get(self.name)
        if marked is None:
            marked = 0 if self._begin == "first" else self._store.version()
            if marked:  # so that events before its first write are not skipped after a restart
                self._commit.submit(lambda state: Entry(marks={self.name: marked})).result()
        self._stored = marked
        return marked

    def _next(self, at: int) -> tuple[Sequence[Event], int]:
        """Some events after `at`, and the seq up to which there are no others."""
        held = self._held.after(at)
        if held is not None:
            return held
        head = self._store.version()
        events = self._store.events(EventFilter(kind=self._kind, after=at, limit=PAGE)) if head > at else []
        if len(events) == PAGE:
            return events, events[-1].seq
        return events, max(head, at, events[-1].seq if events else 0)

    def _write(self, events: Sequence[Event], end: int) -> int:
        """Folds the events and writes the result; the seq that was reached."""
        try:
            self._put(self._fold(events), end)
        except (Unavailable, Conflict):
            raise
        except Exception:
            if not events:
                raise
            log.exception("%s could not fold events %d to %d together", self.name, events[0].seq, end)
            return self._one_by_one(events, end)
        return end

    def _one_by_one(self, events: Sequence[Event], end: int) -> int:
        for event in events:
            try:
                self._put(self._fold([event]), event.seq)
            except (Unavailable, Conflict):
                raise
            except Exception as error:
                log.exception("%s sets event %d aside", self.name, event.seq)
                source, data = f"event {event.seq} for the follower {self.name}", dumps(event.to_dict()).encode()
                aside = SetAside(source, event.job, event.attempt, data, repr(error)[:500], event.time)
                self._put(Entry(aside=[aside]), event.seq)
            if self._stopped.is_set():
                return event.seq
        self._put(Entry(), end)
        return end

    def _put(self, entry: Entry, end: int) -> None:
        if entry.empty and (not self._durable or end - self._stored < PAGE):
            return
        if self._durable:
            entry.marks = {self.name: end}
        self._commit.submit(lambda state: entry).result()
        self._stored = end


class _Held:
    """The newest events of the kind, without a gap, from seq `_from` to `_to`."""

    def __init__(self, kind: str | None) -> None:
        self._kind = kind
        self._lock = threading.Lock()
        self._events: deque[Event] = deque()
        self._from, self._to = 1, 0

    def add(self, events: Sequence[Event]) -> None:
        wanted = [event for event in events if self._wants(event)]
        first, last = events[0].seq, events[-1].seq
        with self._lock:
            if last - first + 1 != len(events) or len(wanted) > HELD:  # there are other events between them in the log
                self._events.clear()
                self._from, self._to = last + 1, last
                return
            if first != self._to + 1 or len(self._events) + len(wanted) > HELD:
                self._events.clear()
                self._from = first
            self._events.extend(wanted)
            self._to = last

    def after(self, at: int) -> tuple[Sequence[Event], int] | None:
        """Like `Follower._next`; None when the events must be read from the store."""
        with self._lock:
            if at + 1 < self._from or at >= self._to:
                return None
            while self._events and self._events[0].seq <= at:
                self._events.popleft()
            self._from = at + 1
            page = [self._events[number] for number in range(min(PAGE, len(self._events)))]
            return page, page[-1].seq if len(page) == PAGE else self._to

    def _wants(self, event: Event) -> bool:
        kind = self._kind or ""
        return event.kind.startswith(kind) if kind.endswith(".") or not kind else event.kind == kind
