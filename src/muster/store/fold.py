"""What all stores share: runs proposals against the live state, folds their events, and writes them in one batch.

Between the first event of a batch and its write, the state is ahead of what is durable. If anything fails in between,
the state is loaded again before it is used.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from muster.core.errors import Conflict, Invalid, MusterError
from muster.core.event import Event
from muster.core.job_events import JobSubmitted
from muster.core.payload import Payload
from muster.core.state import Changes, State, apply
from muster.store.base import Entry, Proposal, SetAside, StreamWrite
from muster.store.codec import check_text, dumps, seal, seal_values
from muster.store.marks import Marked, Marks
from muster.store.past import Rollup
from muster.store.records import Failure, Recorded


@dataclass(slots=True)
class Batch:
    """Everything that one transaction writes. `texts` holds the JSON of each event's data."""

    events: list[Event] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    specs: dict[str, str] = field(default_factory=dict)  # JSON by job id, of new jobs
    changes: Changes = field(default_factory=Changes)
    streams: list[StreamWrite] = field(default_factory=list)
    values: dict[tuple[str, str], str] = field(default_factory=dict)  # (job, key of its run document) → JSON
    secrets: dict[tuple[str, str], bytes | None] = field(default_factory=dict)  # (project, name) → cipher
    rollups: dict[tuple[int, int, str], Rollup] = field(default_factory=dict)  # by resolution, start and pool
    forget: dict[int, int] = field(default_factory=dict)
    recorded: list[Recorded] = field(default_factory=list)  # entries with records
    aside: list[SetAside] = field(default_factory=list)
    marks: dict[str, int] = field(default_factory=dict)  # marks of entries without records
    failures: list[Failure] = field(default_factory=list)  # set by the write

    def fold(self, state: State, event: Event) -> None:
        """Applies the event and collects what it changed."""
        apply(state, event, self.changes)
        job = self.changes.jobs.get(event.job)
        if job is not None and job.attempt is not None:  # so that the attempt's own row is never older than the job's
            self.changes.attempts[(job.id, job.attempt.number)] = job.attempt

    def take(self, number: int, sealed: Sealed) -> None:
        """Adds a sealed entry; `number` is the index of its proposal."""
        self.events += sealed.events
        self.texts += sealed.texts
        self.specs.update(sealed.specs)
        self.values.update(sealed.values)
        self.secrets.update(((secret.project, secret.name), secret.cipher) for secret in sealed.entry.secrets)
        self.rollups.update(((one.resolution, one.start, one.pool), one) for one in sealed.entry.rollups)
        self.forget.update(sealed.entry.forget)
        self.aside += sealed.entry.aside
        if sealed.entry.rows or sealed.entry.records:
            self.recorded.append(Recorded(number, sealed.entry, sealed.events))
        else:
            self.marks.update(sealed.entry.marks)

    def tips(self) -> Iterable[StreamWrite]:
        """The last write of each stream."""
        return {(write.job, write.attempt, write.rank, write.stream): write for write in self.streams}.values()

    @property
    def empty(self) -> bool:
        rows = self.events or self.streams or self.values or self.secrets or self.rollups or self.recorded
        return not (rows or self.forget or self.aside or self.marks)


@dataclass(slots=True)
class Sealed:
    """An entry that is ready to be written: stamped, encoded and checked."""

    entry: Entry
    events: list[Event] = field(default_factory=list)
    texts: list[str] = field(default_factory=list)
    specs: dict[str, str] = field(default_factory=dict)
    values: dict[tuple[str, str], str] = field(default_factory=dict)


