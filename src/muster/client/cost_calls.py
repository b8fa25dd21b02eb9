"""Calls of the cost ledger: reports, explanations, statements and exports. Amounts are millionths of a currency."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Literal

from muster.client.connection import Anyone, part
from muster.client.curves import FrameKind

if TYPE_CHECKING:
    from muster.api.cost import AdviceList, BudgetRemovedView, BudgetSetView, BudgetView, PricesAnswer, PricesView
    from muster.api.cost_reports import (
        CostChanges,
        CostExplanation,
        CostForecasts,
        CostReport,
        CostStatement,
        FamilyCosts,
        HourCosts,
        RunCosts,
        SpotCosts,
        WasteCosts,
    )

EXPORT: Final = 600.0  # seconds without any byte


async def cost(
    to: Anyone,
    /,
    by: str | Sequence[str] = "project",
    *,
    month: str | None = None,
    week: str | None = None,
    since: str | None = None,
    until: str | None = None,
    limit: int | None = None,
    **equal: str | None,
) -> CostReport:
    """What work cost, by dimensions such as "project" and "user": "rows" and "totals".

    `month`: "2026-11"; `week`: "2026-W47"; `since`: a date, or "30d"; this month so far unless given. `equal`:
    project, user, queue, family, environment, pool or account, of which only one value counts.
    """
    words = by if isinstance(by, str) else ",".join(by)
    period = {"month": month, "week": week, "since": since, "until": until}
    return await to._get("/v1/cost", by=words, limit=limit, **period, **equal)


async def cost_frame(
    to: Anyone, /, by: str | Sequence[str] = "project", kind: FrameKind = "pandas", **period: str | None
) -> Any:
    """A data frame of `cost`: one row for each group and currency, with amounts in whole units of the currency."""
    found = await cost(to, by, limit=10_000, **period)
    return await to._transport.work(lambda: import_module("muster.client.frames").of_costs(found, kind))


async def cost_families(to: Anyone, /, **period: str | None) -> FamilyCosts:
    """What each experiment family cost for each success, and what failed attempts added. `period`: as of `cost`."""
    return await to._get("/v1/cost/families", **period)


async def cost_runs(
    to: Anyone, /, metric: str = "loss", better: Literal["lower", "higher"] = "lower", **period: str | None
) -> RunCosts:
    """Runs by cost and metric; those with "front" are beaten by no other in both."""
    return await to._get("/v1/cost/runs", metric=metric, better=better, **period)


async def cost_waste(to: Anyone, /, **period: str | None) -> WasteCosts:
    """What was charged for time that trained nothing, by cause."""
    return await to._get("/v1/cost/waste", **period)


async def cost_forecast(to: Anyone, /, **period: str | None) -> CostForecasts:
    """What the month or week will have cost at its end, from "low" to "high"."""
    return await to._get("/v1/cost/forecast", **period)


async def cost_change(to: Anyone, /, **period: str | None) -> CostChanges:
    """The change since the period before, by hours and by prices."""
    return await to._get("/v1/cost/change", **period)


async def cost_spot(to: Anyone, /, **period: str | None) -> SpotCosts:
    """The share of spot capacity, and what it saved net of its interruptions."""
    return await to._get("/v1/cost/spot", **period)


async def cost_hours(to: Anyone, /, **period: str | None) -> HourCosts:
    """What an accelerator-hour cost by pool."""
    return await to._get("/v1/cost/hours", **period)


async def explain_cost(
    to: Anyone,
    /,
    run: str | None = None,
    *,
    day: str | None = None,
    after: str | None = None,
    limit: int | None = None,
    **only: str | None,
) -> CostExplanation:
    """The entries that amounts are made of, in the order of the log. For those that follow, pass "next" as `after`.

    `only`: a project, user, queue, family, environment, pool or account, and a period (month, week, since, until).
    """
    return await to._get("/v1/cost/explain", run=run, day=day, **only, after=after, limit=limit)


async def cost_statements(to: Anyone, /, **period: str | None) -> list[CostStatement]:
    """What each project, or the one of `project=`, is charged."""
    return (await to._get("/v1/cost/statement", **period))["statements"]


async def cost_focus(to: Anyone, /, **period: str | None) -> AsyncGenerator[bytes, None]:
    """The entries of a period as CSV in FOCUS 1.2, in pieces."""
    given = {name: value for name, value in period.items() if value is not None}
    async with (
        to._transport.open("/v1/cost/focus", given, EXPORT) as response,
        aclosing(to._transport.blocks(response)) as blocks,
    ):
        async for block in blocks:
            yield block


async def prices(to: Anyone, /) -> PricesView:
    """The prices of all pools, those of the past and those to come among them."""
    return await to._get("/v1/cost/prices")


async def set_prices(
    to: Anyone, /, text: str, dry_run: bool = False, correct: bool = False, source: str = "The price book"
) -> PricesAnswer:
    """Puts a price book in force, or only checks it. "changed": pools whose prices differ for time that is charged.

    Such a book is refused unless `correct` is given: then these charges are corrected. Raises SpecError with all
    mistakes; the prices then stay as they are.
    """
    body = {"text": text, "dry_run": dry_run, "correct": correct, "source": source}
    return await to._send("PUT", "/v1/cost/prices", body)


async def budgets(to: Anyone, /) -> list[BudgetView]:
    """The budgets of your projects, each in its present period. Amounts are millionths of the currency."""
    return (await to._get("/v1/cost/budgets"))["budgets"]


async def set_budget(
    to: Anyone,
    /,
    name: str,
    amount: str,
    *,
    project: str = "",
    family: str = "",
    environment: str = "",
    user: str = "",
    per: str = "month",
    first: str = "",
    last: str = "",
    mode: str = "hard",
    dry_run: bool = False,
) -> BudgetSetView:
    """Makes or changes a budget, such as of "5000 USD". With several parts of a scope, all of them must match."""
    scope = {"project": project, "family": family, "environment": environment, "user": user}
    body = {"amount": amount, **scope, "per": per, "first": first, "last": last, "mode": mode, "dry_run": dry_run}
    return await to._send("PUT", f"/v1/cost/budgets/{part(name)}", body)


async def remove_budget(to: Anyone, /, name: str) -> BudgetRemovedView:
    return await to._send("DELETE", f"/v1/cost/budgets/{part(name)}")


async def grant(to: Anyone, /, name: str, amount: str, reason: str) -> BudgetView:
    """More money for the present period of a budget. The reason is in the event log."""
    return await to._send("POST", f"/v1/cost/budgets/{part(name)}/grants", {"amount": amount, "reason": reason})


async def cost_advice(
    to: Anyone,
    /,
    kind: str | None = None,
    project: str | None = None,
    *,
    since: float | None = None,
    reserve_price: float | None = None,
    buy_price: float | None = None,
) -> AdviceList:
    """What would save money, with its arithmetic; `since`: seconds back from now, a month unless given.

    Prices are of one accelerator: for an hour, reserved for a year, and to buy.
    """
    return await to._get(
        "/v1/cost/advice", kind=kind, project=project, since=since, reserve_price=reserve_price, buy_price=buy_price
    )
