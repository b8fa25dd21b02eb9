"""The rows of the outbox: which messages are due to which receiver, and what a try changes in them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, Table, case, delete, func, select, update

from muster.api.health import OutboxStatus
from muster.store.base import Record
from muster.store.codec import dumps, loads, storable
from muster.store.connect import Database
from muster.store.tables import outbox

FIRST_PAUSE: Final = 1.0  # seconds before the second try
LONGEST_PAUSE: Final = 3600.0  # seconds
GIVE_UP: Final = 3 * 86_400.0  # seconds after which a message is given up
FORGET: Final = 30 * 86_400.0  # seconds that a message that was given up is kept
_ERROR_MAX: Final = 500  # characters
_WAITING: Final = outbox.c.given_up_at.is_(None)


@dataclass(frozen=True, slots=True)
class Message:
    id: int  # the same at every try
    kind: str
    doc: dict[str, Any]
    made_at: float
    tries: int = 0


@dataclass(frozen=True, slots=True)
class Tried:
    """A message after a try. `error`: "" if it was delivered. `away`: the receiver accepts no message at present."""

    message: Message
    error: str = ""
    away: bool = False


def message_row(kind: str, doc: Mapping[str, Any], now: float, receiver: str = "") -> tuple[Table, dict[str, Any]]:
    """A message for `Entry.rows`; it is delivered once the entry is durable. `receiver`: its name among its kind."""
    to = storable(f"{kind} {receiver}".strip())
    row = {"made_at": now, "kind": kind, "receiver": to, "doc": dumps(dict(doc)), "due_at": now, "tries": 0}
    return outbox, {**row, "error": ""}


def pause(tries: int) -> float:
    """Seconds until the next try, after this number of tries."""
    return float(min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** min(tries - 1, 30)))


def receivers(database: Database) -> list[str]:
    """Those that have waiting messages. Each costs a look into the index, however many messages it has."""
    found: list[str] = []
    with database.reading() as connection:
        while True:
            others = [outbox.c.receiver > found[-1]] if found else []
            first = connection.execute(select(func.min(outbox.c.receiver)).where(_WAITING, *others)).scalar()
            if first is None:
                return found
            found.append(first)


def due(database: Database, receiver: str, now: float, limit: int) -> Sequence[Message]:
    """The messages that have waited longest. One that was refused is behind those that were not tried yet."""
    columns = (outbox.c.id, outbox.c.kind, outbox.c.doc, outbox.c.made_at, outbox.c.tries)
    chosen = select(*columns).where(_WAITING, outbox.c.receiver == receiver, outbox.c.due_at <= now)
    with database.reading() as connection:
        rows = connection.execute(chosen.order_by(outbox.c.due_at, outbox.c.id).limit(limit)).all()
    return [Message(row.id, row.kind, loads(row.doc), row.made_at, row.tries) for row in rows]


def number_overdue(database: Database, receiver: str, now: float) -> int:
    """How many messages of the receiver wait for longer than `GIVE_UP`."""
    with database.reading() as connection:
        return int(connection.execute(select(func.count()).where(*_overdue(receiver, now))).scalar_one())


def status(database: Database) -> OutboxStatus:
    """Number of waiting messages, number of messages that were given up, and the last error."""
    with database.reading() as connection:
        waiting = connection.execute(select(func.count(), func.min(outbox.c.made_at)).where(_WAITING)).one()
        lost = connection.execute(select(func.count()).where(~_WAITING)).scalar_one()
        last = select(outbox.c.error).where(outbox.c.error != "").order_by(outbox.c.due_at.desc()).limit(1)
        error = connection.execute(last).scalar() or ""
    return {"waiting": waiting[0], "oldest": waiting[1], "given_up": lost, "error": error}


def settled(tried: Sequence[Tried], now: float) -> Record:
    """Deletes what was delivered, sets the next try of the rest, and forgets what was given up long ago."""

    def record(connection: Connection) -> None:
        connection.execute(delete(outbox).where(outbox.c.given_up_at < now - FORGET))
        for one in tried:
            here, tries = outbox.c.id == one.message.id, one.message.tries + 1
            if not one.error:
                connection.execute(delete(outbox).where(here))
                continue
            values = {
                "tries": tries,
                "error": storable(one.error[:_ERROR_MAX]),
                "due_at": now + pause(tries),
                "given_up_at": now if is_overdue(one.message, now) else None,
            }
            connection.execute(update(outbox).where(here).values(values))

    return record


def given_up(receiver: str, error: str, now: float) -> Record:
    """Gives up all overdue messages of a receiver that is away; those that were never tried get its error."""
    last_error = case((outbox.c.error == "", storable(error[:_ERROR_MAX])), else_=outbox.c.error)
    change = update(outbox).where(*_overdue(receiver, now)).values(given_up_at=now, error=last_error)

    def record(connection: Connection) -> None:
        connection.execute(change)

    return record


def is_overdue(message: Message, now: float) -> bool:
    return message.made_at < now - GIVE_UP


def _overdue(receiver: str, now: float) -> tuple[Any, ...]:
    return _WAITING, outbox.c.receiver == receiver, outbox.c.made_at < now - GIVE_UP
