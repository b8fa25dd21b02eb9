"""The events of an attempt, its workers and its checkpoints, and what each changes.

A late report of an old attempt is dropped here (`State.current`) and nowhere else.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from muster.core.entities.account import charge
from muster.core.entities.ledger import enter
from muster.core.entities.node_record import count_failure, note_slow
from muster.core.job import Attempt, CheckpointMark, Job, Worker
from muster.core.payload import Doc, Payload, Seats, payload
from muster.core.reasons import Reason, reason
from muster.core.repair import after_attempt
from muster.core.start import settle_start

if TYPE_CHECKING:
    from muster.core.event import Event
    from muster.core.state_data import Changes, State


def program_of(job: Job) -> str:
    """What its runs have in common, for telling a slow program from a slow node."""
    return f"{job.project}/{job.user}/{job.spec.name}"


@payload("attempt.planned")
class AttemptPlanned(Payload):
    """The whole gang got its seats: a new attempt begins."""

    seats: Seats

    def fold(self, state: State, event: Event, changes: Changes) -> None:
        job = state.jobs[event.job]
        state.dequeue(job)
        workers = [Worker(seat) for seat in self.seats]
        from_step = job.checkpoint.step if job.checkpoint else None
        pool = state.pool_of(workers)
        job.attempt = Attempt(event.attempt, event.time, workers, from_step=from_step, pool=pool)
        job.reason, job.not_before = None, 0.0
        job.waited += event.time - job.since
        job.enter("starting", event.time)
        changes.touch(job)
        state.active[job.id] = None
        state.hold(job)
        charge(state, job, +1, event.time, changes)


@payload("attempt.running")
class AttemptRunning(Payload):
    """Every worker has started its ranks."""

    def fold(self, state: State, event: Event, changes: Changes) -> None:
        job = state.current(event)
        if job is None or job.attempt is None or job.attempt.running_at is not None:
            return
        job.attempt.running_at, job.reason = event.time, job.stop.reason if job.stop else None
        for worker in job.attempt.workers:
            if worker.state == "starting":
                worker.state = "running"
        state.journal.note("job", job.id)
        job.started_at = job.started_at or event.time
        if job.phase == "starting":
            job.enter("running", event.time)
        changes.touch(job)


@payload("attempt.ended")
class AttemptEnded(Payload):
    """All workers have ended: the outcome of the gang, its root cause, and the last step that it reported."""

    outcome: str
    reason: Reason
    step: int | None = None

    def fold(self, state: State, event: Event, changes: Changes) -> None:
        job = state.current(event)
        if job is None or job.attempt is None or job.attempt.ended_at is not None:
            return
        attempt = job.attempt
        job.repair = after_attempt(job, self.step, self.reason)
        attempt.ended_at, attempt.outcome, attempt.reason = event.time, self.outcome, self.reason
        attempt.step = self.step
        if attempt.running_at is not None:
            job.ran += event.time - attempt.running_at
        state.release(job)
        charge(state, job, -1, event.time, changes)
        enter(state, job, event.time, changes)
        if self.reason.category == "node":
            node = str(self.reason.data.get("node", ""))
            count_failure(state, node, self.reason.code, event, self.reason.message, changes)
        changes.touch(job)


@payload("attempt.waits")
class AttemptWaits(Payload):
    """What a gang waits for in the engine's own queue, if it has one; logged when it changes."""

    reason: Reason

    def fold(self, state: State, event: Event, changes: Changes) -> None:
        job = state.current(event)
        if job is not None and job.phase == "starting":
            job.reason = self.reason
            changes.touch(job)


@payload("attempt.room")
class AttemptRoom(Payload):
    """How many nodes a cluster that chooses the machines could give an elastic gang now, its own among them; logged
    when it changes, at most `num_nodes`."""

    room: int

    def fold(self, state: State, event: Event, changes: Changes) -> None:
        job = state.current(event)
        if job is not None and job.attempt is not None:
            job.attempt.room = self.room
            changes.touch(job)


@payload("attempt.paused")
class AttemptPaused(Payload):
    """A running program waits for the store of its checkpoints, as `text` says; an empty text: no longer."""

    text: str

    def fold(self, state: State, event: Event, changes: Changes) -> None:
        job = state.current(event)
        if job is not None and job.phase == "running":
            job.reason = reason("checkpoints_away", self.text) if self.text else None
            changes.touch(job)


@payload("attempt.hung")
class AttemptHung(Payload):
    """The gang's processes live and its work does not go on. `verdict` says which ranks are behind, by which signals;
    `action` is what follows: `restart`, or `report` for nothing."""

    reason: Reason
    verdict: Doc
    action: str

    def fold(self, state: State, event: Event, changes: Changes) -> None:
        job = state.current(event)
        if job is not None and job.stop is None:
            job.reason = self.reason
            changes.touch(job)


