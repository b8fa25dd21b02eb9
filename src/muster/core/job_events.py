"""The events of a job, from its submission to its end, and what each changes. Those of an attempt are beside it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal

from muster.api.words import Phase
from muster.core.array import end_task, is_full, resume_task
from muster.core.budget_events import commit_money
from muster.core.entities.demand import learn_demand
from muster.core.job import Job, StopOrder
from muster.core.needs import meet_needs
from muster.core.payload import Doc, Payload, Seats, payload
from muster.core.reasons import Reason
from muster.core.spec import JobSpec, ask
from muster.core.start import StartPoint, source_ended

if TYPE_CHECKING:
    from muster.core.event import Event
    from muster.core.state_data import Changes, State


@payload("job.submitted")
class JobSubmitted(Payload):
    """A job was accepted. A job without nodes runs from here on.

    `key` is the idempotency key, `expect` the expected run time in seconds, `trusted` says that an administrator
    submitted it, and `code` describes the snapshot of its `workdir`.
    `index` is that of a task of an array, or of a trial of a study.
    `needs`: the ids of the jobs that it needs, and how each has to end. Those that were over by then had ended so.
    `reserve` is its projected cost in millionths, which its budgets count as committed.
    `start`: the `StartPoint` of a job that starts from a checkpoint of another run.
    Of a trial, `study_left` is how many trials its study has yet to run, with it, and `study_ran` how many seconds its
    others have run: an order counts all of them as one job.
    """

    number: int
    queue: str
    user: str
    spec: Doc | JobSpec  # JSON; in a simulation, where nothing is encoded, the object itself
    name: str = ""
    key: str | None = None
    expect: float | None = None
    trusted: bool = False
    code: Doc | None = None
    needs: Doc | None = None
    index: int | None = None
    reserve: int = 0
    start: Doc | None = None
    study_left: int = 1
    study_ran: float = 0.0

    def fold(self, state: State, event: Event, changes: Changes) -> None:
        spec = self.spec if isinstance(self.spec, JobSpec) else JobSpec.model_validate(self.spec)
        job = Job(
            event.job, self.number, event.project, self.queue, self.user, spec, event.time,
            since=event.time, key=self.key, ask=ask(spec), expect=self.expect,
            code=(self.code or {}).get("tree", ""), trusted=self.trusted,
        )  # fmt: skip
        job.index, job.study_left, job.study_ran = self.index, self.study_left, self.study_ran
        job.start = StartPoint(**self.start) if self.start else None
        if self.needs:
            job.needs = tuple(self.needs.items())
        if job.seatless:
            job.phase, job.started_at = "running", event.time
        else:
            job.awaits = _awaited(state, job)
        state.add_job(job)
        if not job.seatless:
            learn_demand(state, job, event.time, changes)
        commit_money(state, job, self.reserve, changes)
        changes.jobs[job.id] = job

    def columns(self) -> tuple[str | None, ...]:
        return (self.queue, self.user, self.key)

    @property
    def seatless(self) -> bool:
        """See `Job.seatless`."""
        spec = self.spec_doc
        return spec.get("num_nodes") == 0 or (spec.get("array") is not None and self.index is None)

    @property
    def spec_doc(self) -> Doc:
        return self.spec if isinstance(self.spec, dict) else self.spec.model_dump(mode="json")


@payload("job.claimed")
class JobClaimed(Payload):
    """Seats are reserved for the queued job until they are free. No seats: the reservation is released."""

    seats: Seats

    def fold(self, state: State, event: Event, changes: Changes) -> None:
        job = state.jobs.get(event.job)
        if job is None or (job.phase != "queued" and (job.stop is None or job.stop.then != "queued")):
            return
        job.claim = self.seats
        state.journal.note("job", job.id)
        changes.jobs[job.id] = job


@payload("job.waits")
class JobWaits(Payload):
    """What a queued job waits for now; logged when it changes."""

    reason: Reason


@payload("job.forecast")
class JobForecast(Payload):
    """When the queued job was expected to start, for scoring forecasts. Times in seconds, UTC."""

    at: float
    p50: float
    p90: float | None
    cut: list[str]


@payload("job.resumed")
class JobResumed(Payload):
    """A finished job is queued again. `doc` and `spec` are the job as it was, so that the log alone can restore it.

    `ran`: seconds that it has run, of a trial that goes on: its `max_duration` is for all of it.
    """

    doc: Doc
    spec: Doc
    reason: Reason
    reserve: int = 0
    ran: float = 0.0

    @property
    def seatless(self) -> bool:
        """See `Job.seatless`."""
        array = self.spec.get("array") is not None and self.doc.get("index") is None
        return array or self.spec.get("num_nodes") == 0

    def fold(self, state: State, event: Event, changes: Changes) -> None:
        job = Job.from_doc(self.doc, JobSpec.model_validate(self.spec))
        job.finished_at, job.stop, job.charges, job.not_before, job.ran, job.claim = None, None, {}, 0.0, self.ran, ()
        job.repair, job.relaunch = replace(job.repair, stalled=(), error=None), ""
        job.reason = self.reason
        job.awaits = _awaited(state, job) if not job.seatless else ()
        if job.array is not None:
            resume_task(state, job, self.doc["phase"], changes)
        job.phase, job.since = "running" if job.seatless else "queued", event.time
        if job.attempt is not None and not job.attempt.pool:  # a document of the first release
            job.attempt.pool = state.pool_of(job.attempt.workers)
        job.reserved = 0
        state.add_job(job)
        commit_money(state, job, self.reserve, changes)
        changes.jobs[job.id] = job


@payload("job.priority")
class JobPriority(Payload):
    """A job that is not over has another priority from now on, and why. Its spec keeps the one that it was given."""

    priority: int
    reason: str = ""

    def fold(self, state: State, event: Event, changes: Changes) -> None:
        job = state.jobs.get(event.job)
        if job is not None:
            job.new_priority = self.priority
            state.journal.note("job", job.id)
            changes.jobs[job.id] = job


@payload("job.stopping")
class JobStopping(Payload):
    """A running gang is asked to stop, within `grace` seconds. `then` is the phase of the job afterwards."""

    reason: Reason
    then: Literal["stopped", "queued"]
    grace: float

    def fold(self, state: State, event: Event, changes: Changes) -> None:
        job = state.jobs.get(event.job)
        if job is None or not job.active:
            return
        job.stop = StopOrder(self.reason, self.then, self.grace, event.time)
        job.reason = self.reason
        job.enter("stopping", event.time)
        changes.touch(job)
        state.journal.note("job", job.id)


@payload("job.requeued")
class JobRequeued(Payload):
    """A job is queued again after an attempt. The restart is charged to the budget `charge`."""

    reason: Reason
    charge: str
    not_before: float

    def fold(self, state: State, event: Event, changes: Changes) -> None:
        job = state.jobs[event.job]
        job.charges = {**job.charges, self.charge: job.charges.get(self.charge, 0) + 1}
        job.reason, job.not_before, job.stop = self.reason, self.not_before, None
        job.enter("queued", event.time)
        changes.touch(job)
        state.enqueue(job)


@dataclass(slots=True)
class JobEnd(Payload):
    """The end of a job. The job leaves the state; its record stays in the store."""

    PHASE: ClassVar[Phase]
    reason: Reason

    def fold(self, state: State, event: Event, changes: Changes) -> None:
        job = state.jobs.get(event.job)
        if job is None:
            return
        if job.phase == "queued":
            state.dequeue(job)
        commit_money(state, job, -job.reserved, changes)
        job.reason, job.finished_at = self.reason, event.time
        job.enter(self.PHASE, event.time)
        changes.touch(job)
        state.remove(job)
        state.learn(job)
        if job.array is not None:
            end_task(state, job, event.time, changes)
        if job.id in state.dependents:
            meet_needs(state, job, event.time, changes)
        if job.id in state.starters:
            source_ended(state, job, changes)


@payload("job.succeeded")
class JobSucceeded(JobEnd):
    """Every rank ended with exit code 0."""

    PHASE = "succeeded"


@payload("job.failed")
class JobFailed(JobEnd):
    """It failed and does not start again."""

    PHASE = "failed"


@payload("job.stopped")
class JobStopped(JobEnd):
    """It was stopped on request or at a limit."""

    PHASE = "stopped"


def _awaited(state: State, job: Job) -> tuple[str, ...]:
    """What the job, which is new or resumed, waits for before it is queued."""
    needed = [name for name, _ in job.needs if name in state.jobs]
    if job.array is not None and is_full(state, job.array):
        needed.append(job.array)
    return tuple(needed)


JOB_ENDS: dict[str, type[JobEnd]] = {cls.PHASE: cls for cls in (JobSucceeded, JobFailed, JobStopped)}
