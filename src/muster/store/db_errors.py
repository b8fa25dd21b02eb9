"""Translates errors of the database drivers into Muster's errors, each with a hint."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from sqlalchemy.exc import (
    DBAPIError,
    InterfaceError,
    InternalError,
    OperationalError,
    SQLAlchemyError,
    TimeoutError,
)

from muster.core.errors import Conflict, MusterError, Unavailable

_FULL: Final = ("Its disk is full; nothing was written.", "Free some space there: writing goes on by itself.")
_UNWRITTEN: Final = (
    "A write failed: its disk is over a quota or a limit of the file's size, or broken; nothing was written.",
    "Make room for the file, or check the disk: writing goes on by itself.",
)
_AWAY: Final = (
    "It can't be reached.",
    "Check that it runs and that the network is up: Muster connects again by itself.",
)
_BUSY: Final = (
    "Another process has held it for too long; nothing was written.",
    "End whatever else works on it, such as a backup or a shell with an open transaction.",
)
_READ_ONLY: Final = ("It can't be written to.", "Mend its permissions, or point Muster at the primary.")
_BROKEN: Final = ("Its file is damaged or unreadable.", "Check the disk, then restore the file from a backup.")

_SLOW: Final = ("The question takes too long.", "Ask for less: a narrower query, a smaller range, or a shorter page.")

_SQLITE: Final = {
    sqlite3.SQLITE_INTERRUPT: _SLOW,
    sqlite3.SQLITE_FULL: _FULL,
    sqlite3.SQLITE_BUSY: _BUSY,
    sqlite3.SQLITE_LOCKED: _BUSY,
    sqlite3.SQLITE_READONLY: _READ_ONLY,
    sqlite3.SQLITE_CANTOPEN: _AWAY,
    sqlite3.SQLITE_IOERR_WRITE: _UNWRITTEN,
    sqlite3.SQLITE_IOERR: _BROKEN,
    sqlite3.SQLITE_CORRUPT: _BROKEN,
    sqlite3.SQLITE_NOTADB: _BROKEN,
}
# By SQLSTATE, or by its two-character class.
_POSTGRES: Final = {
    "53100": _FULL,
    "57014": _SLOW,
    "55P03": _BUSY,
    "25006": _READ_ONLY,
    "08": _AWAY,
    "53": _AWAY,
    "57": _AWAY,
}
_TAKEN: Final = {"23505", "40001", "40P01"}  # a duplicate key, a serialization failure, a deadlock


@contextmanager
def translated(where: str, driver: type[Exception]) -> Iterator[None]:
    """Translates errors into Unavailable or Conflict. `where` names the database, without a password.

    SQLAlchemy wraps what the `driver` raises, except while a connection is being set up.
    """
    try:
        yield
    except (SQLAlchemyError, driver) as error:
        raise translate(error, where) from error


def translate(error: Exception, where: str) -> MusterError:
    cause = error.orig if isinstance(error, DBAPIError) else error
    if isinstance(cause, sqlite3.Error):
        extended = getattr(cause, "sqlite_errorcode", 0)
        code = extended & 0xFF  # the low byte is the class of an extended code
        taken, known = code == sqlite3.SQLITE_CONSTRAINT, _SQLITE.get(extended) or _SQLITE.get(code)
    else:
        state = getattr(cause, "sqlstate", None) or ""
        lost = not isinstance(cause, SQLAlchemyError) and not state  # the driver sets none for a server that is gone
        taken, known = state in _TAKEN, _POSTGRES.get(state) or _POSTGRES.get(state[:2]) or (_AWAY if lost else None)
    if taken:
        return taken_by_another(where)
    what, hint = known or ("It refused.", "See the detail, and the database's own log.")
    detail = (str(cause) or type(cause).__name__).splitlines()[0]
    return Unavailable(f"The database {where}: {what} ({detail})", hint)


def is_passing(error: Exception) -> bool:
    """Whether the cause is the state of the database, so that the same statement may succeed later."""
    if isinstance(error, TimeoutError):  # of the connection pool
        return True
    if not isinstance(error, DBAPIError):
        return False
    if error.connection_invalidated:
        return True
    cause = error.orig
    if isinstance(cause, sqlite3.Error):
        return getattr(cause, "sqlite_errorcode", 0) & 0xFF in _SQLITE
    state = getattr(cause, "sqlstate", None) or ""
    if not state:  # no SQLSTATE: a server that is gone, or values that the driver can't send
        return isinstance(error, OperationalError | InterfaceError | InternalError)
    return state in _POSTGRES or state[:2] in _POSTGRES or state[:2] == "40"


def taken_by_another(where: str) -> Conflict:
    return Conflict(
        f"Another server has written to the database {where} meanwhile; nothing of this was written.",
        "Decide again from the present state. Only the server that holds the lease should write.",
    )