class FoldStore(ABC):
    """`transact`, `append`, `state` and `reload`, from three hooks: load the state, load marks, write a batch."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._state = State()
        self._stale = False  # the state holds what is not durable, and could not be loaded again yet
        self._marks = Marks(self._load_marks)

    def state(self) -> State:
        """The live state. Call it again after every transaction: a failed one replaces the object."""
        if self._stale:
            with self._lock:
                self._freshen()
        return self._state

    def reload(self) -> None:
        with self._lock:
            self._stale = True
            self._freshen()

    def catch_up(self) -> None:
        with self._lock:
            self._stale = self._stale or self._behind()
            self._freshen()

    def transact(self, proposals: Sequence[Proposal]) -> list[list[Event] | Exception]:
        with self._lock:
            self._freshen()
            batch = Batch()
            try:
                results = [self._consider(number, proposal, batch) for number, proposal in enumerate(proposals)]
                if not batch.empty:
                    self._write(batch)
            except BaseException:
                self._stale = True
                self._try_to_freshen()
                raise
            self._marks.trim()
            for failure in batch.failures:
                if failure.refused:
                    results[failure.number] = failure.error
            return results

    def append(self, events: Sequence[Event], expected_version: int | None = None) -> list[Event]:
        def proposal(state: State) -> Entry:
            if expected_version is not None and state.version != expected_version:
                raise Conflict(
                    f"The log is at version {state.version}, not at {expected_version} any more.",
                    "Decide again from the present state.",
                )
            return Entry(events)

        (result,) = self.transact([proposal])
        if isinstance(result, Exception):
            raise result
        return result

    @abstractmethod
    def _load(self) -> State:
        """Loads the durable state. Raises Unavailable."""

    @abstractmethod
    def _behind(self) -> bool:
        """Whether another server has written since the last load."""

    @abstractmethod
    def _load_marks(self, job_id: str, attempt: int) -> Marked:
        """The durable lengths of the streams of an attempt. Raises Unavailable."""

    @abstractmethod
    def _write(self, batch: Batch) -> None:
        """Writes all or nothing. Raises Unavailable, or Conflict if another server has written since the last load."""

    def _consider(self, number: int, proposal: Proposal, batch: Batch) -> list[Event] | Exception:
        try:
            entry = proposal(self._state)
            sealed = _sealed(entry, self._state)
            streams = self._marks.admit(entry.streams, bool(entry.records)) if entry.streams else []
        except Exception as error:  # returned to the proposer
            return error
        try:
            for event in sealed.events:
                batch.fold(self._state, event)
        except Exception as error:  # an event that is not valid here; half of the entry is folded
            self._undo(batch)
            return error
        batch.take(number, sealed)
        batch.streams += streams
        return sealed.events

    def _undo(self, batch: Batch) -> None:
        """Restores the state as of the batch. Costs a load, but only an invalid proposal causes it."""
        self._stale = True
        self._freshen()
        batch.changes = Changes()
        for event in batch.events:
            batch.fold(self._state, event)
        self._marks.admit(batch.streams)

    def _freshen(self) -> None:
        if not self._stale:
            return
        self._marks.clear()
        self._state = self._load()  # a new object: an index of the state notices that and is rebuilt
        self._stale = False

    def _try_to_freshen(self) -> None:
        try:
            self._freshen()
        except MusterError:
            pass  # the next call tries again, and raises


def _sealed(entry: Entry, state: State) -> Sealed:
    sealed = Sealed(entry)
    seq, time = state.version, state.time
    for event in entry.events:
        data, text = seal(event.data)
        _check(event, data, state)
        # Times never decrease along the log, whatever the clock did and in whatever order proposals were queued.
        seq, time = seq + 1, max(time, event.time)
        stamped = Event(data, time, event.actor, event.project, event.job, event.attempt, seq)
        sealed.events.append(stamped)
        sealed.texts.append(text)
        if isinstance(data, JobSubmitted):
            sealed.specs[event.job] = dumps(data.spec)
    for patch in entry.patches:
        values = seal_values(patch.values)
        check_text(patch.job, *values)
        sealed.values.update({(patch.job, key): text for key, text in values.items()})
    for secret in entry.secrets:
        check_text(secret.project, secret.name)
    for rollup in entry.rollups:
        check_text(rollup.pool, rollup.data)
    return sealed


def _check(event: Event, data: Payload, state: State) -> None:
    """Texts that get their own column must be valid in every database."""
    new = isinstance(data, JobSubmitted)
    if new and event.job in state.jobs:
        raise Invalid(f"There is a job {event.job!r} already.", "Give every job an id of its own.")
    own = data.columns() if new or not event.job else ()
    check_text(event.kind, event.actor, event.project, event.job, *own)
