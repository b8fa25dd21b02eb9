"""The route that asks a running job to save now."""

from __future__ import annotations

from muster.api.jobs import SaveOrder
from muster.control.orders import check_save
from muster.server.context import Caller, Leading, Ref, find_job
from muster.server.typed_routes import needs, typed_router

router = typed_router(prefix="/v1/jobs/{ref}/save", tags=["jobs"])


@router.post("", status_code=202, openapi_extra=needs("member"))
def save_now(ref: Ref, leader: Leading, caller: Caller) -> SaveOrder:
    """Asks the ranks of a running job to save a checkpoint and go on; `runtime.should_save` tells them.

    Refused for a job that does not run, and for a program that has not asked whether it should save. Who asks again
    within two seconds has asked once. The event log records it.
    """
    job = find_job(leader, caller, ref, "member")
    check_save(job, leader.store.run(job.id).get("listens"))
    made = leader.save_orders.order(job, caller.user)
    return {"id": made.id, "job": made.job, "attempt": made.attempt, "time": made.id / 1000, "ranks": made.world}
