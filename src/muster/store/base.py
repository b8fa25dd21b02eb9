"""The store interface: a durable event log, the live state that it folds into, and the rows that reads need.

`transact` is the only way to write. It runs proposals one after another against the live state, so that each sees the
effects of those before it, and makes all of them durable in one transaction: the group commit. A proposal that raises
is refused alone. If the transaction fails, nothing of it is written: the state is loaded again and every proposal gets
the error.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from muster.core.event import Event
from muster.core.job import Attempt, Job
from muster.core.state import State
from muster.store.past import Level, LevelFilter, Rollup
from muster.wire import Stream

if TYPE_CHECKING:
    from sqlalchemy import Connection, Table

    from muster.store.connect import Database


@dataclass(slots=True)
class Column:
    """Points of one metric, in the order in which they were reported; three arrays of one length."""

    steps: array[int] = field(default_factory=lambda: array("q"))
    times: array[float] = field(default_factory=lambda: array("d"))
    values: array[float] = field(default_factory=lambda: array("d"))


@dataclass(slots=True)
class StreamWrite:
    """New bytes of one stream: their contents, and the offset that is acknowledged once this is durable."""

    job: str
    attempt: int
    rank: int
    stream: Stream
    start: int
    end: int
    log: bytes = b""  # of a log stream: the bytes
    time: float = 0.0  # of a log stream: when they were written, in seconds since 1970
    columns: dict[str, Column] = field(default_factory=dict)  # of a spool or host stream: its metrics, for the record
    shapes: dict[int, tuple[str, ...]] = field(default_factory=dict)  # every shape that the stream has declared so far
    keep: int | None = None  # bytes of a log that are kept: see `log_limit`
    gap: bool = False  # whether output is missing between the stored bytes and these; set by the store


@dataclass(slots=True)
class RunPatch:
    """Values of a run that change too often to be events; merged key by key into its document."""

    job: str
    values: dict[str, Any]


@dataclass(slots=True)
class SecretWrite:
    """An encrypted value; `cipher` None removes it."""

    project: str
    name: str
    cipher: bytes | None


# Statements on the tables of the record (`record_tables`), run in the transaction of their entry after its own rows.
# They may run twice: when those of another entry fail, all are rolled back and run again without it.
Record = Callable[["Connection"], None]


# Rows of the record's tables.
Rows = Sequence[tuple["Table", dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class SetAside:
    """Data that could not be written into the record, kept as it came; `muster doctor` reports it."""

    source: str  # for people: "spool of rank 3", "event 512"
    run: str = ""
    attempt: int = 0
    data: bytes = b""
    error: str = ""
    time: float = 0.0
    id: int = 0  # assigned by the store


@dataclass(slots=True)
class Entry:
    """What one proposal wants written: all of it or nothing."""

    events: Sequence[Event] = ()
    streams: Sequence[StreamWrite] = ()
    patches: Sequence[RunPatch] = ()
    secrets: Sequence[SecretWrite] = ()
    rollups: Sequence[Rollup] = ()  # each replaces the one of the same resolution, start and pool
    forget: Mapping[int, int] = field(default_factory=dict)  # resolution → roll-ups that start before this are deleted
    rows: Rows = ()  # of the record: inserted unless they exist
    records: Sequence[Record] = ()  # run after the rows
    # Returns what is set aside when `rows` or `records` fail; the rest of the entry is still written. An entry without
    # it is then refused as a whole, unless it has events that change the state.
    origin: Callable[[], Sequence[SetAside]] | None = None
    aside: Sequence[SetAside] = ()
    marks: Mapping[str, int] = field(default_factory=dict)  # follower → seq of the last event that it has folded

    @property
    def empty(self) -> bool:
        rows = self.events or self.streams or self.patches or self.secrets or self.rollups or self.rows or self.records
        return not (rows or self.forget or self.aside or self.marks)


Proposal = Callable[[State], Entry]


@dataclass(frozen=True, slots=True)
class StreamState:
    """The stored length of a stream, and the shapes that its records refer to."""

    acked: int
    shapes: dict[int, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class LogChunk:
    rank: int
    offset: int
    data: bytes
    id: int  # increases in the order of arrival over all ranks of a job
    before: int = 0  # end of the previous chunk of the same rank: what lies between them was dropped
    time: float | None = None  # when it was written, in seconds since 1970; None if an older release stored it

    @property
    def end(self) -> int:
        return self.offset + len(self.data)


@dataclass(frozen=True, slots=True)
class LogSize:
    """How many bytes a rank wrote in an attempt, and how many of them are stored."""

    attempt: int
    rank: int
    written: int
    kept: int


@dataclass(frozen=True, slots=True)
class JobFilter:
    """The filter of a job listing. `projects` None means all; `before` pages back from a job number."""

    ids: Sequence[str] | None = None
    projects: Sequence[str] | None = None
    phases: Sequence[str] | None = None
    queue: str | None = None
    user: str | None = None
    name: str | None = None
    parent: str | None = None  # the id of their parent
    tasks: bool = True  # whether tasks of arrays are listed, and not only the arrays
    before: int | None = None
    limit: int = 100


@dataclass(frozen=True, slots=True)
class EventFilter:
    """The filter of an event listing: oldest first, after `after`; with `last`, the newest `limit` of them."""

    projects: Sequence[str] | None = None  # events without a project are listed only when this is None
    job: str | None = None
    actor: str | None = None
    kind: str | None = None  # a whole kind, or a prefix ending in "."
    after: int = 0
    last: bool = False
    limit: int = 100
    before: int | None = None  # only events before it: with `last`, the page of older ones


@dataclass(frozen=True, slots=True)
class Lease:
    holder: str
    epoch: int  # increases with every change of holder
    beat: int  # increases with every renewal
    urls: tuple[str, ...]  # addresses on which the holder listens


class Store(Protocol):
    """A write is durable on return. Same behaviour on memory, SQLite and PostgreSQL. Methods are thread-safe."""

    def open(self) -> None:
        """Upgrades the schema and loads the state. Raises ConfigError when it can't."""

    def close(self) -> None: ...

    @property
    def database(self) -> Database | None:
        """The database that holds the tables of the record. None: there is none, and `Entry.records` are refused."""

    def state(self) -> State:
        """The live state; only `transact` changes it."""

    def reload(self) -> None:
        """Loads the state again from what is durable."""

    def catch_up(self) -> None:
        """Loads the state again if another server has written since the last load."""

    def transact(self, proposals: Sequence[Proposal]) -> list[list[Event] | Exception]:
        """One result for each proposal: its stamped events, or what it raised.

        Raises Unavailable when nothing could be written, and Conflict when another server has written meanwhile.
        """

    def append(self, events: Sequence[Event], expected_version: int | None = None) -> list[Event]:
        """Appends events if the state's version is still the expected one; else raises Conflict."""

    # --- reads ---
    def job(self, job_id: str) -> Job | None: ...

    def job_by_number(self, number: int) -> Job | None: ...

    def jobs_by_key(self, user: str, keys: Sequence[str]) -> dict[str, str]:
        """Idempotency key → id of the job that this user submitted with it; only keys that are known."""

    def jobs(self, want: JobFilter) -> list[Job]:
        """Newest first."""

    def task_phases(self, arrays: Sequence[str]) -> dict[str, dict[str, int]]:
        """Array → phase → its tasks in that phase."""

    def attempts(self, job_id: str) -> list[Attempt]: ...

    def events(self, want: EventFilter) -> list[Event]: ...

    def run(self, job_id: str) -> dict[str, Any]:
        """The run's document: progress, parameters, notes; empty when there is none."""

    def runs(self, job_ids: Sequence[str]) -> dict[str, dict[str, Any]]: ...

    def streams(self, job_id: str, attempt: int) -> Mapping[tuple[int, Stream], StreamState]: ...

    def logs(
        self,
        job_id: str,
        attempt: int,
        rank: int | None,
        after: int,
        limit: int,
        *,
        before: int | None = None,
        since: float | None = None,
        most: int | None = None,
        last: bool = False,
    ) -> list[LogChunk]:
        """Chunks with an id above `after` and below `before`, in order of arrival; newest first with `last`.
        With `since`, only those that were written at this time or later.

        At most `limit` chunks, and at most `most` bytes unless the first chunk is larger. Nothing more is read.
        """

    def log_sizes(self, job_id: str) -> list[LogSize]:
        """One for each rank that wrote output, ordered by attempt and rank."""

    def secret(self, project: str, name: str) -> bytes | None: ...

    def secret_names(self, project: str) -> list[str]: ...

    # --- followers of the log ---
    def version(self) -> int:
        """The seq of the last durable event."""

    def marks(self) -> dict[str, int]:
        """The seq of the last event that each follower has folded."""

    def set_aside(self, limit: int = 100) -> list[SetAside]:
        """What could not be written into the record, newest first."""

    # --- the past ---
    def rollups(self, resolution: int, pool: str | None, since: int, until: int) -> list[Rollup]:
        """Roll-ups that start at `since` or later and before `until`, ordered by start; `pool` None means all."""

    def rolled_up_until(self, resolution: int) -> int:
        """The end of the last roll-up of a resolution, in milliseconds since 1970; 0 before the first."""

    def levels(self, want: LevelFilter) -> list[Level]:
        """One for each class of work and of priority that had a job, in the order of the targets."""

    # --- the leader's lease ---
    def lease(self) -> Lease | None: ...

    def take_lease(self, holder: str, urls: Sequence[str], after: Lease | None) -> Lease | None:
        """Takes the lease if it is still `after` (None: there is none); returns None when another server was faster."""

    def renew_lease(self, lease: Lease) -> Lease | None:
        """Renews the lease; None when this holder no longer has it."""

    def drop_lease(self, lease: Lease) -> None:
        """Releases the lease, so that the next server need not wait."""
