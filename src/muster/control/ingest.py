"""Ingest: stores what launchers ship. Batches may come more than once; each byte is stored once.

Every batch names byte ranges of streams. Bytes that are already stored are cut off by offset. The rest becomes log
chunks, changes of the run's document, events and rows of the record, written with the new offsets in one transaction.
"""

from __future__ import annotations

import logging
import signal
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Protocol, TypeGuard

from muster.control.alerts import Alerts
from muster.control.clock import Clock
from muster.control.counters import Counters
from muster.control.decode import decode
from muster.control.hangs import Hangs
from muster.control.ingest_run import Pace, patch_of
from muster.control.metric_tap import MetricTap
from muster.control.node_health import clock_events, evicted, fault_events, is_spot, leaves, link_events, taken_away
from muster.control.node_samples import NodeSamples
from muster.control.observe import worker_ended, worker_placed, workers_running
from muster.control.orders import Orders, next_command
from muster.control.reconcile import GANG_GRACE
from muster.control.restores import restore_events, taken_events
from muster.control.shipping import LATE, ReportingGang, check_open, check_ranks, gang_of, shipped_patch
from muster.control.stragglers import Stragglers
from muster.core.attempt_events import CheckpointCommitted
from muster.core.entities import Node
from muster.core.errors import Conflict, Invalid, NotFound, Unavailable
from muster.core.event import SYSTEM, Event
from muster.core.job import Job
from muster.core.reasons import CONSEQUENCE
from muster.core.start import steps_needed
from muster.core.state import State
from muster.masking import Masker
from muster.store.base import Entry, JobFilter, Record, RunPatch, SetAside, Store, StreamState, StreamWrite
from muster.store.commit import GroupCommit
from muster.track.holders import Holder
from muster.wire import PIECE_TIMES, Batch, Command, Piece, Reply, Stream, WorkerExit

_LATELY = 300.0  # seconds after which progress says nothing of the end any more: the program may hang
_KEPT_ATTEMPTS = 4096  # attempts whose offsets are kept in memory
_OVER = 2**62  # number of the final command; other commands are numbered in milliseconds since 1970
_NEVER_MASKED = ("type", "id", "digest")  # fields that identify a document or its content
_HOSTS = ("stacks", "fault")  # types of documents that a rank's own stream must not have
_log = logging.getLogger(__name__)

# Why a worker was told to leave its node, if its engine knows; see `engines.base.CauseReporting`.
Cause = Callable[[str, int, int], tuple[str, str] | None]
# The values of those of a project's secrets with these names that exist.
SecretValues = Callable[[str, Sequence[str]], Sequence[str]]


class Intake(Protocol):
    """The interface of the record. Called before the transaction that its results become part of."""

    def open(self, run: str) -> str | None:
        """The project of a run that is not a job's and may be written to; None if there is no such run."""

    def gone(self, run: str) -> bool:
        """Whether the run was deleted for good: what still arrives of it is acknowledged and dropped."""

    def records(
        self,
        run: str,
        attempt: int,
        project: str,
        batch: Batch,
        writes: Sequence[StreamWrite],
        docs: Sequence[tuple[int, dict[str, Any]]],  # each with the rank that it comes from
        now: float,
        holder: Holder | None = None,
    ) -> list[Record]:
        """Database writes for what is new in the batch: its columns, its documents, its end."""


@dataclass(slots=True)
class _Attempt:
    """What is kept of one attempt's streams. Its lock serializes the batches of its workers."""

    project: str
    name: str  # of the job; empty for a run from another source
    gang: ReportingGang
    run: dict[str, Any]
    streams: dict[tuple[int, Stream], StreamState]
    keep: int  # bytes of output kept per rank
    masker: Masker
    lock: threading.Lock = field(default_factory=threading.Lock)
    pace: Pace = field(default_factory=Pace)
    restores: set[str] = field(default_factory=set)  # what it said of damaged or unreadable checkpoints
    told_at: float | None = None  # when its progress last arrived, by our own clock
    ordered: dict[int, str] = field(default_factory=dict)  # the kind of order that a worker was told of last

    @property
    def job(self) -> bool:
        return bool(self.name)


