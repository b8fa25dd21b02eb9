"""The store seam: a durable log folded into a live state, with the rows that reads need written beside it.

`transact` is the one way in. It runs proposals one after another against the live state, each seeing what those before
it did, and makes all of them durable in one transaction: that is the group commit. A proposal that raises is refused
alone. If the transaction fails, nothing of it happened: the state is loaded anew and everyone is told.
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
    """New bytes of one stream: what they hold, and the offset that is acknowledged once this is durable."""

    job: str
    attempt: int
    rank: int
    stream: Stream
    start: int
    end: int
    log: bytes = b""  # of a log stream
    columns: dict[str, Column] = field(default_factory=dict)  # of a spool or host stream: for who keeps the record
    shapes: dict[int, tuple[str, ...]] = field(default_factory=dict)  # every shape that the stream has declared so far
    keep: int | None = None  # bytes of a log that are kept: see `log_limit`
    gap: bool = False  # whether output is missing between what was stored and this; the store finds out


@dataclass(slots=True)
class RunPatch:
    """Facts of a run that change too often to be events: merged, key by key, into its document."""

    job: str
    values: dict[str, Any]


@dataclass(slots=True)
class SecretWrite:
    """An encrypted value; `cipher` None removes it."""

    project: str
    name: str
    cipher: bytes | None


# Statements on the tables of the record (`record_tables`), run in the transaction of their entry after its own rows.
# They may be run twice: when those of another entry fail, all are rolled back and run again without it.
Record = Callable[["Connection"], None]


# Rows of the record's tables.
Rows = Sequence[tuple["Table", dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class Aside:
    """Something that could not be written into the record, kept as it came; `muster doctor` reports it."""

    source: str  # for people: "spool of rank 3", "event 512"
    run: str = ""
    attempt: int = 0
    data: bytes = b""
    error: str = ""
    time: float = 0.0
    id: int = 0  # given by the store


@dataclass(slots=True)
class Entry:
    """What one proposal wants written, all of it or nothing."""

    events: Sequence[Event] = ()
    streams: Sequence[StreamWrite] = ()
    patches: Sequence[RunPatch] = ()
    secrets: Sequence[SecretWrite] = ()
    rollups: Sequence[Rollup] = ()  # each takes the place of the one of its resolution, start and pool
    forget: Mapping[int, int] = field(default_factory=dict)  # resolution → roll-ups that start before this go
    rows: Rows = ()  # of the record: added unless they are there
    records: Sequence[Record] = ()  # run after the rows
    # What is set aside when `rows` or `records` fail; everything else of the entry is then written. An entry without
    # it is refused as a whole, unless it has events that the state follows from.
    origin: Callable[[], Sequence[Aside]] | None = None
    aside: Sequence[Aside] = ()
    marks: Mapping[str, int] = field(default_factory=dict)  # follower → seq of the last event that it has folded

    @property
    def empty(self) -> bool:
        rows = self.events or self.streams or self.patches or self.secrets or self.rollups or self.rows or self.records
        return not (rows or self.forget or self.aside or self.marks)


Proposal = Callable[[State], Entry]


@dataclass(frozen=True, slots=True)
class StreamState:
    """How far a stream is stored, and the shapes that its records refer to."""

    acked: int
    shapes: dict[int, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class LogChunk:
    rank: int
    offset: int
    data: bytes
    id: int  # grows in the order of arrival over all ranks of a job
    before: int = 0  # where the chunk of the rank before it ends: what is between them was dropped

    @property
    def end(self) -> int:
        return self.offset + len(self.data)


@dataclass(frozen=True, slots=True)
class LogSize:
    """How much a rank wrote in an attempt, and how much of it is stored; in bytes."""

    attempt: int
    rank: int
    written: int
    kept: int


@dataclass(frozen=True, slots=True)
class JobFilter:
    """Which jobs a listing wants. `projects` None means all; `before` pages back from a job number."""

    ids: Sequence[str] | None = None
    projects: Sequence[str] | None = None
    phases: Sequence[str] | None = None
    queue: str | None = None
    user: str | None = None
    name: str | None = None
    before: int | None = None
    limit: int = 100


@dataclass(frozen=True, slots=True)
class EventFilter:
    """Which events a listing wants, oldest first, after `after`; with `last`, the newest `limit` of them."""

    projects: Sequence[str] | None = None  # events of no project are listed only when this is None
    job: str | None = None
    actor: str | None = None
    kind: str | None = None  # a whole kind, or a prefix ending in "."
    after: int = 0
    last: bool = False
    limit: int = 100


@dataclass(frozen=True, slots=True)
class Lease:
    holder: str
    epoch: int  # grows with every change of holder
    beat: int  # grows with every renewal
    urls: tuple[str, ...]  # where the holder listens


class Store(Protocol):
    """Durable on return; the same behaviour on memory, SQLite and PostgreSQL. Methods may be called from any thread."""

    def open(self) -> None:
        """Brings the schema up to date and loads the state. Raises ConfigError when it can't."""

    def close(self) -> None: ...

    @property
    def database(self) -> Database | None:
        """Where the tables of the record can be read; None where there is none, and `Entry.records` are refused."""

    def state(self) -> State:
        """The live state; only `transact` changes it."""

    def reload(self) -> None:
        """Loads the state anew from what is durable."""

    def catch_up(self) -> None:
        """Loads the state anew if another server has written since it was loaded."""

    def transact(self, proposals: Sequence[Proposal]) -> list[list[Event] | Exception]:
        """One result a proposal: its stamped events, or what it raised. Raises Unavailable when nothing could be
        written, and Conflict when another server has written meanwhile."""

    def append(self, events: Sequence[Event], expected_version: int | None = None) -> list[Event]:
        """Appends events if the state's version is still the expected one, else raises Conflict."""

    # --- reads ---
    def job(self, job_id: str) -> Job | None: ...

    def job_by_number(self, number: int) -> Job | None: ...

    def jobs_by_key(self, user: str, keys: Sequence[str]) -> dict[str, str]:
        """The ids of the jobs that this user submitted under these idempotency keys, as far as there are any."""

    def jobs(self, want: JobFilter) -> list[Job]:
        """Newest first."""

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
        most: int | None = None,
        last: bool = False,
    ) -> list[LogChunk]:
        """Chunks with an id above `after`, and below `before`, in order of arrival; the newest first with `last`.

        At most `limit` of them, and `most` bytes if there is more than one: nothing beyond is read."""

    def log_sizes(self, job_id: str) -> list[LogSize]:
        """Of each rank that wrote, in the order of attempts and ranks."""

    def secret(self, project: str, name: str) -> bytes | None: ...

    def secret_names(self, project: str) -> list[str]: ...

    # --- followers of the log ---
    def version(self) -> int:
        """The seq of the last event that is durable."""

    def marks(self) -> dict[str, int]:
        """The seq of the last event that each follower has folded."""

    def set_aside(self, limit: int = 100) -> list[Aside]:
        """What could not be written into the record, newest first."""

    # --- the past ---
    def rollups(self, resolution: int, pool: str | None, since: int, until: int) -> list[Rollup]:
        """Those that start from `since` on and before `until`, in the order of their starts; `pool` None means all."""

    def rolled_up_until(self, resolution: int) -> int:
        """Up to when all roll-ups of a resolution go together, in milliseconds since 1970; 0 before the first."""

    def levels(self, want: LevelFilter) -> list[Level]:
        """Of every class of work and of priority that had a job, in the order of the targets."""

    # --- the leader's lease ---
    def lease(self) -> Lease | None: ...

    def take_lease(self, holder: str, urls: Sequence[str], after: Lease | None) -> Lease | None:
        """Takes the lease if it is still as it was seen (None: there is none); None when somebody else was faster."""

    def renew_lease(self, lease: Lease) -> Lease | None:
        """Renews it; None when it is no longer this holder's."""

    def drop_lease(self, lease: Lease) -> None:
        """Gives it up, so that the next server need not wait."""