@payload("attempt.moves")
class AttemptMoves(Payload):
    """A gang that was reported as hung goes on by itself."""

    def fold(self, state: State, event: Event, changes: Changes) -> None:
        job = state.current(event)
        if job is not None and job.stop is None and job.reason is not None and job.reason.code == "hung":
            job.reason = None
            changes.touch(job)


@payload("attempt.straggler")
class AttemptStraggler(Payload):
    """Ranks are slower than their peers, which wait for them in every step. `verdict` has the ranks, how much slower
    they are, the part of the gang's time that is lost, and the evidence; `nodes` are those of the ranks."""

    reason: Reason
    verdict: Doc
    nodes: list[str]

    def fold(self, state: State, event: Event, changes: Changes) -> None:
        job = state.current(event)
        if job is None:
            return
        sure = self.verdict.get("evidence") == "waiting"
        for node in self.nodes:
            note_slow(state, node, program_of(job) if sure else "", event, self.reason.message, changes)
        if job.stop is None and (job.reason is None or job.reason.code == self.reason.code):
            job.reason = self.reason
            changes.touch(job)


@payload("attempt.steady")
class AttemptSteady(Payload):
    """A gang that had a straggler has none any more."""

    def fold(self, state: State, event: Event, changes: Changes) -> None:
        job = state.current(event)
        if job is not None and job.stop is None and job.reason is not None and job.reason.code == "straggler":
            job.reason = None
            changes.touch(job)


@payload("worker.placed")
class WorkerPlaced(Payload):
    """The machine that the engine chose for the worker with this index."""

    worker: int
    node: str

    def fold(self, state: State, event: Event, changes: Changes) -> None:
        job = state.current(event)
        if job is not None and job.attempt is not None:
            job.attempt.workers[self.worker].at = self.node
            changes.touch(job)


@payload("worker.running")
class WorkerRunning(Payload):
    """The worker has started its ranks, and others of the gang have not yet."""

    worker: int

    def fold(self, state: State, event: Event, changes: Changes) -> None:
        job = state.current(event)
        if job is not None and job.attempt is not None:
            worker = job.attempt.workers[self.worker]
            if worker.state == "starting":
                worker.state = "running"
                changes.touch(job)


@payload("worker.ended")
class WorkerEnded(Payload):
    """The worker has ended; `exit` is the `WorkerExit` of `muster.wire`."""

    worker: int
    exit: Doc

    def fold(self, state: State, event: Event, changes: Changes) -> None:
        job = state.current(event)
        if job is not None and job.attempt is not None:
            worker = job.attempt.workers[self.worker]
            if worker.state != "ended":
                worker.state, worker.exit = "ended", self.exit
                job.attempt.broken = job.attempt.broken or self.exit.get("outcome") != "succeeded"
                changes.touch(job)


@payload("checkpoint.committed")
class CheckpointCommitted(Payload):
    """A rank reports a saved and verified checkpoint."""

    step: int
    path: str
    bytes: int
    rank: int = 0

    def fold(self, state: State, event: Event, changes: Changes) -> None:
        job = state.current(event)
        if job is None:
            return
        # A program may count its steps anew after the checkpoint of another run.
        if job.checkpoint is not None and job.has_saved and job.checkpoint.step > self.step:
            return
        settle_start(state, job)
        job.checkpoint = CheckpointMark(self.step, self.path, event.time, self.bytes, event.attempt)
        state.journal.note("job", job.id)
        changes.jobs[job.id] = job


@payload("checkpoint.taken")
class CheckpointTaken(Payload):
    """The run has the checkpoint of another run that it starts from in its own place. `how`: `link` if both have the
    same files, else `copy`, and `why` not the same."""

    run: str
    step: int
    path: str
    bytes: int
    how: str
    why: str = ""

    def fold(self, state: State, event: Event, changes: Changes) -> None:
        job = state.current(event)
        if job is None or job.start is None or job.start.run != self.run or job.since_attempt:
            return
        settle_start(state, job)
        job.start = replace(job.start, taken=self.step)
        if not job.has_saved:
            job.checkpoint = CheckpointMark(self.step, self.path, event.time, self.bytes, 0)
            state.journal.note("job", job.id)
        if job.attempt is not None and job.attempt.from_step is None:
            job.attempt.from_step = self.step
        changes.touch(job)


@payload("checkpoint.skipped")
class CheckpointSkipped(Payload):
    """A program found a damaged checkpoint, and what is wrong with it. `step`: the one that it goes on from instead."""

    path: str
    what: str
    step: int | None = None

    def fold(self, state: State, event: Event, changes: Changes) -> None:
        job = state.current(event)
        if job is None or self.step is None or job.checkpoint is None or job.checkpoint.step <= self.step:
            return
        job.checkpoint = job.checkpoint.at(self.step)
        job.repair = job.repair.without_checkpoints_after(self.step)
        if job.attempt is not None:
            job.attempt.from_step = self.step
        state.journal.note("job", job.id)
        changes.touch(job)
