"""The outbox: messages to receivers outside the server, stored with their cause and delivered at least once.

A message is a row that is written in the transaction of its cause and deleted after its delivery. A failed delivery is
retried after a pause that doubles each time. After some days it is given up, and `muster doctor` reports it. A server
that is killed between a delivery and the deletion delivers again, with the same number.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from sqlalchemy import Connection, Table, delete, func, select, update

from muster.api.health import OutboxStatus
from muster.control.background import Background
from muster.control.clock import Clock
from muster.core.state import State
from muster.store.base import Entry, Record
from muster.store.codec import dumps, loads
from muster.store.commit import Commit
from muster.store.connect import Database
from muster.store.tables import outbox

log = logging.getLogger("muster.control")

FIRST_PAUSE: Final = 1.0  # seconds before the second try
LONGEST_PAUSE: Final = 3600.0  # seconds
GIVE_UP: Final = 3 * 86_400.0  # seconds after which a message is given up
FORGET: Final = 30 * 86_400.0  # seconds that a message that was given up is kept
AT_ONCE: Final = 8  # parallel deliveries
_PAGE: Final = 100
_PAUSE: Final = 1.0  # seconds between two looks for due messages
_ERROR_MAX: Final = 500  # characters


@dataclass(frozen=True, slots=True)
class Message:
    id: int  # the same at every try
    kind: str
    doc: dict[str, Any]
    made_at: float
    tries: int = 0


Deliver = Callable[[Message], None]  # raises when the receiver did not accept it


def message_row(kind: str, doc: Mapping[str, Any], now: float) -> tuple[Table, dict[str, Any]]:
    """A message for `Entry.rows`; it is delivered once the entry is durable."""
    row = {"made_at": now, "kind": kind, "doc": dumps(dict(doc)), "due_at": now, "tries": 0, "error": ""}
    return outbox, row


class Outbox:
    """Delivers messages in a thread. `deliver` has one function for each kind of message."""

    def __init__(
        self,
        database: Database,
        commit: Commit,
        clock: Clock,
        deliver: Mapping[str, Deliver],
        may_act: Callable[[], bool],
    ) -> None:
        self._database, self._commit, self._clock, self._deliver = database, commit, clock, deliver
        self._thread = Background("outbox", self.step, may_act, lambda spent: _PAUSE)
        self.start, self.close = self._thread.start, self._thread.close

    def step(self) -> None:
        """Delivers everything that is due. Raises Unavailable when the database can't be reached."""
        while due := self._due():
            with ThreadPoolExecutor(min(AT_ONCE, len(due))) as pool:
                errors = list(pool.map(self._try, due))
            now = self._clock.now()
            entry = Entry(records=[_settled(one, error, now) for one, error in zip(due, errors, strict=True)])
            self._commit.submit(partial(_given, entry)).result()
            if len(due) < _PAGE:
                break

    def status(self) -> OutboxStatus:
        """Number of waiting messages, number of messages that were given up, and the last error."""
        given_up = outbox.c.given_up_at.is_not(None)
        with self._database.reading() as connection:
            waiting = connection.execute(select(func.count(), func.min(outbox.c.made_at)).where(~given_up)).one()
            lost = connection.execute(select(func.count()).where(given_up)).scalar_one()
            last = select(outbox.c.error).where(outbox.c.error != "").order_by(outbox.c.due_at.desc()).limit(1)
            error = connection.execute(last).scalar() or ""
        return {"waiting": waiting[0], "oldest": waiting[1], "given_up": lost, "error": error}

    def _due(self) -> Sequence[Message]:
        where = (outbox.c.due_at <= self._clock.now(), outbox.c.given_up_at.is_(None))
        columns = (outbox.c.id, outbox.c.kind, outbox.c.doc, outbox.c.made_at, outbox.c.tries)
        with self._database.reading() as connection:
            rows = connection.execute(select(*columns).where(*where).order_by(outbox.c.due_at).limit(_PAGE)).all()
        return [Message(row.id, row.kind, loads(row.doc), row.made_at, row.tries) for row in rows]

    def _try(self, message: Message) -> str:
        """Delivers a message. Returns the error, or "" on success."""
        deliver = self._deliver.get(message.kind)
        if deliver is None:
            return f"this server has no way to deliver messages of the kind {message.kind!r}"
        try:
            deliver(message)
        except Exception as error:
            log.warning("message %d (%s) was not delivered: %s", message.id, message.kind, error)
            return (str(error) or type(error).__name__)[:_ERROR_MAX]
        return ""


def _given(entry: Entry, state: State) -> Entry:
    return entry


def pause(tries: int) -> float:
    """Seconds until the next try, after this number of tries."""
    return float(min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(tries - 1, 30)))


def _settled(message: Message, error: str, now: float) -> Record:
    here = outbox.c.id == message.id

    def record(connection: Connection) -> None:
        connection.execute(delete(outbox).where(outbox.c.given_up_at < now - FORGET))
        if not error:
            connection.execute(delete(outbox).where(here))
            return
        tries = message.tries + 1
        given_up_at = now if now - message.made_at > GIVE_UP else None
        values = {"tries": tries, "error": error, "due_at": now + pause(tries), "given_up_at": given_up_at}
        connection.execute(update(outbox).where(here).values(values))

    return record
