"""Jobs: submit, list, show, stop and resume."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import unquote

from fastapi import Header, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from muster.api.jobs import (
    AttemptList,
    BatchAccepted,
    BatchAnswer,
    BatchRefused,
    DryRun,
    JobDetail,
    JobList,
    JobSpecView,
    JobView,
)
from muster.api.why import WhatIfView
from muster.api.words import PHASES, Phase
from muster.control.admission import Files, Site, certificate
from muster.control.admission.budget import warnings
from muster.control.admission.files import NO_FINDINGS
from muster.control.admission.leaks import leak_warnings
from muster.control.cost_before import CostFacts, cost_before, cost_facts
from muster.control.set_priority import set_priority
from muster.control.studies.start import resume_study
from muster.control.submit import (
    Submission,
    admit,
    context,
    earlier,
    look_beforehand,
    peek,
    resume,
    stop,
    submit,
    submit_together,
)
from muster.core.array import parse_array
from muster.core.errors import Conflict, Invalid, MusterError, Refused
from muster.core.event import Event
from muster.core.job import Job
from muster.core.job_events import JobSubmitted
from muster.core.parse import parse_job
from muster.core.reasons import Reason, reason
from muster.core.spec import JobSpec, dump_job
from muster.core.state import State
from muster.core.units import parse_priority
from muster.scan.job import secrets_in_job
from muster.sched.snapshot import Snapshot, take
from muster.sched.whatif import unsubmitted_job, what_if
from muster.server.auth import Identity
from muster.server.context import HEAVY, Caller, Leading, Ref, find_job, job_views, sees, view_of, waits_of
from muster.server.leader import Leader
from muster.server.log_reader import output_view
from muster.server.record_context import holder_of
from muster.server.typed_routes import needs, typed_router
from muster.server.views import attempt_view, job_view
from muster.store.base import Entry, JobFilter, Proposal
from muster.track.snapshots import Code

router = typed_router(prefix="/v1", tags=["jobs"])

# A header and not a field: a server that does not know it ignores it.
Python = Annotated[
    str, Header(alias="Muster-Python", max_length=4096, description="the path of the interpreter that submits, quoted")
]

_NEEDS = 10_000  # of all jobs of a request: each is looked up while other commits wait

Number = Annotated[int | None, Query(ge=0, le=2**53)]
Text = Annotated[str | None, Query(max_length=200, pattern=r"^[^\x00]*$")]


class SubmitBody(BaseModel):
    """A job file, as text or as data."""

    model_config = ConfigDict(extra="forbid")

    spec: dict[str, Any] | None = Field(None, description="the job file as data")
    yaml: str | None = Field(None, description="the job file as text", max_length=1 << 20)
    source: str = Field("the job", description="what errors call it", max_length=500)
    base: str | None = Field(None, description="the absolute folder that a relative workdir is in", max_length=4096)
    defaults: dict[str, Any] | None = Field(
        None,
        description="fields of a job file for what the job leaves out; `envs` and `tags` are merged with the job's",
    )
    code: Code | None = Field(None, description="what the client captured of the code in the workdir")
    dry_run: bool = Field(False, description="check it, and admit nothing")
    instead_of: str | None = Field(
        None, max_length=100, description="with `dry_run`: a queued job that would be stopped for it"
    )


class BatchJob(BaseModel):
    model_config = ConfigDict(extra="forbid")

    spec: dict[str, Any]
    key: str | None = Field(None, min_length=1, max_length=200)
    code: Code | None = None


class BatchBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    jobs: list[BatchJob] = Field(max_length=10_000)
    defaults: dict[str, Any] | None = Field(None, description="for every job, as in a single submission")
    together: bool = Field(False, description="accept all of them or none; they may need each other by name")


class StopBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    grace: float | None = Field(None, ge=0, le=86_400, description="seconds; the job's own when null")
    force: bool = Field(False, description="kill it now")


class ResumeBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    checkpoint: int | None = Field(None, ge=0, lt=2**63, description="step of the checkpoint to go on from")
    from_scratch: bool = Field(False, description="begin again: the checkpoints so far are not used")

    def start(self) -> int | Literal["scratch"] | None:
        if self.from_scratch and self.checkpoint is not None:
            raise Invalid("Both a checkpoint and from_scratch are given.", "Give one of them.")
        return "scratch" if self.from_scratch else self.checkpoint


class PriorityBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    priority: Annotated[int, Field(ge=0, le=100)] | Literal["low", "normal", "high", "urgent"] = Field(
        description="higher goes first"
    )
    reason: str = Field("", max_length=500, description="why, for those who wonder")


@router.post("/jobs", status_code=201, openapi_extra=needs("member"))
def submit_job(
    body: SubmitBody,
    leader: Leading,
    caller: Caller,
    response: Response,
    idempotency_key: Annotated[str | None, Header(min_length=1, max_length=200)] = None,
    python: Python = "",
) -> JobView | DryRun:
    """Accepts a job durably, or refuses it with every reason."""
    if (body.spec is None) == (body.yaml is None):
        raise Invalid("A submission holds either `spec` or `yaml`.", "Send one of the two.")
    given: Any = body.spec if body.spec is not None else body.yaml
    base = Path(body.base) if body.base else None
    spec = parse_job(given, source=body.source, base=base, defaults=body.defaults)
    caller.need(leader.store.state(), spec.project, "member")
    submission = _submission(leader, spec, caller, idempotency_key, body.code, {}, python, dry=body.dry_run)
    site = leader.site(caller, trusted=submission.trusted)
    if body.instead_of is not None and not body.dry_run:
        raise Invalid("`instead_of` is for a dry run.", "Stop that job, and submit this one.")
    if body.dry_run:
        response.status_code = 200
        other = find_job(leader, caller, body.instead_of).id if body.instead_of is not None else ""
        told = _dry(leader, caller, submission, site, other)
        return DryRun(ok=True, spec=spec.model_dump(mode="json"), yaml=dump_job(spec), **told)
    if not _known(leader, submission):
        proposal = submit(leader.store, submission, leader.clock.now(), leader.local, **site)
        view = _submit(leader, caller, submission, proposal, site)
        if view is not None:
            return view
    response.status_code = 200
    return _earlier(leader, caller, submission)


def accept(
    leader: Leader,
    caller: Identity,
    spec: JobSpec,
    code: Code | None,
    key: str | None,
    around: Callable[[Submission], tuple[Submission, Callable[[Proposal], Proposal]]],
    dry: bool = False,
) -> JobView | None:
    """Accepts a job that the server made, through the same checks as one that a user submits; a dry one is checked.

    `around` adds to the submission, and to the proposal, what is written in the same transaction.
    """
    caller.need(leader.store.state(), spec.project, "member")
    submission, wrap = around(_submission(leader, spec, caller, key, code, {}, "", dry=dry))
    site = leader.site(caller, trusted=submission.trusted)
    if dry:
        _dry(leader, caller, submission, site)
        return None
    if not _known(leader, submission):
        proposal = wrap(submit(leader.store, submission, leader.clock.now(), leader.local, **site))
        view = _submit(leader, caller, submission, proposal, site)
        if view is not None:
            return view
    return _earlier(leader, caller, submission)


@router.post("/jobs/batch", openapi_extra=needs("member"))
def submit_batch(body: BatchBody, leader: Leading, caller: Caller, python: Python = "") -> BatchAnswer:
    """Accepts or refuses each job on its own, or all `together`; accepted jobs are durable on return."""
    needs = sum(len(found) for item in body.jobs if isinstance(found := item.spec.get("needs"), list | dict))
    if needs > _NEEDS:
        raise Invalid(f"The jobs need {needs:,} others, and a request may name {_NEEDS:,}.", "Send fewer jobs in one.")
    if body.together:
        return _together(body, leader, caller, python)
    state, now, site = leader.store.state(), leader.clock.now(), leader.site(caller, trusted=caller.superuser)
    known = earlier(leader.store, caller.user, [item.key for item in body.jobs if item.key])
    results: dict[int, BatchAccepted | BatchRefused] = {}
    pending: list[tuple[int, Submission, Future[list[Event]] | None]] = []
    told: dict[int, list[str]] = {}
    checked: dict[Code, Code] = {}
    files = Files()
    for index, item in enumerate(body.jobs):
        try:
            spec = parse_job(item.spec, source=f"job {index}", defaults=body.defaults)
            caller.need(state, spec.project, "member")
            submission = _submission(leader, spec, caller, item.key, item.code, checked, python)
            future = None
            if item.key not in known:
                proposal = submit(leader.store, submission, now, leader.local, files=files, **site)
                future = leader.commit.submit(proposal)
                told[index] = site["asking"].take_warnings()
            pending.append((index, submission, future))
        except MusterError as error:
            results[index] = {"error": error.to_dict()}
    for index, submission, future in pending:
        try:
            events = future.result() if future is not None else []
            accepted = _accepted(leader, caller, submission, events[0] if events else None)
            results[index] = {**accepted, "warnings": told[index]} if told.get(index) else accepted
        except MusterError as error:
            results[index] = {"error": error.to_dict()}
    return {"jobs": [results[index] for index in range(len(body.jobs))]}


def _together(body: BatchBody, leader: Leader, caller: Identity, python: str) -> BatchAnswer:
    """Accepts all jobs in one transaction, or refuses all: each with its own error, or because of the others."""
    state, errors = leader.store.state(), dict[int, MusterError]()
    submissions: list[Submission] = []
    checked: dict[Code, Code] = {}
    for index, item in enumerate(body.jobs):
        try:
            spec = parse_job(item.spec, source=f"job {index}", defaults=body.defaults)
            caller.need(state, spec.project, "member")
            submissions.append(_submission(leader, spec, caller, item.key, item.code, checked, python))
        except MusterError as error:
            errors[index] = error
    accepted: dict[int, Event] = {}
    if not errors:
        site = leader.site(caller, trusted=caller.superuser)
        now, local = leader.clock.now(), leader.local
        leader.propose(submit_together(leader.store, submissions, now, local, accepted, errors, **site))
    if errors:
        others = Refused([reason("submitted_together")])
        return {"jobs": [{"error": errors.get(index, others).to_dict()} for index in range(len(body.jobs))]}
    told = site["asking"].take_warnings()
    made = [_accepted(leader, caller, one, accepted.get(i)) for i, one in enumerate(submissions)]
    if told and made:
        made[0]["warnings"] = told  # they name what they are about
    return {"jobs": [*made]}


@router.get("/jobs", dependencies=HEAVY, openapi_extra=needs("anyone"))
def list_jobs(
    leader: Leading,
    caller: Caller,
    project: Text = None,
    phase: Annotated[list[Phase] | None, Query()] = None,
    queue: Text = None,
    user: Text = None,
    name: Text = None,
    parent: Annotated[str | None, Query(min_length=1, max_length=100)] = None,
    tasks: Annotated[bool, Query(description="list tasks of arrays, and not only the arrays")] = True,
    before: Number = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> JobList:
    """Jobs, newest first. For the next page, pass `next` as `before`."""
    projects = caller.projects(leader.store.state())
    if project is not None:
        projects = [project] if projects is None or project in projects else []
    family = None if parent is None else find_job(leader, caller, parent).id
    want = JobFilter(
        projects=projects, phases=phase or PHASES, queue=queue, user=user, name=name, parent=family, before=before,
        limit=limit + 1, tasks=tasks,
    )  # fmt: skip
    found = leader.store.jobs(want)
    more = len(found) > limit
    shown = found[:limit]
    return {"jobs": job_views(leader, caller, shown), "next": shown[-1].number if more else None}


@router.get("/jobs/{ref}", openapi_extra=needs("viewer"))
def get_job(ref: Ref, leader: Leading, caller: Caller) -> JobDetail:
    """The job, and how much of its output is kept."""
    job = find_job(leader, caller, ref)
    return {**job_views(leader, caller, [job])[0], "output": output_view(leader, job)}


@router.get("/jobs/{ref}/spec", openapi_extra=needs("viewer"))
def get_spec(ref: Ref, leader: Leading, caller: Caller) -> JobSpecView:
    """The spec as it was accepted, and a job file that results in the same spec."""
    job = find_job(leader, caller, ref)
    return {"spec": job.spec.model_dump(mode="json"), "yaml": dump_job(job.spec_again())}


@router.get("/jobs/{ref}/attempts", openapi_extra=needs("viewer"))
def get_attempts(ref: Ref, leader: Leading, caller: Caller) -> AttemptList:
    job = find_job(leader, caller, ref)
    return {"attempts": [attempt_view(attempt) for attempt in leader.store.attempts(job.id)]}


@router.post("/jobs/{ref}/stop", openapi_extra=needs("member"))
def stop_job(ref: Ref, body: StopBody, leader: Leading, caller: Caller) -> JobView:
    """Ends a queued job; asks a running job to save and exit. Of an array, all tasks."""
    job = find_job(leader, caller, ref, "member")
    grace = 0.0 if body.force else body.grace
    leader.propose(stop(job.id, caller.user, leader.clock.now(), grace))
    return view_of(leader, caller, job.id)


@router.post("/jobs/{ref}/resume", openapi_extra=needs("member"))
def resume_job(ref: Ref, leader: Leading, caller: Caller, body: ResumeBody | None = None) -> JobView:
    """Queues a stopped or failed job again, as the same run. Of an array, all tasks that did not succeed."""
    start = body.start() if body is not None else None
    job = find_job(leader, caller, ref, "member")
    if leader.track is not None and job.id in leader.track.purged:
        raise Invalid(f"The run of {job.id} was deleted, with its checkpoints.", "Submit it again.")
    now, site = leader.clock.now(), leader.site(caller, trusted=False)  # the proposal decides whether it is
    study, trusted = leader.store.state().studies.get(job.id), caller.superuser
    if study is not None:
        leader.propose(resume_study(leader.store, study, caller.user, now, leader.local, trusted, **site))
    else:
        leader.propose(resume(leader.store, job.id, caller.user, now, leader.local, trusted, start, **site))
    view = view_of(leader, caller, job.id)
    if told := site["asking"].take_warnings():
        view["warnings"] = told
    return view


@router.post("/jobs/{ref}/priority", openapi_extra=needs("member"))
def change_priority(ref: Ref, body: PriorityBody, leader: Leading, caller: Caller) -> JobView:
    """Lowers the priority of a job that is not over, or raises it within the range of its queue."""
    job = find_job(leader, caller, ref, "member")
    wanted = parse_priority(str(body.priority))
    leader.propose(set_priority(job.id, wanted, caller.user, leader.clock.now(), body.reason.strip()))
    return view_of(leader, caller, job.id)


def _submission(
    leader: Leader,
    spec: JobSpec,
    caller: Identity,
    key: str | None,
    code: Code | None,
    checked: dict[Code, Code],
    python: str,
    dry: bool = False,
) -> Submission:
    """A submission, with its code if its content is stored. `checked`: code that was already looked at."""
    found = tuple(secrets_in_job(spec.model_dump(mode="json", exclude_defaults=True)))
    submission = Submission(spec, caller.user, key, trusted=caller.superuser, python=unquote(python), findings=found)
    if leader.track is None:
        return submission
    # The rows name the project's experiment, which is made if there is none.
    if not dry and spec.project in leader.store.state().projects:
        submission = replace(submission, rows=leader.track.submitted.rows_of(spec, caller.user))
    if code is None:
        return submission
    snapshots, now = leader.track.snapshots, leader.clock.now()
    if code not in checked:
        checked[code] = snapshots.accept(code, holder_of(leader, caller))
    kept = checked[code]
    records = snapshots.records(kept, spec.project, now)
    found += leader.track.code_scans.look(kept)
    return replace(submission, code=kept.model_dump(mode="json"), records=records, findings=found)


def _submit(leader: Leader, caller: Identity, submission: Submission, proposal: Proposal, site: Site) -> JobView | None:
    """The accepted job's view, with its reason to wait at the time of the commit; None if its key was used before."""
    entries: list[Entry] = []
    waits: list[dict[str, Reason]] = []
    told: list[str] = []

    def accept(state: State) -> Entry:
        entries.append(proposal(state))
        return entries[0]

    def look(state: State) -> dict[str, Reason]:
        for job in [state.jobs.get(entry.events[0].job) for entry in entries if entry.events]:
            told[:] = _warnings(leader, state, job) if job is not None else []
            told.extend(leak_warnings(state, submission.spec, submission.user, submission.findings))
        return waits_of(leader, caller, state, [entry.events[0].job for entry in entries if entry.events])

    accepted, looked = leader.commit.submit(accept), leader.commit.submit(peek(waits, look))
    events = accepted.result()
    looked.result()
    if not events:
        return None
    job = leader.store.job(events[0].job)
    assert job is not None
    view = job_view(job, {}, waits[0].get(job.id) if job.phase == "queued" else None, {"queued": len(events) - 1})
    told += site["asking"].take_warnings()
    return {**view, "warnings": told} if told else view


