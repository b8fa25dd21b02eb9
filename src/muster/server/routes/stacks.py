"""Routes for the stacks of a job's ranks: asking for them, and what was kept."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query

from muster.api.stacks import StacksList, StacksOrder, StacksView
from muster.control.orders import check_stacks
from muster.core.errors import Conflict
from muster.core.job import Job
from muster.monitor.stacks import group
from muster.server.context import HEAVY, Caller, Leading, Ref, Tracked, find_job
from muster.server.leader import Leader
from muster.server.typed_routes import needs, typed_router
from muster.track.tracking import Tracking

router = typed_router(prefix="/v1/jobs/{ref}/stacks", tags=["stacks"])

Ident = Annotated[str, Path(pattern=r"^(last|[0-9]{1,18})$", description="the id, or `last` for the newest")]
Seconds = Annotated[float, Query(ge=0, le=60, description="how long to look, for a profile; 0: one look")]
Brief = Annotated[bool, Query(description="without the stacks: only which ranks have answered")]


@router.post("", status_code=202, openapi_extra=needs("member"))
def order_stacks(ref: Ref, leader: Leading, track: Tracked, caller: Caller, seconds: Seconds = 0.0) -> StacksOrder:
    """Asks the workers of a running job for the stacks of all its ranks. They have file names and functions, no values.

    With `seconds` each rank is looked at for so long, and answers with a profile, too. Who asks for the same again
    within two seconds gets the same order. The event log records it.
    """
    job = find_job(leader, caller, ref, "member")
    check_stacks(job)
    made = leader.stack_orders.order(job, caller.user, seconds)
    return {"id": made.id, "job": made.job, "attempt": made.attempt, "ranks": made.world}


@router.get("", openapi_extra=needs("viewer"))
def list_stacks(ref: Ref, leader: Leading, track: Tracked, caller: Caller) -> StacksList:
    """The stacks that are kept of the job, the newest first."""
    job = find_job(leader, caller, ref)
    return {"job": job.id, "stacks": track.stacks.orders(job.id)}


@router.get("/{ident}", dependencies=HEAVY, openapi_extra=needs("viewer"))
def get_stacks(
    ref: Ref, ident: Ident, leader: Leading, track: Tracked, caller: Caller, brief: Brief = False
) -> StacksView:
    """The stacks of all ranks at one moment, and the ranks grouped by where they are."""
    job = find_job(leader, caller, ref)
    view = _view(leader, track, job, ident)
    if brief:
        return view
    ranks = track.stacks.get(job.id, view["id"])
    return {**view, "groups": group(ranks, view["missing"]), "ranks": ranks}


def _view(leader: Leader, track: Tracking, job: Job, ident: str) -> StacksView:
    """Which ranks have answered an order."""
    kept = track.stacks.orders(job.id)
    pending = leader.stack_orders.newest(job.id)
    one = next((one for one in kept if ident in ("last", str(one["id"]))), None)
    if one is not None:
        order, attempt, time, world = one["id"], one["attempt"], one["time"], one["world"]
    elif pending is not None and ident in ("last", str(pending.id)):
        order, attempt, time, world = pending.id, pending.attempt, pending.id / 1000, pending.world
    else:
        raise Conflict(
            f"No stacks of {job.id} are kept" + ("." if ident == "last" else f" by the id {ident}."),
            f"`muster stacks {job.id}` takes them while it runs.",
        )
    missing = sorted(set(range(world)) - set(track.stacks.answered(job.id, order)))
    return {
        "id": order, "job": job.id, "attempt": attempt, "time": time, "world": world, "missing": missing,
        "groups": [], "ranks": [],
    }  # fmt: skip
