"""What each pool offers a job: when it would start there and at what cost, or why it can't start."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from math import inf
from typing import Final

from muster.api.why import OfferView, RunEstimate
from muster.core.history import groups_of
from muster.core.job import Job
from muster.core.reasons import Reason
from muster.core.spec import fewest_nodes
from muster.core.state import State
from muster.sched.board import Board
from muster.sched.explain import hourly
from muster.sched.forecast import Forecast, forecast_snapshot
from muster.sched.snapshot import Snapshot
from muster.sched.spares import without_spares

SAMPLES: Final = 6
ROUNDS: Final = 300
MOST: Final = 8  # pools for which a start is simulated


@dataclass(frozen=True, slots=True)
class Offer:
    """The offer of one pool, as if the job had named that pool."""

    pool: str
    engine: str
    per_hour: float | None  # of the whole gang; None where the pool has no price
    opens_at: float | None  # when the pool opens to the job; None when it is open now
    forecast: Forecast | None  # from Muster's queue, at least the engine's own estimate; None when it can't start there
    waiting: int  # gangs in the engine's own queue
    why_not: str = ""

    def to_dict(self) -> OfferView:
        forecast = self.forecast.to_dict() if self.forecast is not None else None
        return {
            "pool": self.pool,
            "engine": self.engine,
            "per_hour": self.per_hour or 0.0,
            "priced": self.per_hour is not None,
            "opens_at": self.opens_at,
            "forecast": forecast,
            "waiting": self.waiting,
            "why_not": self.why_not,
        }


def offers(snapshot: Snapshot, job: Job, only: Collection[str] | None = None) -> list[Offer]:
    """One offer per pool, if there are several pools: pools where the job can start first, then the others.

    `only`: of these pools.
    """
    if len(snapshot.pools) < 2:
        return []
    state, board = snapshot.new_state(), Board()
    board.sync(state, snapshot.now)
    found, tried = list[Offer](), 0
    for pool in sorted(state.pools if only is None else only):
        there = replace(job, spec=job.spec.model_copy(update={"pool": pool}))
        why_not = next(_against(state, board, there, pool), "")
        tried += not why_not
        if tried > MOST and not why_not:
            continue
        found.append(_offer(snapshot, state, board, job, there, why_not))
    return sorted(found, key=lambda one: (one.forecast is None, _start(one), one.per_hour or 0.0, one.pool))


def run_estimate(state: State, job: Job, now: float) -> RunEstimate:
    """How long the job will run by the history of such jobs, and what an hour of it costs."""
    groups, most = groups_of(job.user, job.spec), job.spec.max_duration
    p50 = p90 = None
    if state.history.known:
        limit = inf if most is None else most
        p50, p90 = (min(state.history.quantile(groups, share), limit) for share in (0.5, 0.9))
    if job.attempt is not None:
        pools = {job.attempt.pool}
    else:
        fits = {pool for (pool, total), count in state.kinds.items() if count and total.holds(job.ask)}
        pools = fits if job.pool is None else fits & {job.pool}
    prices = [price for pool in pools if (price := hourly(state, job, pool, now)) is not None]
    return {"p50": p50, "p90": p90, "most": most, "per_hour": min(prices, default=None)}


def _offer(snapshot: Snapshot, state: State, board: Board, job: Job, there: Job, why_not: str) -> Offer:
    pool = there.pool
    assert pool is not None
    burst = job.pool is None and pool in board.pools.bursts
    opens = board.pools.opens_at(job, pool) if burst and board.pools.opens_at(job, pool) > snapshot.now else None
    forecast, waits = None, _waits(state, pool)
    if not why_not:
        others = [one for one in snapshot.jobs if one.id != job.id]
        forecast = forecast_snapshot(replace(snapshot, jobs=[*others, there]), [job.id], SAMPLES, rounds=ROUNDS)[job.id]
        estimates = [at for wait in waits if (at := wait.data.get("starts_at")) is not None]
        forecast = _not_before(forecast, max([opens or 0.0, *estimates]))
    cost = hourly(state, job, pool, snapshot.now)
    return Offer(pool, state.pools[pool].engine, cost, opens, forecast, len(waits), why_not)


def _against(state: State, board: Board, job: Job, pool: str) -> Iterator[str]:
    """Reasons why the job can't start in the pool even if nodes become free."""
    if not board.pools.allows(job, pool):
        spot = board.pools.allows(replace(job, spec=job.spec.model_copy(update={"use_spot": True})), pool)
        yield "its nodes can be taken away, and the job does not say `use_spot`" if spot else "the rules don't allow it"
    if pool in board.pools.away:
        yield f"its engine can't be reached: {board.pools.away[pool]}"
    kinds = {total: n for (name, total), n in state.kinds.items() if name == pool}
    spares, fewest = state.rules.pool(pool).spares, fewest_nodes(job.spec)
    fitting = sum(n for total, n in without_spares(kinds, spares).items() if total.holds(job.ask))
    if fitting < fewest:
        beside = f" beside its {spares} spares" if spares else ""
        yield f"{fewest} such nodes are needed, and it has {fitting}{beside}"


def _waits(state: State, pool: str) -> list[Reason]:
    """The wait reasons of gangs in the queue of the pool's engine."""
    jobs = (state.jobs[name] for name in state.active)
    there = (job for job in jobs if job.phase == "starting" and job.attempt is not None and job.attempt.pool == pool)
    return [job.reason for job in there if job.reason is not None and job.reason.code == "engine_queue"]


def _not_before(forecast: Forecast, at: float) -> Forecast:
    p50, p90 = (None if moment is None else max(moment, at) for moment in (forecast.p50, forecast.p90))
    return replace(forecast, p50=p50, p90=p90)


def _start(offer: Offer) -> float:
    return offer.forecast.p50 if offer.forecast is not None and offer.forecast.p50 is not None else float("inf")