class Ingest:
    """Accepts batches of attempts.

    `secrets` gives the values that are masked in what ranks report. `intake` is None where there is no record: then
    metrics and documents only change the run's document.
    """

    def __init__(
        self,
        store: Store,
        commit: GroupCommit,
        clock: Clock,
        log_limit: int,
        intake: Intake | None = None,
        cause: Cause | None = None,
        late: float = LATE,
        secrets: SecretValues | None = None,
        tap: MetricTap | None = None,
        orders: Sequence[Orders] = (),
        hangs: Hangs | None = None,
        stragglers: Stragglers | None = None,
        alerts: Alerts | None = None,
        counters: Counters | None = None,
        samples: NodeSamples | None = None,
    ) -> None:
        self._store, self._commit, self._clock, self._log_limit = store, commit, clock, log_limit
        self._intake, self._cause, self._late, self._secrets = intake, cause, late, secrets
        self._tap, self._hangs, self._stragglers, self._alerts = tap or MetricTap(), hangs, stragglers, alerts
        self._counters, self._samples = counters or Counters(), samples
        self._orders = tuple(orders)
        self._attempts: OrderedDict[tuple[str, int], _Attempt] = OrderedDict()
        self._lock = threading.Lock()

    def accept(self, job_id: str, number: int, batch: Batch, holder: Holder | None = None) -> Reply:
        """Stores what is new of a batch; returns once it is durable.

        `holder`: the holder of the content that the batch names, if it isn't a worker of the run's project.
        """
        if self._gone(job_id):
            return Reply(_ends(batch), None, done=batch.state == "ended")
        attempt = self._open(job_id, number)
        batch = _masked(self._explained(job_id, number, batch), attempt.masker)
        check_ranks(attempt.gang, batch)
        why = self._eviction(job_id, number, batch)
        command: Command | None = None
        place: Node | None = None
        with attempt.lock:
            writes: list[StreamWrite] = []
            docs: list[tuple[int, dict[str, Any]]] = []
            now = self._clock.now()
            for piece in batch.pieces:
                new, found = self._writes(job_id, number, attempt, piece, now)
                writes += new
                # These come from the launcher: a rank's program must not say them.
                docs.extend((piece.rank, doc) for doc in found if doc["type"] not in _HOSTS or piece.stream == "host")
            patch = patch_of(
                attempt.run, attempt.pace, number, writes, docs, lambda unit: self._expected_total(attempt, unit)
            )
            if writes:
                check_open(self._store, job_id, number, attempt.gang, attempt.run, now, self._late)
            patch |= shipped_patch(attempt.gang, attempt.run, number, batch, now)
            events = _checkpoints(job_id, number, attempt.project, docs, now) if attempt.job else []
            skipped, pauses = (
                [Event(one, now, SYSTEM, attempt.project, job_id, number) for one in found]
                for found in (restore_events(docs, attempt.restores) if attempt.job else ([], []))
            )
            records: list[Record] = []
            if self._intake is not None:
                records = self._intake.records(job_id, number, attempt.project, batch, writes, docs, now, holder)

            def origin() -> list[SetAside]:
                return _aside(job_id, number, batch, writes, now)

            def propose(state: State) -> Entry:
                nonlocal command, place
                if self._gone(job_id):  # deleted meanwhile: nothing may be written after the deletion
                    return Entry()
                job = state.jobs.get(job_id)
                told = [*_taken(job, number, docs, now), *_worker_news(state, job, number, batch, why, now)]
                place = _place(state, job, number, batch.worker)
                told += fault_events(state, place.name, docs, now) if place is not None else []
                if attempt.job and batch.state == "running":
                    command = _command(job, number, now)
                patches = [RunPatch(job_id, patch)] if patch else []
                return Entry([*skipped, *events, *told, *pauses], writes, patches, records=records, origin=origin)

            try:
                self._commit.submit(propose).result()
            except (Unavailable, Conflict):
                self._forget(job_id, number)  # it may have been written anyway: read the offsets from the store again
                raise
            attempt.run.update(patch)
            if "progress" in patch:
                attempt.told_at = now
            for write in writes:
                attempt.streams[(write.rank, write.stream)] = StreamState(write.end, write.shapes)
                if write.columns:
                    self._tap.publish(job_id, number, write.rank, write.columns)
            self._counters.ingested(_sizes(writes), sum(map(_points, writes)))
            if self._samples is not None and batch.sample is not None and place is not None:
                source = f"{job_id}/{number}/{batch.worker}"
                self._samples.take(place.name, place.pool, batch.sample, now, place.total.accelerators, source)
            acked = {key: state.acked for key, state in attempt.streams.items()}
            if self._hangs is not None and attempt.job and batch.state == "running":
                known = {rank: offset for (rank, stream), offset in acked.items() if stream == "spool"}
                self._hangs.take(job_id, number, batch, writes, docs, known, now)
                command = command or self._hangs.command(job_id, number, batch.worker)
            if self._stragglers is not None and attempt.job and batch.state == "running":
                self._stragglers.take(job_id, number, batch, writes, docs)
            if self._alerts is not None and attempt.job and batch.state == "running":
                self._alerts.take_phases(job_id, number, docs)
            if command is None and attempt.job and batch.state == "running":
                command = self._ordered(attempt, job_id, number, batch.worker, now)
        keep = steps_needed(self._store.state(), job_id) if batch.state == "running" else ()
        return Reply(acked, command, done=batch.state == "ended", time=self._clock.now(), keep=keep)

    def expected_ends(self) -> dict[str, float]:
        """When running jobs end by the progress that they reported lately, in seconds since 1970."""
        jobs, since = self._store.state().jobs, self._clock.now() - _LATELY
        with self._lock:
            attempts = list(self._attempts.items())
        found: dict[str, float] = {}
        for (job_id, number), attempt in attempts:
            job = jobs.get(job_id)
            if attempt.told_at is None or attempt.told_at < since or job is None or job.phase != "running":
                continue
            left = attempt.run["progress"]["eta"]
            if left is not None and job.attempt is not None and job.attempt.number == number:
                found[job_id] = attempt.told_at + left
        return found

    def check_open(self, job_id: str, number: int) -> None:
        """Raises NotFound if nothing new of the attempt is accepted."""
        if not self._gone(job_id):
            attempt = self._open(job_id, number)
            check_open(self._store, job_id, number, attempt.gang, attempt.run, self._clock.now(), self._late)

    def _ordered(self, attempt: _Attempt, job_id: str, number: int, worker: int, now: float) -> Command | None:
        """What people and alerts want of the worker's ranks."""
        pending = [one.command(job_id, number, now) for one in self._orders]
        if self._alerts is not None:
            pending.append(self._alerts.command(job_id, number))
        command = next_command(pending, attempt.ordered.get(worker, ""))
        if command is not None:
            attempt.ordered[worker] = command.kind
        return command

    def _explained(self, job_id: str, number: int, batch: Batch) -> Batch:
        """Adds why a worker was told to leave its node: the worker doesn't know, its engine may."""
        if self._cause is None or batch.exit is None or not _told_to_leave(batch.exit):
            return batch
        try:
            found = self._cause(job_id, number, batch.worker)
        except Exception:  # the worker's own report is more important than the engine's explanation
            _log.exception("the engine can't say why worker %s of %s/%s left", batch.worker, job_id, number)
            return batch
        if not found:
            return batch
        code, state = found[0], self._store.state()
        job = state.jobs.get(job_id)
        if code == "node_lost" and job is not None and job.attempt is not None and is_spot(state, job.attempt.pool):
            code = "spot_notice"  # as `evicted` has it, which came too late
        return replace(batch, exit=replace(batch.exit, reason=code, detail=found[1]))

    def _eviction(self, job_id: str, number: int, batch: Batch) -> tuple[str, str] | None:
        """Why the cluster takes a running worker's place away; None if it does not, or does not say."""
        job = self._store.state().jobs.get(job_id)
        if self._cause is None or not batch.told or batch.state != "running" or job is None or job.stop is not None:
            return None
        try:
            return self._cause(job_id, number, batch.worker)
        except Exception:
            _log.exception("the engine can't say why worker %s of %s/%s leaves", batch.worker, job_id, number)
            return None

    def _gone(self, job_id: str) -> bool:
        return self._intake is not None and self._intake.gone(job_id)

    def _open(self, job_id: str, number: int) -> _Attempt:
        key = (job_id, number)
        with self._lock:
            if key in self._attempts:
                self._attempts.move_to_end(key)
                return self._attempts[key]
        project, job = self._owner(job_id, number)
        gang, run = gang_of(self._store, job, number), self._store.run(job_id)
        keep = job.spec.log_limit if job is not None else None
        names = job.spec.secrets if job is not None else ()
        values = self._secrets(project, names) if names and self._secrets is not None else ()
        opened = _Attempt(
            project,
            job.name if job is not None else "",
            gang,
            run,
            dict(self._store.streams(job_id, number)),
            self._log_limit if keep is None else keep,
            Masker(values),
        )
        with self._lock:
            if len(self._attempts) >= _KEPT_ATTEMPTS:
                self._attempts.popitem(last=False)
            return self._attempts.setdefault(key, opened)

    def _owner(self, job_id: str, number: int) -> tuple[str, Job | None]:
        """The project of a run, and its job if it is the run of a job."""
        job = self._store.job(job_id)
        if job is not None:
            if job.attempt is not None and number <= job.attempt.number:
                return job.project, job
        elif self._intake is not None and number >= 1:
            project = self._intake.open(job_id)
            if project is not None:
                return project, None
        raise NotFound(f"There is no attempt {job_id}/{number}.")

    def _expected_total(self, attempt: _Attempt, unit: str) -> int | None:
        """The step at which the last succeeded run of the same name ended."""
        if not attempt.job:
            return None
        want = JobFilter(projects=[attempt.project], phases=["succeeded"], name=attempt.name, limit=1)
        for job in self._store.jobs(want):
            ended = self._store.run(job.id).get("progress")
            return int(ended["step"]) if ended and ended["unit"] == unit else None
        return None

    def _forget(self, job_id: str, number: int) -> None:
        with self._lock:
            self._attempts.pop((job_id, number), None)

    def _writes(
        self, job_id: str, number: int, attempt: _Attempt, piece: Piece, now: float
    ) -> tuple[list[StreamWrite], list[dict[str, Any]]]:
        known = attempt.streams.get((piece.rank, piece.stream), StreamState(0, {}))
        end = piece.offset + len(piece.data)
        if end <= known.acked:
            return [], []
        start = max(piece.offset, known.acked)
        data = piece.data[start - piece.offset :]
        if piece.stream == "log":
            made = StreamWrite(job_id, number, piece.rank, "log", start, end, log=data, keep=attempt.keep)
            return _by_time(made, piece.times, now), []
        name = f"{piece.stream} of rank {piece.rank}"
        if start > known.acked:
            raise Invalid(f"The {name} goes on at {start}; the server has it up to {known.acked}.")
        try:
            found = decode(data, known.shapes)
        except ValueError as error:
            raise Invalid(f"The {name} is damaged after offset {start}: {error}") from error
        for doc in found.docs:
            attempt.masker.mask_doc(doc, _NEVER_MASKED)
        write = StreamWrite(
            job_id, number, piece.rank, piece.stream, start, end, columns=found.columns, shapes=found.shapes
        )
        return [write], found.docs


