"""Promotion of runs to the stages of the policy: what is missing, approvals, and the job of the next stage."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any, cast

from fastapi import Header, Query
from pydantic import BaseModel, ConfigDict, Field

from muster.api.promotion import NeedView, PromotionMade, PromotionStatus, ScalingView, StageEntryView
from muster.api.words import FINAL, STAGES
from muster.control.promotion import Promoter, batch_text, devices_in, next_job, stage_rules
from muster.control.submit import Submission
from muster.core.entities import Role, at_least
from muster.core.errors import Invalid, NotAllowed, Refused
from muster.core.event import Event
from muster.core.promotion import Need, against, missing
from muster.core.record_events import RunPromoted
from muster.core.rules import StageRules
from muster.core.scaling import Scaling
from muster.core.spec import JobSpec, dump_job
from muster.core.state import State
from muster.server.auth import Identity
from muster.server.context import HEAVY, Caller, Leading, Tracked
from muster.server.leader import Leader
from muster.server.record_context import RunRef, find_run
from muster.server.routes.jobs import accept
from muster.server.typed_routes import needs, typed_router
from muster.store.base import Entry, Proposal, Record
from muster.track.rows import Run
from muster.track.run_stages import StageEntry, check_why
from muster.track.snapshots import Code
from muster.track.tracking import Tracking

router = typed_router(prefix="/v1/runs/{ref}/promotion", tags=["runs"])

StageName = Annotated[str, Query(min_length=1, max_length=63, pattern=r"^[^\x00]*$", description="of the policy")]


class ApprovalBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    to: str = Field(min_length=1, max_length=63, description="the stage")
    why: str = Field(max_length=10_000)


class ReviewBody(ApprovalBody):
    """`why`: for whoever reviews it."""


class PromotionBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    to: str = Field(min_length=1, max_length=63, description="the stage")
    devices: int | None = Field(None, ge=1, le=1_000_000, description="of the next job; else those of the stage")
    changes: dict[str, Any] = Field({}, max_length=50, description="fields of the job file: its scale, and `envs`")
    dry_run: bool = False
    override: bool = Field(False, description="although something is missing; for admins of the project, with `why`")
    why: str = Field("", max_length=10_000)


@dataclass(frozen=True, slots=True)
class _Plan:
    run: Run
    stage: str
    rules: StageRules
    job: JobSpec | None  # the next one; None for a stage of models
    needs: list[Need]
    scaling: Scaling | None
    batch: str


@router.get("", dependencies=HEAVY, openapi_extra=needs("viewer"))
def get_promotion(ref: RunRef, to: StageName, leader: Leading, track: Tracked, caller: Caller) -> PromotionStatus:
    """What the stage asks for and what was found, with the command that gets each thing that is missing."""
    return _status(track, _plan(leader, track, _current(leader, track, caller, ref, "viewer"), to))


@router.post("/ask", openapi_extra=needs("member"))
def ask(ref: RunRef, body: ReviewBody, leader: Leading, track: Tracked, caller: Caller) -> PromotionStatus:
    """Asks those who may approve it for a review: it is on their first page until somebody approves or promotes it."""
    run, state = _current(leader, track, caller, ref, "member"), leader.store.state()
    if stage_rules(state.rules, body.to).reviewer is None:
        raise Invalid(f"{body.to} asks for no reviewer.", f"Write `muster promote {run.id} --to {body.to}`.")
    _check_ended(run)
    check_why(body.why)
    track.run_stages.ask(run, body.to, caller.user, body.why)
    return _status(track, _plan(leader, track, run, body.to))


@router.post("/approve", openapi_extra=needs("member"))
def approve(ref: RunRef, body: ApprovalBody, leader: Leading, track: Tracked, caller: Caller) -> PromotionStatus:
    """Approves that a run is promoted. For people with the role that the stage names, and not for the run's author."""
    run, state = _current(leader, track, caller, ref, "member"), leader.store.state()
    rules = stage_rules(state.rules, body.to)
    if rules.reviewer is not None and not at_least(caller.role(state, run.project), rules.reviewer):
        caller.need(state, run.project, rules.reviewer)
    if caller.user == run.user:
        raise NotAllowed(f"{run.id} is your own run.", f"Ask another {rules.reviewer or 'member'} of {run.project}.")
    _check_ended(run)
    check_why(body.why)
    track.run_stages.approve(run, body.to, caller.user, body.why)
    return _status(track, _plan(leader, track, run, body.to))


@router.post("", dependencies=HEAVY, openapi_extra=needs("member"))
def promote(
    ref: RunRef,
    body: PromotionBody,
    leader: Leading,
    track: Tracked,
    caller: Caller,
    idempotency_key: Annotated[str | None, Header(min_length=1, max_length=200)] = None,
) -> PromotionMade:
    """Submits the job of the next stage if all that the stage asks for holds, and records the evidence."""
    run = _current(leader, track, caller, ref, "member")
    plan = _plan(leader, track, run, body.to, body.changes, body.devices)
    if plan.job is None:
        hint = f"Write `muster models promote MODEL/VERSION {body.to}`."
        raise Invalid(f"{body.to} is a stage of models.", hint)
    lacking = missing(plan.needs)
    if lacking and body.dry_run and not body.override:
        return cast(PromotionMade, {**_status(track, plan), "overridden": []})
    if lacking:
        _allow(leader.store.state(), caller, plan, body, lacking)
    code = run.doc.get("code")
    kept = Code.model_validate({name: code[name] for name in Code.model_fields if name in code}) if code else None
    around = _recording(leader, track, caller, plan, body, lacking)
    made = accept(leader, caller, plan.job, kept, idempotency_key, around, body.dry_run)
    overridden = [one.name for one in lacking if made is not None]
    answer = cast(PromotionMade, {**_status(track, plan), "overridden": overridden})
    if made is not None:
        answer["job"] = made
    return answer


