"""Rebuilds the tables that events fold into, once, when they were folded by a version of Muster that folded less.

The log is complete, so jobs, attempts and entities can always be made from it again. `tables.FOLD` counts the versions
of the fold, and `head.fold` says which one a database has.
"""

from __future__ import annotations

import logging
import secrets
import time
from typing import Final

from sqlalchemy import Connection, delete, select, update

from muster.core.errors import ConfigError
from muster.core.event import Event
from muster.core.job_events import JobSubmitted
from muster.core.state import State
from muster.store import codec, tables
from muster.store.connect import Database
from muster.store.fold import Batch
from muster.store.reads import event_from
from muster.store.writes import Writes, writes_for

log = logging.getLogger("muster.store")

_PAGE: Final = 2_000  # events whose changes are held in memory at a time


def refold(database: Database) -> None:
    """Rebuilds the tables in one transaction if they are older than `tables.FOLD`. Raises ConfigError if it can't."""
    with database.reading() as connection:
        if _is_current(connection, database.where):
            return
    with database.writing() as connection:
        # Locks the row, so that no other server writes or refolds meanwhile; one that has it loaded notices the turn.
        turn = {"turn": tables.head.c.turn + 1, "token": secrets.token_hex(8)}
        connection.execute(update(tables.head).values(turn))
        if _is_current(connection, database.where):
            return
        _rebuild(connection, writes_for(database.writer.dialect))
        connection.execute(update(tables.head).values(fold=tables.FOLD))


def _is_current(connection: Connection, where: str) -> bool:
    fold = int(connection.execute(select(tables.head.c.fold)).scalar_one())
    if fold > tables.FOLD:
        raise ConfigError(
            f"The tables of the database {where} were folded by a newer version of Muster "
            f"(version {fold} of the fold; this one knows up to {tables.FOLD}).",
            "Install the version of Muster that last used it, or a newer one.",
        )
    return fold == tables.FOLD


def _rebuild(connection: Connection, writes: Writes) -> None:
    newest = int(connection.execute(select(tables.head.c.version)).scalar_one())
    if newest:
        log.info("rebuilding the tables of jobs, attempts and entities from %d events", newest)
    began, state, seq = time.monotonic(), State(), 0
    for table in (tables.jobs, tables.attempts, tables.entities):
        connection.execute(delete(table))
    while page := _page(connection, seq):
        batch = Batch()
        for event in page:
            _fold(batch, state, event)
        writes.write_folded(connection, batch)
        seq = page[-1].seq
    if newest:
        log.info("rebuilt the tables in %.1f s", time.monotonic() - began)


def _page(connection: Connection, after: int) -> list[Event]:
    seq = tables.events.c.seq
    rows = connection.execute(select(tables.events).where(seq > after).order_by(seq).limit(_PAGE))
    return [event_from(row) for row in rows]


def _fold(batch: Batch, state: State, event: Event) -> None:
    try:
        batch.fold(state, event)
    except ConfigError:
        raise  # it can't be read, and says so itself
    except Exception as error:
        raise ConfigError(
            f"Event {event.seq} of the log ({event.kind}) can't be folded: {error!r}.",
            "Use the version of Muster that last used the database, or restore it from a backup.",
        ) from error
    batch.events.append(event)
    if isinstance(event.data, JobSubmitted):
        batch.specs[event.job] = codec.dumps(event.data.spec)