def _by_time(write: StreamWrite, times: Sequence[tuple[int, float]], now: float) -> list[StreamWrite]:
    """A write of output, cut at the lines that were being written at these moments; `now` if none is known."""
    moments = {0: now}  # by where in the write
    for offset, moment in times[:PIECE_TIMES]:
        if offset < write.end and moment > 0:
            at = max(0, offset - write.start)
            moments[write.log.rfind(b"\n", 0, at) + 1] = min(moment, now)
    edges = sorted(moments)
    return [
        replace(write, start=write.start + at, end=write.start + end, log=write.log[at:end], time=moments[at])
        for at, end in pairwise([*edges, len(write.log)])
    ]


def _aside(job_id: str, number: int, batch: Batch, writes: Sequence[StreamWrite], now: float) -> list[SetAside]:
    """What is kept of a batch whose points and documents can't be written: the new bytes of its streams."""
    new: dict[tuple[int, Stream], int] = {(write.rank, write.stream): write.start for write in writes}
    pieces = [piece for piece in batch.pieces if piece.stream != "log" and (piece.rank, piece.stream) in new]
    found = []
    for piece in pieces:
        start = new[piece.rank, piece.stream]
        source = f"{piece.stream} of rank {piece.rank}, from byte {start}"
        found.append(SetAside(source, job_id, number, piece.data[start - piece.offset :], time=now))
    return found or [SetAside(f"what worker {batch.worker} said of itself", job_id, number, time=now)]


