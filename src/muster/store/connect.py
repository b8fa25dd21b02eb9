"""Connections to SQLite and PostgreSQL, configured so that commits are durable and errors are reported clearly."""

from __future__ import annotations

import os
import re
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, cast

from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.engine.interfaces import DBAPIConnection

from muster.core.errors import ConfigError
from muster.store.db_errors import translated

_TIMEOUT: Final = 15  # seconds to wait for another process's lock, or for a reply
_READERS: Final = 8
_STEPS: Final = 100_000  # SQLite VM instructions between two checks of the clock: about a millisecond
# A database that disappears silently is noticed in seconds and not after the quarter of an hour that TCP takes.
_LIVELY: Final = {
    "connect_timeout": 5,
    "tcp_user_timeout": _TIMEOUT * 1000,  # milliseconds
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
}
# File systems that several machines share, where locks and shared memory are not reliable.
_SHARED: Final = frozenset({
    "nfs", "nfs4", "cifs", "smb3", "smbfs", "lustre", "gpfs", "beegfs", "ceph", "afs", "fuse.sshfs", "fuse.glusterfs",
})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Database:
    """The connections for reads and writes. `where` is for people; it contains no password."""

    where: str
    kind: Literal["sqlite", "postgresql"]
    writer: Engine
    reader: Engine
    driver: type[Exception]  # base class of the driver's exceptions

    @contextmanager
    def reading(self, limit: float | None = None) -> Iterator[Connection]:
        """A connection that reads one snapshot over all its statements; with a `limit`, at most that many seconds."""
        with translated(self.where, self.driver), self.reader.connect() as connection:
            if limit is None:
                yield connection
                return
            with _limited(connection, limit):
                yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction that is committed at the end, or rolled back on an exception."""
        with translated(self.where, self.driver), self.writer.connect() as connection, connection.begin():
            yield connection

    def close(self) -> None:
        self.reader.dispose()
        self.writer.dispose()


def connect(url: URL) -> Database:
    """Raises ConfigError for problems that waiting would not solve. Does not connect yet."""
    return _sqlite(url) if url.get_backend_name() == "sqlite" else _postgres(url)


def file_system(path: Path, mountinfo: str) -> str:
    """The type of the file system that holds this absolute path, from the text of /proc/self/mountinfo."""
    best, kind = -1, ""
    for line in mountinfo.splitlines():
        mount, _, source = line.partition(" - ")
        where = Path(re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), mount.split()[4]))  # a blank is \040
        if len(where.parts) >= best and path.is_relative_to(where):
            best, kind = len(where.parts), source.split()[0]
    return kind


def _sqlite(url: URL) -> Database:
    path = Path(url.database or "")
    if not url.database or url.database == ":memory:":
        raise ConfigError(f"{url} names no file.", "Give a path, as in `sqlite:///muster.db`, or use `memory:`.")
    _check_file(path)
    options: dict[str, Any] = {
        "hide_parameters": True,
        "pool_timeout": 2 * _TIMEOUT,
        "connect_args": {"check_same_thread": False, "timeout": _TIMEOUT},
    }
    # One connection writes. A second writer waits in the pool and not in SQLite's own retries, which are unfair.
    writer = create_engine(url, pool_size=1, max_overflow=0, **options)
    reader = create_engine(url, pool_size=_READERS, max_overflow=_READERS, **options)
    event.listen(writer, "connect", _set_up_writer)
    event.listen(reader, "connect", _set_up_reader)
    event.listen(writer, "begin", lambda connection: connection.exec_driver_sql("BEGIN IMMEDIATE"))
    event.listen(reader, "begin", lambda connection: connection.exec_driver_sql("BEGIN"))
    return Database(str(path), "sqlite", writer, reader, sqlite3.Error)


@contextmanager
def _limited(connection: Connection, seconds: float) -> Iterator[None]:
    """Statements that still run after this many seconds are aborted and raise."""
    if connection.dialect.name == "postgresql":
        connection.exec_driver_sql(
            f"SET LOCAL statement_timeout = {round(1000 * seconds)}"
        )  # until the transaction ends
        yield
        return
    driver = cast(sqlite3.Connection, connection.connection.driver_connection)
    until = time.monotonic() + seconds
    driver.set_progress_handler(lambda: time.monotonic() > until, _STEPS)
    try:
        yield
    finally:
        driver.set_progress_handler(None, 0)


def _check_file(path: Path) -> None:
    folder = path.absolute().parent
    if not folder.is_dir():
        raise ConfigError(
            f"The database {path} can't be made: there is no folder {folder}.", f"Make it: mkdir -p {folder}"
        )
    if path.is_dir():
        raise ConfigError(f"The database {path} is a folder.", f"Name a file in it, such as {path / 'muster.db'}.")
    hint = "Mend its owner and permissions, or choose another place."
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ConfigError(f"The database {path} can't be used: its folder {folder} is not writable.", hint)
    if path.exists() and not os.access(path, os.R_OK | os.W_OK):
        raise ConfigError(f"The database {path} can't be read and written.", hint)
    mounts = Path("/proc/self/mountinfo")
    kind = file_system(folder.resolve(), mounts.read_text()) if mounts.exists() else ""
    if kind in _SHARED:
        raise ConfigError(
            f"The database {path} is on a {kind} file system, where SQLite can't keep it safe.",
            "Put it on a local disk, or use PostgreSQL.",
        )
    if not path.exists():
        # The file contains digests of tokens and encrypted secrets. SQLite gives its other files the same mode.
        os.close(os.open(path, os.O_CREAT | os.O_RDWR, 0o600))


def _set_up_writer(connection: DBAPIConnection, _: object) -> None:
    cursor = _set_up(connection)
    cursor.execute("PRAGMA journal_mode = WAL")
    (mode,) = cursor.fetchone()
    if mode != "wal":
        raise ConfigError(
            f"SQLite can't keep a write-ahead log here (it offers {mode!r}).", "Put the database on a local disk."
        )
    cursor.execute("PRAGMA synchronous = FULL")
    cursor.execute("PRAGMA cache_size = -65536")  # 64 MiB
    cursor.execute("PRAGMA wal_autocheckpoint = 8000")  # pages, 32 MiB: a burst of jobs rewrites the same ones often
    cursor.execute("PRAGMA journal_size_limit = 67108864")  # bytes of log that stay on disk after a burst


def _set_up_reader(connection: DBAPIConnection, _: object) -> None:
    _set_up(connection).execute("PRAGMA query_only = ON")


def _set_up(connection: DBAPIConnection) -> Any:
    cast(Any, connection).isolation_level = None  # we begin transactions explicitly, not the driver
    cursor = connection.cursor()
    cursor.execute("PRAGMA foreign_keys = OFF")
    return cursor


def _postgres(url: URL) -> Database:
    try:
        engine = create_engine(
            url.set(drivername="postgresql+psycopg"),
            paramstyle="format",
            hide_parameters=True,
            pool_pre_ping=True,
            pool_size=_READERS,
            max_overflow=_READERS,
            pool_timeout=2 * _TIMEOUT,
            connect_args=_LIVELY,
        )
    except ModuleNotFoundError as error:
        raise ConfigError(
            "PostgreSQL needs a driver that is not installed.", "pip install 'muster-ml[postgres]'"
        ) from error
    event.listen(engine, "connect", _set_up_session)
    reader = engine.execution_options(isolation_level="REPEATABLE READ")
    driver = cast(Any, engine.dialect.loaded_dbapi).Error
    return Database(url.render_as_string(hide_password=True), "postgresql", engine, reader, driver)


def _set_up_session(connection: DBAPIConnection, _: object) -> None:
    cursor = connection.cursor()
    cursor.execute(f"SET lock_timeout = '{_TIMEOUT}s'")
    # A server that hangs during a write must not block the next leader.
    cursor.execute(f"SET idle_in_transaction_session_timeout = '{_TIMEOUT}s'")
    connection.commit()