def _check_ended(run: Run) -> None:
    if run.phase not in FINAL:
        raise Invalid(f"{run.id} is {run.phase}.", "Wait until it has ended: its figures still change.")


def _current(leader: Leader, track: Tracking, caller: Identity, ref: str, role: Role) -> Run:
    """The run as it is now: the record follows the log a moment later, and a run may have just ended."""
    leader.record.reach()
    return find_run(leader, track, caller, ref, role)


def _plan(
    leader: Leader,
    track: Tracking,
    run: Run,
    stage: str,
    changes: dict[str, Any] | None = None,
    devices: int | None = None,
) -> _Plan:
    leader.cost_follower.reach()
    state, job = leader.store.state(), leader.store.job(run.id)
    rules = stage_rules(state.rules, stage)
    if stage in STAGES:
        found, scaling = Promoter(track).needs(state, run, stage, None)
        return _Plan(run, stage, rules, None, found, scaling, "")
    if job is None:
        hint = "Submit it as a job: `muster submit`. What ran elsewhere can't be made again."
        raise Invalid(f"{run.id} was no job of this server.", hint)
    made = next_job(job, stage, rules, changes or {}, devices)
    found, scaling = Promoter(track).needs(state, run, stage, made)
    params = track.runs.params([run.id]).get(run.id, {})
    return _Plan(run, stage, rules, made, found, scaling, batch_text(job.spec, made, params))


def _allow(state: State, caller: Identity, plan: _Plan, body: PromotionBody, lacking: list[Need]) -> None:
    """Refuses, unless an admin of the project overrides it with a reason."""
    if not body.override:
        raise Refused([against(one) for one in lacking])
    caller.need(state, plan.run.project, "admin")
    check_why(body.why)


def _recording(
    leader: Leader, track: Tracking, caller: Identity, plan: _Plan, body: PromotionBody, lacking: list[Need]
) -> Callable[[Submission], tuple[Submission, Callable[[Proposal], Proposal]]]:
    """Writes the evidence, the lineage, notes and the event together with the job."""
    names = [one.name for one in lacking]
    doc = {
        "why": body.why, "needs": [asdict(one) for one in plan.needs], "changes": body.changes, "overridden": names,
        "batch": plan.batch,
    }  # fmt: skip
    text = _text(plan, body.why, names)

    def around(submission: Submission) -> tuple[Submission, Callable[[Proposal], Proposal]]:
        before = submission.records

        def records(job: str) -> list[Record]:
            return [*before(job), track.run_stages.promoted(plan.run, plan.stage, caller.user, job, doc, text)]

        def wrap(proposal: Proposal) -> Proposal:
            def propose(state: State) -> Entry:
                entry = proposal(state)
                if not entry.events:
                    return entry
                first = entry.events[0]
                told = RunPromoted(plan.stage, plan.run.id, names)
                event = Event(told, first.time, caller.user, plan.run.project, first.job)
                return replace(entry, events=[*entry.events, event])

            return propose

        return replace(submission, records=records), wrap

    return around


def _text(plan: _Plan, why: str, overridden: list[str]) -> str:
    lines = [f"- {'holds' if one.holds else 'MISSING'}: {one.name}, {one.expected}: {one.found}" for one in plan.needs]
    said = [f"Overridden: {', '.join(overridden)}."] if overridden else []
    return "\n\n".join([*([why] if why else []), *said, "\n".join(lines), plan.batch])


def _status(track: Tracking, plan: _Plan) -> PromotionStatus:
    return {
        "run": plan.run.id,
        "stage": plan.stage,
        "ready": not missing(plan.needs),
        "needs": [cast(NeedView, asdict(one)) for one in plan.needs],
        "scaling": _scaling_view(plan.scaling),
        "devices": devices_in(plan.job) if plan.job is not None else 0,
        "batch": plan.batch,
        "yaml": dump_job(plan.job) if plan.job is not None else "",
        "history": [_entry_view(one) for one in track.run_stages.entries(plan.run.id)],
    }


def _scaling_view(found: Scaling | None) -> ScalingView | None:
    if found is None:
        return None
    points = cast(Any, [asdict(one) for one in found.points])
    return {"points": points, "stops_at": found.stops_at, "text": found.text()}


def _entry_view(one: StageEntry) -> StageEntryView:
    return {
        "time": one.time, "actor": one.actor, "stage": one.stage, "action": one.action, "run": one.run,
        "job": one.job, "doc": one.doc,
    }  # fmt: skip