def _masked(batch: Batch, masker: Masker) -> Batch:
    """Masks secrets in the exit detail, which quotes the worker's last lines."""
    if batch.exit is None:
        return batch
    return replace(batch, exit=replace(batch.exit, detail=masker.mask(batch.exit.detail)))


def _ends(batch: Batch) -> dict[tuple[int, Stream], int]:
    return {(piece.rank, piece.stream): piece.offset + len(piece.data) for piece in batch.pieces}


def _worker_news(
    state: State, job: Job | None, number: int, batch: Batch, why: tuple[str, str] | None, now: float
) -> list[Event]:
    """Events for a worker that has a machine, started or ended according to the batch, if that is new. `why`: its
    cluster takes its place away."""
    if job is None or not job.active or job.attempt is None or job.attempt.number != number:
        return []
    workers = job.attempt.workers
    if batch.worker >= len(workers) or batch.worker < 0:
        raise Invalid(f"Attempt {job.id}/{number} has {len(workers)} workers; there is no worker {batch.worker}.")

    worker, events = workers[batch.worker], []
    if not worker.placed and batch.node in state.machines:  # it may end before the engine says where it is
        events.append(worker_placed(job, batch.worker, batch.node, now))
    if worker.state == "starting":
        events += workers_running(job, {batch.worker}, now)
    if batch.leaving is not None and batch.state == "running":
        if not batch.told:
            events += leaves(state, job, batch.worker, batch.leaving, now)
        elif why is not None:
            events += evicted(state, job, batch.worker, batch.leaving, why, now)
    if batch.offset is not None and worker.placed:
        events += clock_events(state, worker.node, *batch.offset, now)
    if batch.links and batch.worker == 0:
        events += link_events(state, job, batch.links, now)
    if batch.state == "ended" and batch.exit is not None and worker.state != "ended":
        if batch.exit.reason == "spot_notice" and job.stop is None:
            events += taken_away(state, job, batch.worker, now)
        events.append(worker_ended(job, batch.worker, batch.exit, now))
    return events


