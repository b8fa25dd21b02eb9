"""What users do with jobs, as proposals: each runs against the live state and returns one entry or raises."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, Literal, Unpack

from muster.api.words import UNFINISHED
from muster.control.admission import CHECKS, LIVE_CHECKS, NODE_CHECKS, Check, Context, Files, Site
from muster.control.admission.budget import claims, reserve_of
from muster.control.admission.external import NO_VERDICT, NOBODY, Verdict
from muster.control.admission.files import NO_FINDINGS, FileFindings
from muster.control.admission.images import with_digest
from muster.control.admission.inspected import NOTHING, Inspected
from muster.control.admission.start import find_start
from muster.control.admission.warned import guard_warnings
from muster.control.needs import check_needs, find_needs, in_order
from muster.core.array import MOST, array_of, parse_array
from muster.core.entities.study import StudyStopped, trial_of_job
from muster.core.errors import Invalid, MusterError, NotFound, Refused
from muster.core.event import SYSTEM, Event
from muster.core.history import groups_of
from muster.core.job import Job
from muster.core.job_events import JOB_ENDS, JobResumed, JobStopped, JobStopping, JobSubmitted
from muster.core.money import format_amount
from muster.core.payload import Payload
from muster.core.reasons import Reason, reason, with_granter
from muster.core.repair import Repair
from muster.core.spec import JobSpec
from muster.core.start import StartPoint, start_text
from muster.core.state import State
from muster.cost.budgets import amount_of
from muster.scan.findings import Finding
from muster.store.base import Entry, JobFilter, Proposal, Record, Rows, Store

Outcome = Literal["succeeded", "failed", "stopped"]
_ALIKE: Final = 6  # jobs of one name that are looked for: a message lists five


@dataclass(slots=True)  # not frozen, for the same reason as `Context`
class Submission:
    spec: JobSpec
    user: str
    key: str | None = None
    code: Mapping[str, Any] | None = None  # captured by the client; see `muster.track.snapshots.Code`
    trusted: bool = False  # submitted by an administrator
    # Rows of the record for the job, made from its event and written in the same transaction.
    rows: Callable[[Event], Rows] = field(default=lambda event: (), compare=False)
    records: Callable[[str], Sequence[Record]] = field(default=lambda job: (), compare=False)
    findings: tuple[Finding, ...] = field(default=(), compare=False)  # of the scan of its code and job file
    python: str = ""  # path of the interpreter that submits, on the machine where it runs
    index: int | None = None  # of a trial of a study, which is its parent
    template: JobSpec | None = None  # of a trial: the job file of its study, without parameters
    study_left: int = 1  # see `JobSubmitted`
    study_ran: float = 0.0


def context(
    store: Store,
    state: State,
    user: str,
    local: bool,
    file_findings: FileFindings = NO_FINDINGS,
    now: float = 0.0,
    **site: Unpack[Site],
) -> Context:
    """The context of the admission checks, with what is not in the state but in the store."""

    def has_secret(project: str, name: str) -> bool:
        return store.secret(project, name) is not None

    def job(job_id: str) -> Job | None:
        return state.jobs.get(job_id) or store.job(job_id)

    def named(project: str, name: str) -> list[Job]:
        living = store.jobs(JobFilter(projects=[project], phases=UNFINISHED, name=name, limit=_ALIKE))
        return living or store.jobs(JobFilter(projects=[project], name=name, limit=1))

    return Context(state, user, has_secret, local, file_findings=file_findings, job=job, named=named, now=now, **site)


def admit(submission: Submission, context: Context, checks: Sequence[Check] = CHECKS) -> dict[str, str]:
    """Runs the admission checks. Raises Refused with every reason against the job.

    Returns the ids of the jobs that it needs, with how each has to end.
    """
    asked = _about(submission, context)
    if not submission.spec.num_nodes:
        checks = [check for check in checks if check not in NODE_CHECKS]
    reasons = [found for check in checks if (found := check(submission.spec, asked)) is not None]
    reasons += asked.verdict.reasons
    needs, against = find_needs(submission.spec, asked) if submission.spec.needs else ({}, [])
    if reasons or against:
        admins = project_admins(asked.state, submission.spec.project)
        raise Refused([with_granter(one, admins) for one in (*reasons, *against)])
    return needs


def _about(submission: Submission, context: Context) -> Context:
    """The context, with what the submission itself says. Most say nothing, and a copy costs as much as the checks."""
    trusted, code = submission.trusted or context.trusted, (submission.code or {}).get("tree", "")
    template, findings = submission.template, submission.findings
    if (trusted, code, findings) == (context.trusted, context.code, context.findings) and template is context.template:
        return context
    return replace(context, trusted=trusted, code=code, template=template, findings=findings)


@dataclass(frozen=True, slots=True)
class Before:
    """What was found out before the commit, since it may take seconds."""

    verdict: Verdict = NO_VERDICT
    inspected: Inspected = NOTHING

    def as_written(self) -> Before:
        """For a job whose image stays as it is written: what its tag stands for now does not count."""
        image = self.inspected.image
        if image is None:
            return self
        return replace(self, inspected=replace(self.inspected, image=replace(image, digest="")))

    def over(self, context: Context) -> Context:
        if context.verdict is self.verdict and context.inspected is self.inspected:
            return context
        return replace(context, verdict=self.verdict, inspected=self.inspected)


NOTHING_BEFORE: Final = Before()


def look_beforehand(store: Store, submission: Submission, site: Site, dry: bool = False) -> tuple[Submission, Before]:
    """Looks into the job and asks the company's own checks. The submission names its image by digest, if that is known.

    Warnings of guards go to whoever made the request. `dry`: it may come without a snapshot, which is no fault then.
    """
    spec, asking = submission.spec, site.get("asking", NOBODY)
    if not spec.num_nodes:
        return submission, NOTHING_BEFORE  # it launches nothing; a study has one of its trials looked into
    found = asking.inspect(spec, submission.user, str((submission.code or {}).get("tree", "")))
    if dry and submission.code is None:
        found = replace(found, looked=False)
    if found is not NOTHING and found != NOTHING:
        live = Context(store.state(), submission.user, lambda project, name: True, local=False, inspected=found)
        spec = with_digest(spec, live)
        submission = replace(submission, spec=spec)
        asking.warn(guard_warnings(spec, live))
    said = asking.ask(spec, submission.user, submission.trusted)
    return submission, NOTHING_BEFORE if said is NO_VERDICT and found is NOTHING else Before(said, found)


def project_admins(state: State, project: str) -> list[str]:
    known = state.projects.get(project)
    return [user for user, role in known.members.items() if role == "admin"] if known is not None else []


def submit(
    store: Store,
    submission: Submission,
    now: float,
    local: bool,
    whole: bool = False,
    admitted: bool = False,
    files: Files | None = None,
    **site: Unpack[Site],
) -> Proposal:
    """Accepts the job in one event. Writes nothing if its key was used since `earlier` was called.

    Files are looked at now, and not when the proposal runs, since other commits wait for that. `files`: shared by the
    submissions of a request. `local`, `site`: see `admission.Context`. `whole`: the event holds the spec as an object,
    for a store that encodes nothing. `admitted`: an equal submission passed, and only jobs have changed since.
    """

    file_findings = (files or Files()).look(submission.spec, submission.python) if local else NO_FINDINGS
    submission, before = look_beforehand(store, submission, site)

    def propose(state: State) -> Entry:
        user = submission.user
        if submission.key and (user, submission.key) in state.keys:
            return Entry()
        checks = LIVE_CHECKS if admitted else CHECKS
        asked = before.over(context(store, state, user, local, file_findings, now, **site))
        needs = admit(submission, asked, checks)
        return accepted_entry(asked, submission, state.next_number, needs, now, whole)

    return propose


def submit_together(
    store: Store,
    submissions: Sequence[Submission],
    now: float,
    local: bool,
    accepted: dict[int, Event],
    refused: dict[int, MusterError],
    **site: Unpack[Site],
) -> Proposal:
    """Accepts all of these jobs or none; they may need each other by name. Writes nothing if their keys were used.

    By their position, `accepted` gets the event of each, or `refused` an error for each: its own, or that others were
    refused.
    """
    files = Files()
    findings = [files.look(one.spec, one.python) if local else NO_FINDINGS for one in submissions]
    looked = [look_beforehand(store, one, site) for one in submissions]
    submissions = [submission for submission, _ in looked]
    order, circle = in_order([one.spec for one in submissions])

    def propose(state: State) -> Entry:
        accepted.clear()
        refused.clear()
        if any(one.key and (one.user, one.key) in state.keys for one in submissions):
            return Entry()
        entries, new = list[Entry](), dict[str, dict[str, list[str]]]()
        pending, number = Counter[tuple[str, str]](), state.next_number
        for i in order:
            one, names = submissions[i], new.setdefault(submissions[i].spec.project, {})
            asked = context(store, state, one.user, local, findings[i], now, **site)
            asked = replace(looked[i][1].over(asked), pending=pending, new=names)
            try:
                needs = admit(one, asked)
                entries.append(accepted_entry(asked, one, number, needs, now))
                accepted[i] = entries[-1].events[0]
                pending.update(claims(one.spec, asked))
            except Refused as error:
                refused[i] = error
            indexes = parse_array(one.spec.array).indexes if one.spec.array is not None else ()
            names.setdefault(one.spec.name, []).append(f"{one.spec.name}-{number}")
            for at, index in enumerate(indexes):
                names.setdefault(f"{one.spec.name}[{index}]", []).append(f"{one.spec.name}-{number + 1 + at}")
            for whose in (("user", one.user), ("project", one.spec.project)):
                pending[whose] += len(indexes) or 1
            number += 1 + len(indexes)
        refused.update({i: Refused([reason("needs_circle", name=submissions[i].spec.name)]) for i in circle})
        if refused:
            others = Refused([reason("submitted_together")])
            refused.update({i: others for i in range(len(submissions)) if i not in refused})
            return Entry()
        return Entry(
            [event for entry in entries for event in entry.events],
            rows=[row for entry in entries for row in entry.rows],
            records=[record for entry in entries for record in entry.records],
        )

    return propose


def accepted_entry(
    asked: Context, submission: Submission, number: int, needs: Mapping[str, str], now: float, whole: bool = False
) -> Entry:
    """What accepts the job under this number; the tasks of an array have the numbers that follow."""
    spec, user, state = submission.spec, submission.user, asked.state
    expect, reserve = expected_run(state, user, spec), reserve_of(spec, asked)
    code = dict(submission.code) if submission.code is not None else None
    found = find_start(spec, replace(asked, trusted=submission.trusted)) if spec.start_from is not None else None
    start = asdict(found) if isinstance(found, StartPoint) else None
    events: list[Event] = []

    def add(spec: JobSpec, doc: Any, key: str | None, index: int | None = None) -> None:
        number_ = number + len(events)
        submitted = JobSubmitted(
            number_, spec.queue, user, doc, spec.name, key, expect, submission.trusted, code,
            needs=dict(needs) or None, index=index, reserve=0 if spec.array is not None and index is None else reserve,
            start=None if spec.array is not None and index is None else start,
            study_left=submission.study_left, study_ran=submission.study_ran,
        )  # fmt: skip
        events.append(Event(submitted, max(now, state.time), user, spec.project, f"{spec.name}-{number_}"))

    add(spec, spec if whole else spec.model_dump(mode="json"), submission.key, submission.index)
    if spec.array is not None:
        task = spec.model_copy(update={"parent": events[0].job})
        doc = task if whole else task.model_dump(mode="json")
        for index in parse_array(spec.array).indexes:
            add(task, doc, None, index)
    rows = [row for event in events for row in submission.rows(event)]
    return Entry(events, rows=rows, records=[one for event in events for one in submission.records(event.job)])


def expected_run(state: State, user: str, spec: JobSpec) -> float | None:
    """The median run time in seconds of similar finished jobs; None if too few have finished."""
    return state.history.quantile(groups_of(user, spec), 0.5) if state.history.known else None


def earlier(store: Store, user: str, keys: Sequence[str]) -> dict[str, str]:
    """The jobs that this user has already submitted under these keys: key → job."""
    return store.jobs_by_key(user, keys) if keys else {}


def stop(job_id: str, actor: str, now: float, grace: float | None, why: Reason | None = None) -> Proposal:
    """Ends a queued job, or one without nodes, at once; asks a running gang to stop.

    A second call with a shorter grace makes it faster.
    """

    def propose(state: State) -> Entry:
        job = state.jobs.get(job_id)
        if job is None:
            raise Invalid(f"Job {job_id} has ended already.", "See `muster status`.")
        cause = why or reason("user_stop", f"stopped by {actor}")
        study = state.studies.get(job_id)
        if study is not None:  # its trials save and leave, and then it ends
            return Entry([_job_event(StudyStopped(cause), job, now, actor)] if study.stopped is None else [])
        jobs = live_tasks(state, job) if job.is_array else [job]  # an array ends with its tasks
        return Entry([_stop_event(one, cause, grace, now, actor) for one in jobs])

    return propose


def live_tasks(state: State, array: Job) -> list[Job]:
    """The tasks of the array that are not over."""
    numbers = range(array.number + 1, array.number + 1 + len(array_of(array).indexes))
    return [state.jobs[state.by_number[number]] for number in numbers if number in state.by_number]


def _stop_event(job: Job, cause: Reason, grace: float | None, now: float, actor: str) -> Event:
    if job.phase == "queued" or job.seatless:
        return _job_event(JobStopped(cause), job, now, actor)
    seconds = job.spec.stop_grace if grace is None else grace
    return _job_event(JobStopping(cause, "stopped", seconds), job, now, actor)


def finish(job_id: str, outcome: Outcome, why: Reason, actor: str, now: float) -> Proposal:
    """Ends a job without nodes, which nothing else ends but a stop and its `max_duration`."""

    def propose(state: State) -> Entry:
        job = state.jobs.get(job_id)
        if job is None:
            raise Invalid(f"Job {job_id} has ended already.", "See `muster status`.")
        if job.is_array:
            raise Invalid(f"Job {job_id} is an array: it ends with its tasks.", f"`muster stop {job_id}` stops them.")
        if not job.seatless:
            raise Invalid(f"Job {job_id} has nodes: it ends with its ranks.", f"Stop it with `muster stop {job_id}`.")
        return Entry([_job_event(JOB_ENDS[outcome](why), job, now, actor)])

    return propose


def resume(
    store: Store,
    job_id: str,
    actor: str,
    now: float,
    local: bool,
    trusted: bool = False,
    start: int | Literal["scratch"] | None = None,
    **site: Unpack[Site],
) -> Proposal:
    """Queues a stopped or failed job again: the same run continues from its last checkpoint. Of an array, every task
    that is over and did not succeed.

    `trusted`: an administrator asks. An administrator's job that another user resumes loses its trust.
    `start`: the step of another checkpoint to continue from, or "scratch": the checkpoints so far are not used.
    """
    known = store.job(job_id)
    file_findings = Files().look(known.spec) if known is not None and local else NO_FINDINGS
    before = Before()
    if known is not None:
        again_ = Submission(known.spec, known.user, code={"tree": known.code}, trusted=trusted and known.trusted)
        before = look_beforehand(store, again_, site)[1].as_written()

    def propose(state: State) -> Entry:
        live = state.jobs.get(job_id)
        if live is not None and not live.is_array:
            raise Invalid(f"Job {job_id} is {live.phase}, so there is nothing to resume.", "See `muster status`.")
        job = live or store.job(job_id)
        if job is None:
            raise NotFound(f"There is no job {job_id!r}.", "See `muster ls --all`.")
        if job.phase == "succeeded" and job_id not in state.studies:
            raise Invalid(f"Job {job_id} has succeeded.", "Submit it again to run it once more.")
        trial = trial_of_job(state, job_id)
        if trial is not None and state.studies[trial.study].ended_at is None:
            raise Invalid(f"Job {job_id} is a trial of study {trial.study}, which continues it itself.",
                          f"`muster tune enqueue {trial.study}` has the study try these parameters again.")  # fmt: skip
        if isinstance(start, int) and job.checkpoint is None:
            raise Invalid(f"Job {job_id} has reported no checkpoint.", "Resume it without naming one.")
        jobs = [job]
        if job.is_array:
            ended = store.jobs(JobFilter(parent=job_id, phases=("failed", "stopped"), limit=MOST))
            jobs = [one for one in reversed(ended) if one.id not in state.jobs and one.index is not None]
            if not jobs:
                raise Invalid(f"No task of {job_id} has failed or was stopped.", "See `muster status`.")
        allowed = trusted and job.trusted
        # Its needs have ids already: names may mean other jobs by now.
        due = job.start_due if start is None else None
        again_as: dict[str, object] = {"needs": {}, "array": None, "priority": job.priority}
        again_as["start_from"] = start_text(due) if due is not None else None
        again = Submission(job.spec.model_copy(update=again_as), job.user, trusted=allowed)
        asked = context(store, state, job.user, local, file_findings, now, **site)
        asked = replace(before.over(asked), spent=job.spent)
        _check_own_budget(job)
        others = len(jobs) - 1
        pending = {("user", job.user): others, ("project", job.project): others}
        pending |= {name: others * amount for name, amount in claims(again.spec, asked).items()}
        admit(again, replace(asked, pending=pending))
        if unmet := check_needs(job, asked):
            raise Refused(unmet)
        array = jobs[0].array
        if array is not None and array not in state.jobs:  # it is over, and runs again with its tasks
            over = job if job.is_array else store.job(array)
            assert over is not None
            jobs.insert(0, over)
        where = "" if start is None else " from the beginning" if start == "scratch" else f" from step {start}"
        cause = reason("resumed", f"resumed by {actor}{where}")
        reserve = reserve_of(again.spec, asked)
        return Entry([_job_event(_resumed(one, allowed, cause, start, reserve), one, now, actor) for one in jobs])

    return propose


def promoted(job: Job, submission: Submission, asked: Context, pool: str | None, now: float) -> Event:
    """Queues a paused trial's job again, for its study. `pool`: that it must run in from now on. Raises Refused."""
    again = replace(submission, spec=job.spec.model_copy(update={"priority": job.priority, "pool": pool or job.pool}))
    _check_own_budget(job)
    admit(again, asked)
    cause = reason("resumed", "promoted by its study")
    made = _resumed(job, submission.trusted, cause, None, reserve_of(again.spec, asked))
    changes = {"study_left": submission.study_left, "study_ran": submission.study_ran}
    made = replace(made, doc={**made.doc, "new_pool": pool or job.new_pool, **changes}, ran=job.ran)
    return _job_event(made, job, now, SYSTEM)


