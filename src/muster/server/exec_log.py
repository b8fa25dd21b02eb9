"""Exec sessions that a server left open in the event log when it was killed: the next one records their end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from muster.core.event import Event
from muster.core.server_events import ExecEnded, ExecOpened
from muster.store.base import EventFilter, Store

CAUSE: Final = "The server was killed, or lost the lease, during the session."
_PAGE: Final = 500


def left_open(store: Store, now: float) -> list[Event]:
    """The ends of the sessions that were opened since a server last took the lease, and have none.

    Call it before this server records that it leads, and append both together: so it need not look further back.
    """
    led = store.events(EventFilter(kind="server.leads", last=True, limit=1))
    since = led[-1].seq if led else 0
    ended = {event.data.exec for event in _events(store, "exec.ended", since) if isinstance(event.data, ExecEnded)}
    found = []
    for event in _events(store, "exec.opened", since):
        opened = event.data
        if isinstance(opened, ExecOpened) and opened.exec not in ended:
            end = ExecEnded(opened.exec, opened.worker, None, CAUSE, round(max(0.0, now - event.time), 3))
            found.append(Event(end, now, event.actor, event.project, event.job, event.attempt))
    return found


def _events(store: Store, kind: str, after: int) -> Iterator[Event]:
    while True:
        page = store.events(EventFilter(kind=kind, after=after, limit=_PAGE))
        yield from page
        if len(page) < _PAGE:
            return
        after = page[-1].seq
