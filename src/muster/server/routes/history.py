"""History: use of pools and waits of jobs over time, and whether waits met their targets."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import Query

from muster.api.history import HistoryView, LevelView, PoolHistory, ServiceLevels
from muster.core.errors import Invalid, NotFound
from muster.core.state import State
from muster.monitor.history import grouped, history, resolution_for, step_for
from muster.monitor.rollup import DAY, KEPT, MINUTE, from_text, start_of
from muster.server.auth import Identity
from muster.server.context import HEAVY, Caller, Leading
from muster.server.leader import Leader
from muster.server.typed_routes import needs, typed_router
from muster.store.past import Level, LevelFilter, LevelKey, Rollup, targets_of

router = typed_router(prefix="/v1", tags=["history"])

_QUARTER_YEAR: Final = 90 * 86_400.0
_WEEK: Final = 7 * 86_400.0
_MOST: Final = 5_000  # buckets per pool in one answer
Span = Annotated[float, Query(ge=60, le=3_153_600_000, description="seconds back from now")]
Name = Annotated[str | None, Query(min_length=1, max_length=63, pattern=r"^[^\x00]*$")]
Step = Annotated[
    int | None,
    Query(
        ge=MINUTE,
        le=315_360_000,
        multiple_of=MINUTE,
        description="seconds of a bucket; what suits the span unless given",
    ),
]


@router.get("/nodes/history", dependencies=HEAVY, openapi_extra=needs("anyone"))
def nodes_history(
    leader: Leading, caller: Caller, pool: Name = None, since: Span = _QUARTER_YEAR, every: Step = None
) -> HistoryView:
    """Use, queue depth, waits and fragmentation of each pool over time; buckets start at multiples of `every`, UTC.

    The pool "" is all pools together. There are no buckets for times that were not recorded or are no longer kept.
    """
    now = leader.clock.now()
    if every is None:
        since = now - _first(leader, pool, now - since)
    step = every or step_for(since)
    if since / step > _MOST:
        raise Invalid(
            f"{since / step:,.0f} buckets of {step} s are asked for; at most {_MOST:,} come in one answer.",
            "Ask for longer buckets, or for a shorter time.",
        )
    resolution = resolution_for(step)
    rows = leader.store.rollups(resolution, pool, start_of(now - since, step), start_of(now, resolution) + 1)
    if pool is not None and not rows:
        _check_pool(leader, pool, now)
    pools = [_history(rows, name, step) for name in sorted({row.pool for row in rows})]
    return {"since": now - since, "now": now, "every": step, "kept": KEPT[resolution], "pools": pools}


@router.get("/slo", dependencies=HEAVY, openapi_extra=needs("anyone"))
def service_levels(leader: Leading, caller: Caller, queue: Name = None, since: Span = _WEEK) -> ServiceLevels:
    """Whether jobs that started since then, and jobs that wait now, met their wait targets. Uses today's targets."""
    now = leader.clock.now()
    targets, visible = leader.look(lambda state: _allowed(state, caller, queue))
    want = LevelFilter(now - since, now, targets, visible, queue)
    found = {(level.work, level.high): level for level in leader.store.levels(want)}
    levels = [found.get(key) or Level(key[0], key[1], target) for key, target in targets.items()]
    return {"queue": queue, "since": want.since, "now": now, "levels": [_level_view(level) for level in levels]}


def _first(leader: Leader, pool: str | None, since: float) -> float:
    """The start of the record, if that is later: otherwise its first hour would be shown as one bar for a day."""
    days = leader.store.rollups(DAY, pool, start_of(since, DAY), start_of(leader.clock.now(), DAY) + 1)
    return max(since, days[0].start) if days else since


def _check_pool(leader: Leader, pool: str, now: float) -> None:
    """Raises NotFound for a pool that doesn't exist and never did."""

    def there(state: State) -> bool:
        return pool in state.pools or any(node.pool == pool for node in state.nodes.values())

    if not leader.look(there) and not leader.store.rollups(DAY, pool, 0, start_of(now, DAY) + 1):
        raise NotFound(
            f"There is no pool {pool!r}, and none is remembered.", "See `muster nodes` for those that there are."
        )


def _history(rows: list[Rollup], pool: str, step: int) -> PoolHistory:
    return history(pool, grouped(((row.start, from_text(row.data)) for row in rows if row.pool == pool), step))


def _allowed(state: State, caller: Identity, queue: str | None) -> tuple[dict[LevelKey, float], list[str] | None]:
    """The targets in force, and the projects whose jobs may be counted."""
    visible = caller.projects(state)
    known = state.queues.get(queue) if queue is not None else None
    hidden = known is None or not (visible is None or known.project in visible or known.name == "default")
    if queue is not None and hidden:
        raise NotFound(f"There is no queue {queue!r} that you can see.", "See `muster queue`.")
    return targets_of(state.rules), visible


def _level_view(level: Level) -> LevelView:
    return {
        "work": level.work,
        "target": level.target,
        "started": level.started,
        "within": level.within,
        "p50": level.p50,
        "p90": level.p90,
        "waiting": level.waiting,
        "late": level.late,
        "priority": "high" if level.high else "standard",
        "share": level.within / level.started if level.started else None,
    }
