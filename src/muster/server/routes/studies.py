"""Studies: start one, list them, how one stands, its report, its trials; stop, resume, change, enqueue."""

from __future__ import annotations

import secrets
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Literal
from urllib.parse import unquote

from fastapi import Header, Query, Response
from pydantic import BaseModel, ConfigDict, Field

from muster.api.studies import (
    StudyAccepted,
    StudyChange,
    StudyDryRun,
    StudyList,
    StudyReport,
    StudyStatus,
    StudyText,
    TrialList,
)
from muster.control.studies.change import changes_between
from muster.control.studies.look import line_of, report_of, rows_of, see, status_of
from muster.control.studies.start import (
    NewStudy,
    change_study,
    enqueue_points,
    find_study,
    resume_study,
    start_study,
    stop_study,
    study_submission,
)
from muster.control.studies.warm_start import warmed
from muster.core.entities.price_book import book_of
from muster.core.entities.study import Study, Trial
from muster.core.errors import Invalid, NotFound
from muster.core.parse import parse_job
from muster.core.reasons import reason
from muster.core.spec import JobSpec
from muster.core.state import State
from muster.scan.job import secrets_in_job
from muster.server.auth import Identity
from muster.server.context import HEAVY, Caller, Leading, Ref, Tracked, find_job
from muster.server.leader import Leader
from muster.server.record_context import holder_of
from muster.server.typed_routes import needs, typed_router
from muster.track.snapshots import Code
from muster.tune.point_file import read_points
from muster.tune.spec import StudySpec
from muster.tune.study_file import Site, parse_study
from muster.tune.trial_spec import base_spec, trial_spec

router = typed_router(prefix="/v1/studies", tags=["studies"])

Number = Annotated[int, Query(ge=-1, le=10**7)]
TrialPhaseWord = Literal["running", "leaving", "paused", "ended"]


class StudyBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    text: str = Field(description="the study file as text, without what `job` names", max_length=1 << 20)
    job: dict[str, Any] | None = Field(None, description="the job file of its trials as data; null: others run them")
    project: str | None = Field(None, max_length=63, description="of a study without a job")
    source: str = Field("the study", description="what errors call it", max_length=500)
    code: Code | None = Field(None, description="what the client captured of the code in the workdir")
    dry_run: bool = Field(False, description="check it, and start nothing")


class StudyChangeBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    text: str | None = Field(None, max_length=1 << 20, description="another study file; null: the same, with `limits`")
    job: dict[str, Any] | None = Field(None, description="another job for trials that are to come; null: the same")
    limits: dict[str, Any] = Field({}, description="`trials`, `parallel`, `cost` and `until` that replace the file's")
    source: str = Field("the study", max_length=500)
    dry_run: bool = Field(False, description="only say what is different")


class StudyEnqueueBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    points: list[dict[str, Any]] = Field(min_length=1, max_length=1000)


@router.post("", status_code=201, openapi_extra=needs("member"))
def begin(
    body: StudyBody,
    leader: Leading,
    track: Tracked,
    caller: Caller,
    response: Response,
    idempotency_key: Annotated[str | None, Header(min_length=1, max_length=200)] = None,
    muster_python: Annotated[str, Header(max_length=4096)] = "",
) -> StudyAccepted | StudyDryRun:
    """Accepts a study durably, or refuses it with every mistake and every reason."""
    state, now = leader.store.state(), leader.clock.now()
    job = parse_job(body.job, source=f"{body.source}: job") if body.job is not None else None
    project = job.project if job is not None else body.project or "default"
    caller.need(state, project, "member")
    known = Site(book_of(state).currency, now, job, sorted(state.pools))
    spec = parse_study(body.text, known, source=body.source)
    spec, prior, notes = warmed(leader.store, track, state, caller.projects(state), spec)
    sample = _sample(spec)
    if body.dry_run:
        response.status_code = 200
        return StudyDryRun(
            ok=True, study=spec.to_doc(), notes=notes, job=sample.model_dump(mode="json") if sample else None
        )
    given = study_submission(
        spec, project, user=caller.user, key=idempotency_key, trusted=caller.superuser, python=unquote(muster_python),
        **_code(leader, caller, body.code, project),
    )  # fmt: skip
    found = tuple(secrets_in_job(sample.model_dump(mode="json", exclude_defaults=True))) if sample is not None else ()
    rows, found = track.submitted.rows_of(given.spec, caller.user), (*found, *given.findings)
    given = replace(given, rows=rows, findings=found)
    seed = spec.seed if spec.seed is not None else secrets.randbits(31)
    site = leader.site(caller, trusted=caller.superuser)
    new = NewStudy(spec, body.text, given, seed, prior)
    events = leader.propose(start_study(leader.store, new, now, leader.local, **site))
    if not events:
        response.status_code = 200
        return _earlier(leader, caller, idempotency_key or "")
    return {"id": events[0].job, "name": spec.name, "notes": notes}


