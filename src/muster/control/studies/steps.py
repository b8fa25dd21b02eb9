"""What a round of a study wants done, and how it becomes one entry: events of trials, and what happens to their jobs.

A step that does not fit the state any more, because a job has ended meanwhile, makes the whole entry void: the round is
decided anew from what is there then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from muster.control.admission import CHECKS, Context
from muster.control.admission.budget import claims
from muster.control.studies.snapshot import Snapshot
from muster.control.submit import Submission, accepted_entry, admit, promoted
from muster.core.entities.study import StudyWaits, progress_of
from muster.core.errors import Refused
from muster.core.event import SYSTEM, Event
from muster.core.job import Job
from muster.core.job_events import JobEnd, JobStopped, JobStopping
from muster.core.payload import Payload
from muster.core.reasons import Reason
from muster.core.state import State
from muster.store.base import Entry, Proposal, Record

ContextOf = Callable[[State, Submission], Context]


@dataclass(slots=True)
class Taken:
    """What the steps of an entry have taken so far: the number of the next job, quotas and budgets."""

    number: int
    context: ContextOf
    pending: Counter[tuple[str, str]] = field(default_factory=Counter)

    def asked(self, state: State, submission: Submission) -> Context:
        return replace(self.context(state, submission), pending=self.pending)

    def take(self, submission: Submission, asked: Context) -> None:
        self.pending.update(claims(submission.spec, asked))
        for whose in (("user", submission.user), ("project", submission.spec.project)):
            self.pending[whose] += 1


@dataclass(slots=True)
class Written:
    """What became of the steps."""

    steps: int = 0
    refused: bool = False


class Void(Exception):
    """The state is not the one that was decided from."""


class Step(Protocol):
    """`entry` raises Void if the step is not possible any more, and Refused if its job is not accepted."""

    def entry(self, state: State, taken: Taken) -> Entry:
        """`taken`: what the steps before it have taken."""


@dataclass(frozen=True, slots=True)
class Note:
    """Only an event of the study or of a trial."""

    data: Payload
    job: str
    project: str
    now: float
    actor: str = SYSTEM

    def entry(self, state: State, taken: Taken) -> Entry:
        return Entry([Event(self.data, self.now, self.actor, self.project, self.job)])


@dataclass(frozen=True, slots=True)
class StopJob:
    """The job of a trial saves and leaves."""

    job: str
    why: Reason
    now: float

    def entry(self, state: State, taken: Taken) -> Entry:
        job = state.jobs.get(self.job)
        if job is None:
            raise Void
        if job.stop is not None and job.stop.then == "stopped":
            return Entry()
        data = JobStopping(self.why, "stopped", job.spec.stop_grace) if job.active else JobStopped(self.why)
        return Entry([_of(job, data, self.now)])


@dataclass(frozen=True, slots=True)
class StartJob:
    """A new trial, and its job."""

    made: Payload
    submission: Submission
    now: float
    whole: bool

    def entry(self, state: State, taken: Taken) -> Entry:
        asked = taken.asked(state, self.submission)
        needs = admit(self.submission, asked, CHECKS)
        taken.take(self.submission, asked)
        entry = accepted_entry(asked, self.submission, taken.number, needs, self.now, self.whole)
        taken.number += 1
        job = entry.events[0]
        started = Event(self.made, job.time, SYSTEM, job.project, job.job)
        return replace(entry, events=[*entry.events, started])


@dataclass(frozen=True, slots=True)
class ContinueJob:
    """A paused trial goes on from its checkpoint, perhaps in another pool."""

    made: Payload
    job: Job
    pool: str | None
    submission: Submission
    now: float

    def entry(self, state: State, taken: Taken) -> Entry:
        if self.job.id in state.jobs:
            raise Void
        asked = replace(taken.asked(state, self.submission), spent=self.job.spent)
        resumed = promoted(self.job, self.submission, asked, self.pool, self.now)
        taken.take(self.submission, asked)
        return Entry([resumed, Event(self.made, self.now, SYSTEM, self.job.project, self.job.id)])


@dataclass(frozen=True, slots=True)
class EndJob:
    """The study's own job is over."""

    job: str
    end: JobEnd
    now: float

    def entry(self, state: State, taken: Taken) -> Entry:
        job = state.jobs.get(self.job)
        return Entry([_of(job, self.end, self.now)] if job is not None else [])


def propose_steps(
    snapshot: Snapshot, steps: Sequence[Step], context: ContextOf, now: float, written: Written
) -> Proposal:
    """All steps in one transaction, up to one that is refused: then the study waits, with the reason. Nothing if the
    study has changed, or a step is void."""
    study = snapshot.study

    def propose(state: State) -> Entry:
        written.steps, written.refused = 0, False
        known = progress_of(state, study.id)
        if study.id not in state.studies or known.changes != snapshot.progress.changes:
            return Entry()
        events, rows, records = list[Event](), list[Any](), list[Record]()
        taken = Taken(state.next_number, context)
        for step in steps:
            try:
                one = step.entry(state, taken)
            except Void:
                written.steps = 0
                return Entry()
            except Refused as error:
                wait, written.refused = error.reasons[0], True
                if known.wait is None or known.wait.code != wait.code:
                    waits = StudyWaits(dict(wait.to_dict()))
                    events.append(Event(waits, now, SYSTEM, study.project, study.id))
                break
            events += one.events
            rows += one.rows
            records += one.records
            written.steps += 1
        return Entry(events, rows=rows, records=records)

    return propose


def _of(job: Job, data: Payload, now: float) -> Event:
    return Event(data, now, SYSTEM, job.project, job.id, job.attempt.number if job.attempt is not None else 0)