def _place(state: State, job: Job | None, number: int, worker: int) -> Node | None:
    """The node of a worker of the current attempt. A launcher's word for another node does not count."""
    if job is None or not job.active or job.attempt is None or job.attempt.number != number:
        return None
    workers = job.attempt.workers
    return state.find_node(workers[worker].node) if 0 <= worker < len(workers) and workers[worker].placed else None


def _sizes(writes: Sequence[StreamWrite]) -> dict[str, int]:
    found: dict[str, int] = {}
    for write in writes:
        found[write.stream] = found.get(write.stream, 0) + write.end - write.start
    return found


def _points(write: StreamWrite) -> int:
    return sum(len(column.steps) for column in write.columns.values()) if write.columns else 0


def _told_to_leave(end: WorkerExit) -> bool:
    """Whether the worker was told to exit. A cluster may signal the ranks too, and a rank may end first."""
    return end.reason == "node_lost" or (end.reason == "killed_by_signal" and end.signal == signal.SIGTERM)


def _command(job: Job | None, number: int, now: float) -> Command | None:
    """What a running worker should do. The engine may have no way to tell it, or a slower one."""
    if job is None or not job.active or job.attempt is None or job.attempt.number != number:
        # The attempt was given up as lost, and its resources may be in use by another.
        return Command(_OVER, "kill", "node_lost")
    if job.stop is None:
        order = Command(int(job.attempt.planned_at * 1000), "stop", CONSEQUENCE, GANG_GRACE)
        return order if job.attempt.broken else None
    left = max(0.0, job.stop.at + job.stop.grace - now)
    return Command(int(job.stop.at * 1000), "stop", job.stop.reason.code, left)


def _checkpoints(
    job_id: str, number: int, project: str, docs: list[tuple[int, dict[str, Any]]], now: float
) -> list[Event]:
    events = []
    for rank, doc in docs:
        step, size = doc.get("step"), doc.get("bytes", 0)
        if doc.get("type") == "checkpoint" and _fits(step) and _fits(size):
            committed = CheckpointCommitted(step, str(doc.get("path", "")), size, rank)
            events.append(Event(committed, now, SYSTEM, project, job_id, number))
    return events


def _taken(job: Job | None, number: int, docs: list[tuple[int, dict[str, Any]]], now: float) -> list[Event]:
    """Events for the checkpoint of another run that the job has taken."""
    if job is None or job.start is None or not any(doc["type"] == "taken" for _, doc in docs):
        return []
    known = (job.start.taken, job.checkpoint.path) if job.checkpoint is not None and not job.has_saved else None
    found = [one for one in taken_events(docs, job.start.run) if (one.step, one.path) != known]
    return [Event(one, now, SYSTEM, job.project, job.id, number) for one in found]


def _fits(value: object) -> TypeGuard[int]:
    """Whether it is an integer that a database can store."""
    return isinstance(value, int) and abs(value) < 2**63
