"""Reports of the cost ledger. Members see their projects; tokens of finance and administrators see all."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from fastapi import Query

from muster.api.cost_reports import (
    CostChanges,
    CostExplanation,
    CostForecasts,
    CostReport,
    CostStatements,
    FamilyCosts,
    HourCosts,
    RunCosts,
    SpotCosts,
    WasteCosts,
)
from muster.control.cost_report import ROWS_MAX, CostReader, CostScope
from muster.core.entities.price_book import book_zone
from muster.core.errors import Invalid, NotFound
from muster.cost.report.days import days_of
from muster.cost.report.sums import parse_by
from muster.server.auth import Identity
from muster.server.context import HEAVY, Caller, Leading, Tracked, whole_number
from muster.server.leader import Leader
from muster.server.typed_routes import needs, typed_router
from muster.track.tracking import Tracking

router = typed_router(prefix="/v1", tags=["cost"])

Month = Annotated[str | None, Query(max_length=10, description="such as 2026-11, or this")]
Week = Annotated[str | None, Query(max_length=10, description="an ISO week, such as 2026-W47, or this")]
Since = Annotated[str | None, Query(max_length=20, description="the first day, or a duration such as 30d")]
Until = Annotated[str | None, Query(max_length=20, description="the last day; with since")]
Value = Annotated[str | None, Query(max_length=200, pattern=r"^[^\x00]*$")]
_PAGE: Final = 1000


def scope_of(
    leader: Leader,
    caller: Identity,
    month: str | None,
    week: str | None,
    since: str | None,
    until: str | None,
    **equal: str | None,
) -> CostScope:
    """What a report covers: the period, and of the projects that the caller may see those that were asked for."""
    state, now = leader.store.state(), leader.clock.now()
    visible = caller.cost_projects(state)
    project = equal.pop("project", None)
    if project is not None:
        if visible is not None and project not in visible:
            raise NotFound(f"There is no project {project!r} that you can see.", "See `muster project ls`.")
        visible = [project]
    given = {name: value for name, value in equal.items() if value is not None}
    return CostScope(days_of(month, week, since, until, now, book_zone(state)), visible, given)


def reader_of(leader: Leader, track: Tracking) -> CostReader:
    """Everything that was charged before the request is in its answer."""
    leader.cost_follower.reach()
    return CostReader(track.db, leader.look, leader.clock.now())


@router.get("/cost", dependencies=HEAVY, openapi_extra=needs("anyone"))
def cost(
    leader: Leading,
    track: Tracked,
    caller: Caller,
    by: Annotated[str, Query(max_length=100, description="dimensions, such as project,user")] = "project",
    month: Month = None,
    week: Week = None,
    since: Since = None,
    until: Until = None,
    project: Value = None,
    user: Value = None,
    queue: Value = None,
    family: Value = None,
    environment: Value = None,
    pool: Value = None,
    account: Value = None,
    limit: Annotated[int, Query(ge=1, le=ROWS_MAX)] = 1000,
) -> CostReport:
    """What work cost in a month, a week or some days, by any dimensions; this month so far unless given.

    Dimensions: project, user, queue, kind, family, environment, pool, account, price, day, week, month and run.
    Amounts are millionths. `totals` has one for each currency, also of rows beyond the limit.
    """
    scope = scope_of(
        leader, caller, month, week, since, until, project=project, user=user, queue=queue, family=family,
        environment=environment, pool=pool, account=account,
    )  # fmt: skip
    return reader_of(leader, track).report(scope, parse_by(by), limit)


@router.get("/cost/families", dependencies=HEAVY, openapi_extra=needs("anyone"))
def cost_families(
    leader: Leading,
    track: Tracked,
    caller: Caller,
    month: Month = None,
    week: Week = None,
    since: Since = None,
    until: Until = None,
    project: Value = None,
) -> FamilyCosts:
    """What each experiment family cost for each run that succeeded, and what failed attempts added."""
    scope = scope_of(leader, caller, month, week, since, until, project=project)
    return reader_of(leader, track).families(scope)


@router.get("/cost/runs", dependencies=HEAVY, openapi_extra=needs("anyone"))
def cost_runs(
    leader: Leading,
    track: Tracked,
    caller: Caller,
    metric: Annotated[str, Query(max_length=256, pattern=r"^[^\x00]*$")] = "loss",
    better: Literal["lower", "higher"] = "lower",
    month: Month = None,
    week: Week = None,
    since: Since = None,
    until: Until = None,
    project: Value = None,
    family: Value = None,
) -> RunCosts:
    """Runs by cost and a metric: those that no other beats in both, and what each further point cost."""
    scope = scope_of(leader, caller, month, week, since, until, project=project, family=family)
    return reader_of(leader, track).runs(scope, metric, better)


@router.get("/cost/waste", dependencies=HEAVY, openapi_extra=needs("anyone"))
def cost_waste(
    leader: Leading,
    track: Tracked,
    caller: Caller,
    month: Month = None,
    week: Week = None,
    since: Since = None,
    until: Until = None,
    project: Value = None,
) -> WasteCosts:
    """What was charged for time that trained nothing, by cause."""
    return reader_of(leader, track).waste(scope_of(leader, caller, month, week, since, until, project=project))


@router.get("/cost/forecast", dependencies=HEAVY, openapi_extra=needs("anyone"))
def cost_forecast(
    leader: Leading,
    track: Tracked,
    caller: Caller,
    month: Month = None,
    week: Week = None,
    project: Value = None,
) -> CostForecasts:
    """What the month or week will have cost at its end, with a band."""
    return reader_of(leader, track).forecast(scope_of(leader, caller, month, week, None, None, project=project))


@router.get("/cost/change", dependencies=HEAVY, openapi_extra=needs("anyone"))
def cost_change(
    leader: Leading,
    track: Tracked,
    caller: Caller,
    month: Month = None,
    week: Week = None,
    since: Since = None,
    until: Until = None,
    project: Value = None,
) -> CostChanges:
    """The change since the period before, explained by hours and by prices."""
    return reader_of(leader, track).changes(scope_of(leader, caller, month, week, since, until, project=project))


@router.get("/cost/spot", dependencies=HEAVY, openapi_extra=needs("anyone"))
def cost_spot(
    leader: Leading,
    track: Tracked,
    caller: Caller,
    month: Month = None,
    week: Week = None,
    since: Since = None,
    until: Until = None,
    project: Value = None,
) -> SpotCosts:
    """The share of spot, and what it saved net of its interruptions."""
    return reader_of(leader, track).spot(scope_of(leader, caller, month, week, since, until, project=project))


@router.get("/cost/hours", dependencies=HEAVY, openapi_extra=needs("anyone"))
def cost_hours(
    leader: Leading,
    track: Tracked,
    caller: Caller,
    month: Month = None,
    week: Week = None,
    since: Since = None,
    until: Until = None,
    project: Value = None,
) -> HourCosts:
    """What an accelerator-hour cost by pool: at list price, as charged, with idle capacity, and useful."""
    return reader_of(leader, track).hours(scope_of(leader, caller, month, week, since, until, project=project))


@router.get("/cost/explain", dependencies=HEAVY, openapi_extra=needs("anyone"))
def cost_explain(
    leader: Leading,
    track: Tracked,
    caller: Caller,
    run: Value = None,
    project: Value = None,
    user: Value = None,
    queue: Value = None,
    family: Value = None,
    environment: Value = None,
    pool: Value = None,
    account: Value = None,
    day: Annotated[str | None, Query(max_length=10, description="such as 2026-11-18")] = None,
    month: Month = None,
    week: Week = None,
    since: Since = None,
    until: Until = None,
    after: Annotated[str | None, Query(max_length=30, description="`next` of the page before")] = None,
    limit: Annotated[int, Query(ge=1, le=_PAGE)] = _PAGE,
) -> CostExplanation:
    """The entries that amounts are made of: their events, prices, arithmetic, and who pays them.

    All that there are of a run, a project or a pool, unless a period is given: then it may be of everything.
    """
    period = month is not None or week is not None or since is not None or until is not None
    if run is None and project is None and pool is None and day is None and not period:
        raise Invalid("Nothing says which entries.", "Give a run, a project, a pool, a day or a period.")
    if day is not None:
        if period:
            raise Invalid("A day and a period were given.", "Give one of them.")
        since = until = day
    elif not period:
        since, until = "1971-01-01", "9000-01-01"
    scope = scope_of(
        leader, caller, month, week, since, until, project=project, run=run, user=user, queue=queue, family=family,
        environment=environment, pool=pool, account=account,
    )  # fmt: skip
    return reader_of(leader, track).explain(scope, _place(after), limit)


@router.get("/cost/statement", dependencies=HEAVY, openapi_extra=needs("anyone"))
def cost_statement(
    leader: Leading,
    track: Tracked,
    caller: Caller,
    month: Month = None,
    week: Week = None,
    since: Since = None,
    until: Until = None,
    project: Value = None,
) -> CostStatements:
    """What each project is charged, by user, family, pool, price and account: for chargeback and showback."""
    scope, reader = scope_of(leader, caller, month, week, since, until, project=project), reader_of(leader, track)
    names = {one.keys[0] for one in reader.sums(scope, ("project",))} - {""}
    if project is not None:
        names |= {project}
    return {"statements": [reader.statement(scope, name) for name in sorted(names)]}


def _place(after: str | None) -> tuple[int, int]:
    if after is None:
        return (-1, -1)
    seq, _, part = after.partition(".")
    found = whole_number(seq), whole_number(part)
    if found[0] is None or found[1] is None:
        raise Invalid(f"after is {after!r}.", "Pass `next` of the page before.")
    return found[0], found[1]
