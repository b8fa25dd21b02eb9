"""The tables, for SQLAlchemy Core. `migrations/versions` creates them; a test checks that both agree.

head            one row: the last transaction. Every writer updates it, and fails if another server has updated it
events          the log
jobs, attempts, entities      what the log folds into, as JSON documents, with the columns that listings filter by
streams         the stored length of each rank's spool and log
log_chunks      the contents of the logs; the contents of the spools are in the tables of the record
run_values      a run's document, one row for each of its top-level keys
secrets         ciphertext
follower_marks  the last event that each follower has folded
outbox          outgoing messages of the server
set_aside       data that could not be written into the record, as it came
rollups         use, queue depth and waits of a pool in a minute, a quarter of an hour or a day
lease           the leader's lease
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Double,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    Table,
    Text,
    inspect,
    text,
)

REVISION: Final = "0015"  # the newest in `migrations/versions`
# The version of what events fold into. Raise it whenever they fold into more: older tables are rebuilt by `refold`.
FOLD: Final = 10
VERSION_TABLE: Final = "schema_version"  # not Alembic's default: other users of Alembic may share the database

metadata = MetaData()


def revision(connection: Connection) -> str | None:
    """The revision of a database; None when it is empty."""
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    return connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar()  # noqa: S608  (our own name)


# SQLite assigns row ids only in a column of exactly this type.
RowId = BigInteger().with_variant(Integer, "sqlite")

head = Table(
    "head",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("turn", BigInteger, nullable=False),  # transactions so far
    Column("token", Text, nullable=False),  # of the last transaction, so that a writer can tell whether it was its own
    Column("version", BigInteger, nullable=False),  # seq of the last event
    Column("time", Double, nullable=False),  # of the last event
    Column("fold", Integer, nullable=False, server_default="1"),  # `FOLD` of the version that folded the tables
)

events = Table(
    "events",
    metadata,
    Column("seq", RowId, primary_key=True, autoincrement=False),
    Column("time", Double, nullable=False),
    Column("kind", Text, nullable=False),
    Column("actor", Text, nullable=False),
    Column("project", Text, nullable=False),
    Column("job", Text, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("data", Text, nullable=False),
    Index("events_by_job", "job", "seq"),
    Index("events_by_project", "project", "seq"),
    Index("events_by_actor", "actor", "seq"),
    Index("events_by_kind", "kind", "seq"),
)

_KEYED = text("key IS NOT NULL")
_WITH_PARENT = text("parent IS NOT NULL")
_STARTED = text("started_at IS NOT NULL")

# The number is the primary key because it increases: new rows go to the end of the table, whatever their ids.
jobs = Table(
    "jobs",
    metadata,
    Column("number", RowId, primary_key=True, autoincrement=False),
    Column("id", Text, nullable=False),
    Column("project", Text, nullable=False),
    Column("queue", Text, nullable=False),
    Column("user", Text, nullable=False),
    Column("name", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("phase", Text, nullable=False),
    Column("priority", Integer, nullable=False),
    Column("submitted_at", Double, nullable=False),
    Column("finished_at", Double),
    Column("key", Text),
    Column("spec", Text, nullable=False),
    Column("doc", Text, nullable=False),
    Column("started_at", Double),  # first start
    Column("work", Text, nullable=False, server_default="single"),  # class of work, for its service level
    Column("parent", Text),
    Index("jobs_by_id", "id", unique=True),
    Index("jobs_by_project", "project", "number"),
    Index("jobs_by_user", "user", "number"),
    Index("jobs_by_name", "name", "number"),
    Index("jobs_by_phase", "phase", "number"),
    Index("jobs_by_parent", "parent", "number", sqlite_where=_WITH_PARENT, postgresql_where=_WITH_PARENT),
    Index("jobs_by_key", "user", "key", sqlite_where=_KEYED, postgresql_where=_KEYED),
    # Covers the queries of service levels, so that they need not read the long rows.
    Index(
        "jobs_by_start",
        "started_at",
        "submitted_at",
        "work",
        "priority",
        "queue",
        "project",
        sqlite_where=_STARTED,
        postgresql_where=_STARTED,
    ),
)

attempts = Table(
    "attempts",
    metadata,
    Column("job", Text, primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("doc", Text, nullable=False),
)

entities = Table(
    "entities",
    metadata,
    Column("kind", Text, primary_key=True),
    Column("id", Text, primary_key=True),
    Column("doc", Text, nullable=False),
)

streams = Table(
    "streams",
    metadata,
    Column("job", Text, primary_key=True),
    Column("attempt", Integer, primary_key=True),
    Column("rank", Integer, primary_key=True),
    Column("stream", Text, primary_key=True),
    Column("acked", BigInteger, nullable=False),
    Column("kept", BigInteger, nullable=False),  # bytes of a log in log_chunks, before compression
    Column("shapes", Text, nullable=False),
)

log_chunks = Table(
    "log_chunks",
    metadata,
    Column("id", RowId, primary_key=True),
    Column("job", Text, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("rank", Integer, nullable=False),
    Column("start", BigInteger, nullable=False),  # offset in the stream
    Column("length", Integer, nullable=False),  # before compression
    Column("data", LargeBinary, nullable=False),
    Column("time", Double),  # when it was written; NULL: stored by a release that did not say
    Index("log_chunks_by_attempt", "job", "attempt", "id"),
    Index("log_chunks_by_rank", "job", "attempt", "rank", "id"),
    sqlite_autoincrement=True,  # an id is never reused, even if the newest chunk was pruned
)

run_values = Table(
    "run_values",
    metadata,
    Column("job", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    Column("value", Text, nullable=False),
)

secrets = Table(
    "secrets",
    metadata,
    Column("project", Text, primary_key=True),
    Column("name", Text, primary_key=True),
    Column("cipher", LargeBinary, nullable=False),
)

rollups = Table(
    "rollups",
    metadata,
    # Ordered by time: new rows go to the end and old ones are deleted from the front.
    Column("resolution", Integer, primary_key=True, autoincrement=False),
    Column("start", BigInteger, primary_key=True, autoincrement=False),
    Column("pool", Text, primary_key=True),
    Column("until", BigInteger, nullable=False),
    Column("data", Text, nullable=False),
    sqlite_with_rowid=False,  # the table is stored in its key: half the space
)

follower_marks = Table(
    "follower_marks",
    metadata,
    Column("name", Text, primary_key=True),
    Column("seq", BigInteger, nullable=False),
)

set_aside = Table(
    "set_aside",
    metadata,
    Column("id", RowId, primary_key=True),
    Column("time", Double, nullable=False),
    Column("source", Text, nullable=False),
    Column("run", Text, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("error", Text, nullable=False),
    Column("data", LargeBinary, nullable=False),
)

_WAITING = text("given_up_at IS NULL")
_GIVEN_UP = text("given_up_at IS NOT NULL")

outbox = Table(
    "outbox",
    metadata,
    Column("id", RowId, primary_key=True),
    Column("made_at", Double, nullable=False),
    Column("kind", Text, nullable=False),
    Column("doc", Text, nullable=False),
    Column("due_at", Double, nullable=False),  # of the next attempt
    Column("tries", Integer, nullable=False),
    Column("error", Text, nullable=False),  # of the last attempt; empty before the first
    Column("given_up_at", Double),
    Column("receiver", Text, nullable=False, server_default=""),
    Index("outbox_waiting", "receiver", "due_at", sqlite_where=_WAITING, postgresql_where=_WAITING),
    Index("outbox_given_up", "given_up_at", sqlite_where=_GIVEN_UP, postgresql_where=_GIVEN_UP),
    sqlite_autoincrement=True,  # an id is never reused: receivers detect repetitions by it
)

lease = Table(
    "lease",
    metadata,
    Column("name", Text, primary_key=True),
    Column("holder", Text, nullable=False),  # empty: free; the epoch is kept, so that it never decreases
    Column("epoch", BigInteger, nullable=False),
    Column("beat", BigInteger, nullable=False),
    Column("urls", Text, nullable=False),
)