@router.get("", openapi_extra=needs("anyone"))
def list_studies(
    leader: Leading,
    caller: Caller,
    project: Annotated[str | None, Query(max_length=63)] = None,
    all: bool = False,
    limit: Annotated[int, Query(ge=1, le=1000)] = 50,
) -> StudyList:
    """The newest studies of your projects; those that have not ended, and `all` others too."""
    now, visible = leader.clock.now(), caller.projects(leader.store.state())

    def look(state: State) -> list[Any]:
        wanted = [
            one
            for one in reversed(list(state.studies.values()))
            if (visible is None or one.project in visible)
            and (project is None or one.project == project)
            and (all or one.ended_at is None)
        ]
        return [see(state, one, now) for one in wanted[:limit]]

    return {"studies": [line_of(one, *_phase(leader, one.study), now) for one in leader.look(look)]}


@router.get("/{ref}", openapi_extra=needs("viewer"))
def status(
    ref: Ref,
    leader: Leading,
    caller: Caller,
    importance: Annotated[bool, Query(description="false: without that of the parameters, which takes longest")] = True,
) -> StudyStatus:
    """How a study stands: its best trial, trials by state, money and time, rungs, importance of its parameters."""
    study, now = find(leader, caller, ref), leader.clock.now()
    seen = leader.look(lambda state: see(state, study, now))
    weigh = leader.importances.of if importance else None
    return leader.ended_studies.of(seen, now, ("status", importance), partial(status_of, seen, now, weigh))


@router.get("/{ref}/report", dependencies=HEAVY, openapi_extra=needs("viewer"))
def report(
    ref: Ref,
    leader: Leading,
    track: Tracked,
    caller: Caller,
    importance: Annotated[bool, Query(description="false: without it, and parameters in the study's order")] = True,
) -> StudyReport:
    """All that a report shows. Of many trials, a sample that never lacks the best or an extreme."""
    study, now = find(leader, caller, ref), leader.clock.now()
    seen = leader.look(lambda state: see(state, study, now))
    weigh = leader.importances.of if importance else None
    make = partial(report_of, seen, now, track.metrics, weigh)
    return leader.ended_studies.of(seen, now, ("report", importance), make)


@router.get("/{ref}/trials", openapi_extra=needs("viewer"))
def trials(
    ref: Ref,
    leader: Leading,
    caller: Caller,
    phase: TrialPhaseWord | None = None,
    outcome: Annotated[str | None, Query(max_length=20)] = None,
    after: Number = -1,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 1000,
    sort: Annotated[Literal["number", "rank"], Query(description="rank: the best first")] = "number",
) -> TrialList:
    """Trials by their number, or the best first."""
    study, now = find(leader, caller, ref), leader.clock.now()
    seen = leader.look(lambda state: see(state, study, now))

    def wanted(trial: Trial) -> bool:
        return (phase is None or trial.phase == phase) and (outcome is None or trial.outcome == outcome)

    rows, following = rows_of(seen, now, wanted, after, limit, sort == "rank")
    return {"trials": rows, "next": following}


@router.get("/{ref}/file", openapi_extra=needs("viewer"))
def file(ref: Ref, leader: Leading, caller: Caller) -> StudyText:
    """The study file in force, and the job of a trial."""
    study = find(leader, caller, ref)
    spec = StudySpec.of(study.doc)
    return {"id": study.id, "text": study.text, "study": study.doc, "job": dict(spec.job) if spec.job else None}


@router.post("/{ref}/stop", openapi_extra=needs("member"))
def stop(ref: Ref, leader: Leading, caller: Caller) -> StudyStatus:
    """No more trials are asked for; those that run save and leave, and go on when the study is resumed."""
    study = find(leader, caller, ref, "member")
    why = reason("user_stop", f"stopped by {caller.user}")
    leader.propose(stop_study(study.id, why, caller.user, leader.clock.now()))
    return status(study.id, leader, caller)


@router.post("/{ref}/resume", openapi_extra=needs("member"))
def resume(ref: Ref, leader: Leading, caller: Caller) -> StudyStatus:
    """A study that was stopped, or is over, goes on with its file as it is."""
    study = find(leader, caller, ref, "member")
    now, site = leader.clock.now(), leader.site(caller, trusted=False)
    leader.propose(resume_study(leader.store, study, caller.user, now, leader.local, caller.superuser, **site))
    return status(study.id, leader, caller)


