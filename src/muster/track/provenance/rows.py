"""Rows of signed statements, and of what a statement is yet to be made of.

What makes a statement due writes its row in the same transaction; the statement removes it in its own. So each is made
once, whatever is killed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, delete, select, update

from muster.store.base import Record
from muster.store.insert import Row, add, put
from muster.store.record_tables import statements, statements_due
from muster.track.record_db import RecordDb

SETTLE: Final = 1.0  # seconds: files of one folder arrive together, and have one statement
TRIES: Final = 5  # after them it is given up, with its problem
_BACKOFF: Final = 10.0  # seconds, doubled with each try
SIGNED_KINDS: Final = ("checkpoint", "model")


@dataclass(frozen=True, slots=True)
class Due:
    ref: str
    run: str
    time: float
    due_at: float
    tries: int
    problem: str


@dataclass(frozen=True, slots=True)
class Signed:
    ref: str
    subjects: str
    run: str
    digest: str  # of the envelope
    key: str
    time: float


def due_row(ref: str, run: str, now: float) -> Row:
    return {"ref": ref, "run": run, "time": now, "due_at": now + SETTLE, "tries": 0, "problem": ""}


def artifact_ref(run: str, path: str) -> str:
    """What a file's statement is of: its folder, or itself if it is in none."""
    return f"artifact:{run}/{path.rpartition('/')[0] or path}"


def add_due(connection: Connection, ref: str, run: str, now: float) -> None:
    put(connection, statements_due, [due_row(ref, run, now)])


def next_due(db: RecordDb, now: float, limit: int) -> list[Due]:
    query = select(statements_due).where(statements_due.c.due_at <= now, statements_due.c.tries < TRIES)
    with db.reading() as connection:
        return [Due(*row) for row in connection.execute(query.order_by(statements_due.c.due_at).limit(limit))]


def due_of(db: RecordDb, ref: str) -> Due | None:
    with db.reading() as connection:
        row = connection.execute(select(statements_due).where(statements_due.c.ref == ref)).one_or_none()
    return Due(*row) if row is not None else None


def statement_of(db: RecordDb, ref: str) -> Signed | None:
    """The newest statement of this."""
    query = select(statements).where(statements.c.ref == ref).order_by(statements.c.time.desc()).limit(1)
    with db.reading() as connection:
        row = connection.execute(query).one_or_none()
    return Signed(*row) if row is not None else None


def statements_of_run(db: RecordDb, run: str) -> list[Signed]:
    with db.reading() as connection:
        rows = connection.execute(select(statements).where(statements.c.run == run).order_by(statements.c.ref)).all()
    return [Signed(*row) for row in rows]


def signed(due: Due, made: Signed) -> Record:
    """Keeps the statement, and what was due is done, unless it became due again meanwhile."""
    row: dict[str, Any] = {name: getattr(made, name) for name in Signed.__slots__}
    done = delete(statements_due).where(statements_due.c.ref == due.ref, statements_due.c.time == due.time)

    def record(connection: Connection) -> None:
        add(connection, statements, [row])
        connection.execute(done)

    return record


def failed(due: Due, problem: str, now: float, final: bool) -> Record:
    """Tries again later, or gives up. What is due stays, with its problem."""
    tries = TRIES if final else due.tries + 1
    values = {"tries": tries, "problem": problem[:1000], "due_at": now + _BACKOFF * 2**due.tries}
    here = (statements_due.c.ref == due.ref) & (statements_due.c.time == due.time)

    def record(connection: Connection) -> None:
        connection.execute(update(statements_due).where(here).values(values))

    return record


def gone(connection: Connection, ref: str) -> None:
    """Removes the statements of a model's version that is deleted."""
    for table in (statements, statements_due):
        connection.execute(delete(table).where(table.c.ref == ref))