def _warnings(leader: Leader, state: State, job: Job) -> list[str]:
    """What the user should know of a job that was accepted."""
    found = warnings(state, job.spec, job.user, state.time)
    if state.rules.preflight:
        asked = context(leader.store, state, job.user, leader.local, now=state.time)
        found += certificate.warnings(job.spec, replace(asked, code=job.code))
    return found


def _dry(leader: Leader, caller: Identity, submission: Submission, site: Site, instead_of: str = "") -> WhatIfView:
    """Raises Refused, or predicts what would happen to the job. Computed in this thread, not between two commits.

    `instead_of`: a queued job that would not be there any more.
    """
    now, ends = leader.clock.now(), leader.ingest.expected_ends()
    file_findings = Files().look(submission.spec, submission.python) if leader.local else NO_FINDINGS

    submission, before = look_beforehand(leader.store, submission, site, dry=True)
    risks = leader.spot_history.risks(leader.store.state(), now)

    def look(state: State) -> tuple[Snapshot, Job, Callable[[Job], bool], CostFacts | None]:
        asked = context(leader.store, state, caller.user, leader.local, file_findings, now, **site)
        needs = admit(submission, before.over(asked))
        spec = submission.spec.model_copy(update={"array": None})  # of an array, what happens to the first task
        job = unsubmitted_job(state, spec, caller.user, now, needs)
        shot = take(state, leader.controller.board, now, job.awaits, users=[job], ends=ends)
        shot = replace(shot, jobs=[one for one in shot.jobs if one.id != instead_of or one.phase != "queued"])
        return shot, job, sees(caller, state), cost_facts(state, job, risks, now)

    snapshot, job, may_see, facts = leader.look(look)
    answer = what_if(snapshot, job, may_see).to_dict()
    leaks = leader.look(lambda state: leak_warnings(state, submission.spec, caller.user, submission.findings))
    if told := [*leaks, *site["asking"].take_warnings()]:
        answer["warnings"] = told
    if facts is not None:
        tasks, at = submission.spec.array, answer["forecast"]["p50"]
        number = len(parse_array(tasks).indexes) if tasks is not None else 1
        answer["cost"] = cost_before(facts, job, answer["pool"], at, answer["offers"], snapshot, number)
    return answer


def _accepted(leader: Leader, caller: Identity, submission: Submission, event: Event | None) -> BatchAccepted:
    """`event`: None if its key was used before."""
    if event is not None:
        assert isinstance(event.data, JobSubmitted)
        return {"id": event.job, "number": event.data.number}
    job = _earlier(leader, caller, submission)
    return {"id": job["id"], "number": job["number"]}


def _known(leader: Leader, submission: Submission) -> bool:
    return submission.key is not None and bool(earlier(leader.store, submission.user, [submission.key]))


def _earlier(leader: Leader, caller: Identity, submission: Submission) -> JobView:
    """The job that was submitted under the same key before. Raises Conflict if that was a different job."""
    assert submission.key is not None
    job = leader.store.job(earlier(leader.store, submission.user, [submission.key])[submission.key])
    assert job is not None
    if submission.spec not in (job.spec, _unpinned(job.spec)):
        raise Conflict(f"The idempotency key was used for {job.id}, another job.", "Use a new key for a new job.")
    return job_views(leader, caller, [job])[0]


def _unpinned(spec: JobSpec) -> JobSpec:
    """The spec without the digest that its image may have got when it was accepted."""
    return spec if spec.image is None else spec.model_copy(update={"image": spec.image.partition("@")[0]})
