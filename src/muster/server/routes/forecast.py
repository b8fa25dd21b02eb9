"""Forecasts of when jobs will start, and how accurate they have been."""

from __future__ import annotations

from itertools import islice
from typing import Annotated, Final
from weakref import WeakKeyDictionary

from fastapi import Query

from muster.api.why import Calibration, ForecastList, JobForecast, QueuedForecast, RunEstimate
from muster.control.cost_before import CostFacts, cost_before, cost_facts
from muster.control.score import calibration
from muster.core.errors import NotFound
from muster.core.state import State
from muster.sched.likely_end import Ends
from muster.sched.offers import run_estimate
from muster.sched.snapshot import Snapshot, take
from muster.server.auth import Identity
from muster.server.context import FORECASTS, HEAVY, Caller, Leading, Ref, explainer_for, find_job
from muster.server.kept_answers import KeptAnswers
from muster.server.leader import Leader
from muster.server.routes.jobs import Text
from muster.server.typed_routes import needs, typed_router

router = typed_router(prefix="/v1", tags=["forecast"])

_MONTH: Final = 30 * 86_400.0
_KEPT: Final[WeakKeyDictionary[Leader, KeptAnswers[ForecastList]]] = WeakKeyDictionary()
QueueName = Annotated[str | None, Query(min_length=1, max_length=63, pattern=r"^[^\x00]*$")]


@router.get("/forecast", dependencies=FORECASTS, openapi_extra=needs("anyone"))
def forecasts(
    leader: Leading,
    caller: Caller,
    queue: QueueName = None,
    project: Text = None,
    user: Text = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 20,
) -> ForecastList:
    """When the next queued jobs will start, in the order in which they are served.

    Where that takes seconds, an answer is kept for a while: `now` is when it was computed.
    """
    kept = _KEPT.setdefault(leader, KeptAnswers())
    visible = caller.projects(leader.store.state())
    key = (None if visible is None else tuple(sorted(visible)), caller.share, queue, project, user, limit)
    return kept.get(key, lambda: _forecasts(leader, caller, queue, (project, user), limit))


def _forecasts(
    leader: Leader, caller: Identity, queue: str | None, of: tuple[str | None, str | None], limit: int
) -> ForecastList:
    ends = leader.ingest.expected_ends()
    snapshot, names = leader.look(lambda state: _next(leader, caller, state, queue, of, limit, ends))
    found = leader.forecasts.forecast(snapshot, names)
    known = {job.id: job for job in snapshot.jobs}
    jobs: list[QueuedForecast] = [
        {**found[name].to_dict(), "queue": known[name].queue, "user": known[name].user} for name in names
    ]
    return {"now": snapshot.now, "jobs": jobs}


@router.get("/forecast/calibration", dependencies=HEAVY, openapi_extra=needs("anyone"))
def scores(
    leader: Leading,
    caller: Caller,
    queue: QueueName = None,
    since: Annotated[float, Query(ge=60, le=315_360_000, description="seconds back from now")] = _MONTH,
) -> Calibration:
    """The shares of jobs that started before the P50 and the P90 of their forecast, by queue and by size."""
    now = leader.clock.now()
    visible = caller.projects(leader.store.state())
    return calibration(leader.store, now - since, now, visible, queue)


@router.get("/jobs/{ref}/forecast", dependencies=FORECASTS, openapi_extra=needs("viewer"))
def job_forecast(
    ref: Ref,
    leader: Leading,
    caller: Caller,
    compare: Annotated[bool, Query(description="whether to forecast it for each pool, in `offers`")] = True,
) -> JobForecast:
    """When a queued job will start; `forecast` is null for a job that does not wait."""
    job = find_job(leader, caller, ref)
    ends = leader.ingest.expected_ends()
    now = leader.clock.now()
    risks = leader.spot_history.risks(leader.store.state(), now)

    def look(state: State) -> tuple[Snapshot | None, RunEstimate, CostFacts | None]:
        live = state.jobs.get(job.id, job)
        return (
            _snapshot(leader, state, job.id, ends), run_estimate(state, live, now), cost_facts(state, live, risks, now)
        )  # fmt: skip

    snapshot, estimate, facts = leader.look(look)
    answer: JobForecast = {
        "id": job.id,
        "phase": job.phase,
        "started_at": job.started_at,
        "forecast": None,
        "offers": [],
        "estimate": estimate,
    }
    if snapshot is not None:
        live = next(one for one in snapshot.jobs if one.id == job.id)
        answer["forecast"] = leader.forecasts.forecast(snapshot, [job.id])[job.id].to_dict()
        answer["offers"] = [one.to_dict() for one in leader.forecasts.offers(snapshot, live)] if compare else []
    elif job.reason is not None and job.phase == "starting":
        answer["engine_estimate"] = job.reason.data.get("starts_at")
    if facts is not None and not job.final:
        start = answer["forecast"]["p50"] if answer["forecast"] is not None else now
        pool = job.attempt.pool if job.attempt is not None else ""
        answer["cost"] = cost_before(facts, job, pool, start, answer["offers"], snapshot if compare else None)
    return answer


def _snapshot(leader: Leader, state: State, name: str, ends: Ends) -> Snapshot | None:
    live = state.jobs.get(name)
    if live is None or live.phase != "queued":
        return None
    return take(state, leader.controller.board, leader.clock.now(), [name], ends=ends)


def _next(
    leader: Leader,
    caller: Identity,
    state: State,
    queue: str | None,
    of: tuple[str | None, str | None],
    limit: int,
    ends: Ends,
) -> tuple[Snapshot, list[str]]:
    """`of`: the project and the user whose jobs are wanted, if only theirs are."""
    project, user = of
    visible = caller.projects(state)
    known = state.queues.get(queue) if queue is not None else None
    if queue is not None and (known is None or not _open(visible, known.project, known.name)):
        raise NotFound(f"There is no queue {queue!r} that you can see.", "See `muster queue`.")
    explainer = explainer_for(leader, caller, state)
    line = (queued.job for queued in explainer.positions.in_order(queue, include_held=True))
    wanted = (
        job for job in line if explainer.sees(job) and project in (None, job.project) and user in (None, job.user)
    )
    names = [job.id for job in islice(wanted, limit)]
    return take(state, explainer.board, explainer.now, names, ends=ends), names


def _open(visible: list[str] | None, project: str, queue: str) -> bool:
    return visible is None or project in visible or queue == "default"