def _check_own_budget(job: Job) -> None:
    budget = amount_of(job.spec.budget)
    if budget is not None and job.spent >= budget:
        message = f"it has cost {format_amount(job.spent)}, and its `budget` is {job.spec.budget}"
        raise Refused([reason("job_budget_spent", message, spent=job.spent, budget=budget)])


def _resumed(
    job: Job, trusted: bool, cause: Reason, start: int | Literal["scratch"] | None, reserve: int
) -> JobResumed:
    doc = {**job.to_doc(), "trusted": trusted}
    if start == "scratch":
        doc["start"] = None
    if start is not None and job.attempt is not None:
        step = start if isinstance(start, int) else None
        mark = job.checkpoint.at(step) if job.checkpoint is not None and step is not None else None
        doc |= {"checkpoint": asdict(mark) if mark is not None else None, "repair": Repair(step, step).to_doc()}
        doc |= {"since_attempt": job.attempt.number + 1, "resume_step": step}
    return JobResumed(doc, job.spec.model_dump(mode="json"), cause, 0 if job.is_array else reserve)


def peek(into: list[Any], look: Callable[[State], Any]) -> Proposal:
    """Reads the live state between two commits, where nothing changes, and writes nothing."""

    def propose(state: State) -> Entry:
        into.append(look(state))
        return Entry()

    return propose


def _job_event(data: Payload, job: Job, now: float, actor: str) -> Event:
    return Event(data, now, actor, job.project, job.id, job.attempt.number if job.attempt else 0)