@router.post("/{ref}/change", openapi_extra=needs("member"))
def change(ref: Ref, body: StudyChangeBody, leader: Leading, caller: Caller) -> StudyChange:
    """Puts another study file in force, or other limits. A study that was over goes on.

    The objective can't be changed: values of another one could not be compared.
    """
    study, state, now = find(leader, caller, ref, "member"), leader.store.state(), leader.clock.now()
    before = StudySpec.of(study.doc)
    job = base_spec(before) if before.job is not None else None
    if body.job is not None and job is not None:
        job = parse_job(body.job, source=f"{body.source}: job")
        if job.project != study.project:
            raise Invalid(f"The job is of project {job.project}, the study of {study.project}.", "Start a new study.")
    known = Site(book_of(state).currency, study.created_at, job, sorted(state.pools))
    text = body.text if body.text is not None else study.text
    after = parse_study(text, known, source=body.source, limits=body.limits)
    told = changes_between(before, after, book_of(state).currency)
    tried = leader.look(lambda state: see(state, study, now)).trials.values()
    if not body.dry_run:
        if not told:
            raise Invalid("The file says what is in force already.", f"`muster tune resume {study.id}` continues it.")
        _change(leader, caller, study, after, text, "; ".join(told))
    fits = sum(after.space.fits(one.params) for one in tried)
    return {"changes": told, "trials": len(tried), "fits": fits, "applied": not body.dry_run}


@router.post("/{ref}/enqueue", openapi_extra=needs("member"))
def enqueue(ref: Ref, body: StudyEnqueueBody, leader: Leading, caller: Caller) -> StudyStatus:
    """Parameters that are tried before any that are searched for."""
    study = find(leader, caller, ref, "member")
    points = read_points(StudySpec.of(study.doc).space, body.points)
    leader.propose(enqueue_points(study.id, points, caller.user, leader.clock.now()))
    return status(study.id, leader, caller)


def find(leader: Leader, caller: Identity, ref: str, role: Any = "viewer") -> Study:
    """The study that is meant, if the caller may see it. A name means a study of that name before any other job."""
    state = leader.store.state()
    job = find_job(leader, caller, _named(state, caller, ref) or ref, role)
    if job.id not in state.studies and job.spec.parent in state.studies:
        return find_study(state, job.spec.parent or "")
    if job.id not in state.studies:
        raise NotFound(f"{job.id} is no study.", "See `muster tune ls`.")
    return find_study(state, job.id)


def _named(state: State, caller: Identity, name: str) -> str | None:
    """The study of this name that is not over, of those that the caller may see, else the newest."""
    found = [one for one in state.studies.values() if one.name == name and caller.role(state, one.project) is not None]
    going = [one for one in found if one.ended_at is None]
    if len(going) > 1:
        told = ", ".join(one.id for one in going[:5]) + (" and more" if len(going) > 5 else "")
        raise Invalid(f"{name!r} is the name of several studies that are not over: {told}.", "Give the id of one.")
    return (going or found)[-1].id if found else None


def _change(leader: Leader, caller: Identity, study: Study, spec: StudySpec, text: str, why: str) -> None:
    now, site = leader.clock.now(), leader.site(caller, trusted=False)
    leader.propose(
        change_study(
            leader.store, study.id, spec, text, why[:2000], caller.user, now, leader.local, caller.superuser, **site
        )
    )


def _sample(spec: StudySpec) -> JobSpec | None:
    if spec.job is None:
        return None
    params = spec.enqueue[0] if spec.enqueue else spec.space.at([0.5] * len(spec.space.parameters))
    return trial_spec(spec, base_spec(spec), "", params)


def _phase(leader: Leader, study: Study) -> tuple[str, str]:
    job = leader.store.job(study.id)
    why = study.stopped.message if study.stopped is not None else ""
    return (job.phase if job is not None else "", why)


def _code(leader: Leader, caller: Identity, code: Code | None, project: str) -> dict[str, Any]:
    if code is None or leader.track is None:
        return {}
    snapshots = leader.track.snapshots
    kept = snapshots.accept(code, holder_of(leader, caller))
    records = snapshots.records(kept, project, leader.clock.now())
    found = leader.track.code_scans.look(kept)
    return {"code": kept.model_dump(mode="json"), "records": records, "findings": found}


def _earlier(leader: Leader, caller: Identity, key: str) -> StudyAccepted:
    """The study that was accepted under this key before."""
    found = leader.store.jobs_by_key(caller.user, [key]).get(key, "")
    study = find(leader, caller, found)
    return {"id": study.id, "name": study.name, "notes": []}
