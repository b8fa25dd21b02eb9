"""Why a job is in its current state, what would change that, and when it will start."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import islice
from typing import Annotated, Final

from fastapi import Query

from muster.api.jobs import WhyView
from muster.api.why import JobAhead, TimelineStep
from muster.api.words import Phase
from muster.core.event import Event
from muster.core.job import Job
from muster.core.job_events import JobResumed, JobSubmitted
from muster.core.reasons import Reason, reason
from muster.core.state import State
from muster.sched.explain import Explainer
from muster.sched.likely_end import Ends
from muster.sched.snapshot import Snapshot, take
from muster.sched.unblock import unblock
from muster.server.auth import Identity
from muster.server.context import FORECASTS, Caller, Leading, Ref, explainer_for, find_job, job_views
from muster.server.leader import Leader
from muster.server.typed_routes import needs, typed_router
from muster.store.base import EventFilter

router = typed_router(prefix="/v1/jobs/{ref}", tags=["jobs"])

_SHOWN_AHEAD: Final = 10
_EVENTS: Final = 1000


@router.get("/why", dependencies=FORECASTS, openapi_extra=needs("viewer"))
def why(
    ref: Ref, leader: Leading, caller: Caller, forecast: Annotated[bool, Query(description="say when, too")] = True
) -> WhyView:
    """Why a job waits: the main reason and others, the jobs ahead, what would unblock it, its start and timeline."""
    job = find_job(leader, caller, ref)
    ends = leader.ingest.expected_ends()
    found, snapshot, explainer = leader.look(lambda state: _look(leader, caller, state, job, forecast, ends))
    view = job_views(leader, caller, [job])[0]
    causes = found.causes
    answer: WhyView = {
        "job": view,
        "reason": causes[0].to_dict() if causes else view["reason"],
        "all": [cause.to_dict() for cause in causes],
        "place": found.place,
        "ahead": found.ahead,
        "unblock": [],
        "forecast": None,
        "offers": [],
        "timeline": _timeline(leader, job),
    }
    if snapshot is not None:
        # Computed on a copy in this thread, so that no commit waits for it.
        there = Explainer.of(snapshot.new_state(), snapshot.now, sees=explainer.sees, ends=snapshot.ends)
        queued = there.board.waiting.queued.get(job.id)  # not there if it waits for other jobs
        answer["unblock"] = [one.to_dict() for one in unblock(there, queued)] if queued is not None else []
        answer["forecast"] = leader.forecasts.forecast(snapshot, [job.id])[job.id].to_dict()
        live = next(one for one in snapshot.jobs if one.id == job.id)
        answer["offers"] = [one.to_dict() for one in leader.forecasts.offers(snapshot, live)]
    return answer


@dataclass(frozen=True, slots=True)
class _Found:
    causes: list[Reason]
    place: int | None = None
    ahead: list[JobAhead] = field(default_factory=list)


def _look(
    leader: Leader, caller: Identity, state: State, job: Job, forecast: bool, ends: Ends
) -> tuple[_Found, Snapshot | None, Explainer]:
    explainer, live = explainer_for(leader, caller, state, ends), state.jobs.get(job.id)
    if live is None or live.phase != "queued":
        cause = live.reason if live is not None else job.reason
        if cause is None and live is not None and live.phase == "starting":
            cause = reason("about_to_start", "it is starting")
        if cause is None and live is not None and live.seatless:
            cause = _tasks_run(state, live) if live.is_array else reason("no_nodes_needed")
        small = explainer.fewer_nodes(live) if live is not None and live.phase == "running" else []
        return _Found([*([cause] if cause else []), *small]), None, explainer
    if live.awaits:
        snapshot = take(state, explainer.board, explainer.now, [live.id], ends=ends) if forecast else None
        return _Found(explainer.explain(live)), snapshot, explainer
    place = explainer.positions.ahead_of(live.id)
    first = (queued.job for queued in islice(explainer.positions.in_order(live.queue), min(place, _SHOWN_AHEAD)))
    ahead: list[JobAhead] = [
        {
            "id": explainer.named(one),
            "phase": one.phase,
            "num_nodes": one.spec.num_nodes,
            "accelerators": one.ask.weight * one.spec.num_nodes,
        }
        for one in first
        if one.id != live.id
    ]
    snapshot = take(state, explainer.board, explainer.now, [live.id], ends=ends) if forecast else None
    return _Found(explainer.explain(live), place + 1, ahead), snapshot, explainer


def _tasks_run(state: State, array: Job) -> Reason:
    tasks = state.tasks[array.id]
    over = sum(array.outcomes.values())
    message = f"{tasks.live} of its {tasks.live + over} tasks are not over"
    return reason("tasks_run", message, f"See them with `muster ls --parent {array.id}`.")


def _timeline(leader: Leader, job: Job) -> list[TimelineStep]:
    """The job's phases, and its reasons while it was queued; a repeated reason is listed once."""
    steps: list[TimelineStep] = []
    for event in leader.store.events(EventFilter(job=job.id, limit=_EVENTS)):
        step = _step(event)
        if step is not None and not (event.kind == "job.waits" and steps and _same(steps[-1], step)):
            steps.append(step)
    return steps


def _step(event: Event) -> TimelineStep | None:
    phase = _PHASES.get(event.kind)
    if phase is None:
        return None
    said = event.data.to_doc()
    if isinstance(event.data, JobSubmitted | JobResumed) and event.data.seatless:
        phase = "running"  # a job without nodes is never queued
    return {"time": event.time, "phase": phase, "attempt": event.attempt, "reason": said.get("reason")}


def _same(last: TimelineStep, step: TimelineStep) -> bool:
    before, now = last["reason"], step["reason"]
    return before is not None and now is not None and last["phase"] == "queued" and before["code"] == now["code"]


_PHASES: Final[dict[str, Phase]] = {
    "job.submitted": "queued",
    "job.waits": "queued",
    "job.resumed": "queued",
    "job.requeued": "queued",
    "attempt.planned": "starting",
    "attempt.running": "running",
    "job.stopping": "stopping",
    "job.succeeded": "succeeded",
    "job.failed": "failed",
    "job.stopped": "stopped",
}
