"""What the ranks of a running job do now, from their launchers' pulses and samples."""

from __future__ import annotations

from statistics import fmean

from muster.api.ranks import RanksView, RankView
from muster.core.errors import Conflict
from muster.core.job import Job
from muster.core.spec import ranks_per_node
from muster.monitor.activity import RankActivity
from muster.monitor.alerts.figures import RunFigures
from muster.monitor.unlike import unlike
from muster.server.context import Caller, Leading, Ref, find_job
from muster.server.typed_routes import needs, typed_router

router = typed_router(prefix="/v1/jobs/{ref}/ranks", tags=["jobs"])


@router.get("", openapi_extra=needs("viewer"))
def ranks(ref: Ref, leader: Leading, caller: Caller) -> RanksView:
    """The ranks of a running job, those that stand out marked. It is in memory: after a restart of the server it takes
    some seconds to fill."""
    job = find_job(leader, caller, ref)
    if not job.active or job.attempt is None:
        raise Conflict(f"{job.id} does not run: it is {job.phase}.", f"See `muster status {job.id}`.")
    now, number = leader.clock.now(), job.attempt.number
    activity = leader.hangs.activity(job.id, number)
    figures = leader.alerts.figures(job.id, number)
    made = [_view(job, rank, activity.get(rank), figures, now) for rank in range(_world(job))]
    odd = unlike({one["rank"]: _figures(one) for one in made})
    times = figures.steps.ratio() if figures is not None else None
    return {
        "job": job.id,
        "attempt": number,
        "now": now,
        "step_seconds": times[1] if times is not None else None,
        "step_seconds_own": times[2] if times is not None else None,
        "phases": dict(figures.phases.shares) if figures is not None else {},
        "ranks": [{**one, "unlike": odd.get(one["rank"], [])} for one in made],
    }


def _world(job: Job) -> int:
    assert job.attempt is not None
    return ranks_per_node(job.spec) * len(job.attempt.workers)


def _view(job: Job, rank: int, one: RankActivity | None, figures: RunFigures | None, now: float) -> RankView:
    assert job.attempt is not None
    pulse = one.pulse if one is not None else None
    use = _of(figures, "gpu", rank, now)
    memory = _of(figures, "gpu_memory_share", rank, now)
    return {
        "rank": rank,
        "node": job.attempt.workers[rank // ranks_per_node(job.spec)].node,
        "phase": one.phase if one is not None else "",
        "step": one.step if one is not None else None,
        "state": pulse.state if pulse is not None else "",
        "cpu": one.cpu if one is not None and pulse is not None else None,
        "device_use": fmean(use) if use else pulse.use if pulse is not None else None,
        "device_memory": max(memory) if memory else None,
        "power": pulse.power if pulse is not None else None,
        "quiet": one.inactive if one is not None and pulse is not None else None,
        "unlike": [],
    }


def _of(figures: RunFigures | None, name: str, rank: int, now: float) -> list[float]:
    return [value for (which, _), value in figures.device(name, now) if which == rank] if figures is not None else []


def _figures(one: RankView) -> dict[str, float | None]:
    return {
        "step": one["step"],
        "cpu": one["cpu"],
        "device_use": one["device_use"],
        "device_memory": one["device_memory"],
        "power": one["power"],
        "quiet": one["quiet"],
    }
