"""Why a job is in its current state, what would change that, and when it will start."""

from __future__ import annotations

from itertools import islice
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query

from muster.core.event import Event
from muster.core.job import Job
from muster.core.reasons import reason
from muster.core.state import State
from muster.sched.explain import Explainer
from muster.sched.forecast import foretell
from muster.sched.offers import offers
from muster.sched.snapshot import Snapshot, take
from muster.sched.unblock import unblock
from muster.server.auth import Identity
from muster.server.context import Caller, Leading, Ref, explainer_for, find_job, job_views
from muster.server.leader import Leader
from muster.server.views import View
from muster.store.base import EventFilter

router = APIRouter(prefix="/v1/jobs/{ref}", tags=["jobs"])

_SHOWN_AHEAD: Final = 10
_EVENTS: Final = 1000


@router.get("/why")
def why(
    ref: Ref, leader: Leading, caller: Caller, forecast: Annotated[bool, Query(description="say when, too")] = True
) -> View:
    """Why a job waits: the main reason and others, the jobs ahead, what would unblock it, its start and timeline."""
    job = find_job(leader, caller, ref)
    found, shot, explainer = leader.look(lambda state: _look(leader, caller, state, job, forecast))
    view = job_views(leader, caller, [job])[0]
    causes = found.pop("causes")
    answer = {
        "job": view,
        "reason": causes[0].to_dict() if causes else view["reason"],
        "all": [cause.to_dict() for cause in causes],
        **found,
        "unblock": [],
        "forecast": None,
        "offers": [],
        "timeline": _timeline(leader, job),
    }
    if shot is not None:
        # Computed on a copy in this thread, so that no commit waits for it.
        there = Explainer.of(shot.world(), shot.now, sees=explainer.sees)
        answer["unblock"] = [one.to_dict() for one in unblock(there, there.board.waiting.queued[job.id])]
        answer["forecast"] = foretell(shot, [job.id])[job.id].to_dict()
        live = next(one for one in shot.jobs if one.id == job.id)
        answer["offers"] = [one.to_dict() for one in offers(shot, live)]
    return answer


def _look(
    leader: Leader, caller: Identity, state: State, job: Job, forecast: bool
) -> tuple[dict[str, Any], Snapshot | None, Explainer]:
    explainer, live = explainer_for(leader, caller, state), state.jobs.get(job.id)
    if live is None or live.phase != "queued":
        cause = live.reason if live is not None else job.reason
        if cause is None and live is not None and live.phase == "starting":
            cause = reason("about_to_start", "it is starting")
        if cause is None and live is not None and live.seatless:
            cause = reason("no_nodes_needed")
        return {"causes": [cause] if cause else [], "place": None, "ahead": []}, None, explainer
    place = explainer.line.ahead_of(live.id)
    first = (queued.job for queued in islice(explainer.line.in_order(live.queue), min(place, _SHOWN_AHEAD)))
    ahead = [
        {
            "id": explainer.named(one),
            "phase": one.phase,
            "num_nodes": one.spec.num_nodes,
            "accelerators": one.ask.weight * one.spec.num_nodes,
        }
        for one in first
        if one.id != live.id
    ]
    shot = take(state, explainer.board, explainer.now, [live.id]) if forecast else None
    return {"causes": explainer.explain(live), "place": place + 1, "ahead": ahead}, shot, explainer


def _timeline(leader: Leader, job: Job) -> list[View]:
    """The job's phases, and its reasons while it was queued; a repeated reason is listed once."""
    steps: list[View] = []
    for event in leader.store.events(EventFilter(job=job.id, limit=_EVENTS)):
        step = _step(event)
        if step is not None and not (event.kind == "job.waits" and steps and _same(steps[-1], step)):
            steps.append(step)
    return steps


def _step(event: Event) -> View | None:
    phase = _PHASES.get(event.kind)
    if phase is None:
        return None
    if phase == "queued" and event.data.get("spec", {}).get("num_nodes") == 0:
        phase = "running"  # a job without nodes is never queued
    return {"time": event.time, "phase": phase, "attempt": event.attempt, "reason": event.data.get("reason")}


def _same(last: View, step: View) -> bool:
    return bool(last["reason"] and last["phase"] == "queued" and last["reason"]["code"] == step["reason"]["code"])


_PHASES: Final = {
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
