"""Budgets: list them, set one, remove one, and grant more for its present period."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Literal

from fastapi import Path
from pydantic import BaseModel, ConfigDict, Field

from muster.api.cost import BudgetList, BudgetRemovedView, BudgetSetView, BudgetView
from muster.control.budgets import find_budget, grant, read_amount, remarks, remove_budget, set_budget
from muster.core.entities.budget import Budget, scope_of
from muster.core.entities.price_book import book_of
from muster.core.errors import Conflict, Invalid, NotFound
from muster.core.state import State
from muster.cost.budgets import BudgetUse, budget_uses, use_of
from muster.server.auth import Identity
from muster.server.context import Caller, Leading
from muster.server.routes.access import USER
from muster.server.routes.cluster import NAME
from muster.server.typed_routes import needs, typed_router

router = typed_router(prefix="/v1/cost", tags=["cost"])

BudgetName = Annotated[str, Path(pattern=NAME, max_length=50)]
Label = Annotated[str, Field(max_length=100, pattern=r"^[^\x00]*$")]
Day = Annotated[str, Field(pattern=r"^([0-9]{4}-[0-9]{2}-[0-9]{2})?$")]


class BudgetBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    amount: str = Field(max_length=50, description="such as `5000 USD`; the price book's currency if none is named")
    project: str = Field("", pattern=rf"{NAME}|^$", description="empty parts of the scope cover all")
    family: Label = ""
    environment: Label = ""
    user: str = Field("", pattern=rf"{USER}|^$")
    per: Literal["week", "month", "fixed"] = "month"
    first: Day = Field("", description="of a fixed budget: its first day, as a date")
    last: Day = Field("", description="its last day")
    mode: Literal["soft", "hard", "stop"] = "hard"
    dry_run: bool = Field(False, description="only say what would follow")


class GrantBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    amount: str = Field(max_length=50)
    reason: str = Field(min_length=1, max_length=500, pattern=r"^[^\x00]*$")


@router.get("/budgets", openapi_extra=needs("anyone"))
def list_budgets(leader: Leading, caller: Caller) -> BudgetList:
    """The budgets of your projects, and those of yours in all projects."""
    now = leader.clock.now()

    def look(state: State) -> BudgetList:
        uses = budget_uses(state, now)
        shown = [budget for budget in state.budgets.values() if _sees(caller, state, budget)]
        return {"budgets": [_view(budget, uses.get(budget.name)) for budget in shown]}

    return leader.look(look)


@router.put("/budgets/{name}", openapi_extra=needs("admin"))
def put_budget(name: BudgetName, body: BudgetBody, leader: Leading, caller: Caller) -> BudgetSetView:
    """Makes or changes a budget: of a project by its admins, any other by an administrator of the server."""
    now, state = leader.clock.now(), leader.store.state()
    if body.project:
        caller.need(state, body.project, "admin")
        if body.project not in state.projects:
            raise NotFound(f"There is no project {body.project!r}.", "See `muster project ls`.")
    else:
        caller.need_superuser()
    _check_days(body)
    amount = read_amount(body.amount, state, "The amount")
    scope = (body.project, body.family, body.environment, body.user)
    budget = Budget(
        name, amount, book_of(state).currency, *scope, period=body.per, first=body.first, last=body.last, mode=body.mode
    )
    made: list[Budget] = []

    def may_set(state: State, one: Budget) -> None:
        try:
            _may_set(caller, state, one)
        except NotFound:
            raise Conflict(f"There is a budget {name!r} of others already.", "Choose another name.") from None

    leader.propose(set_budget(leader.store, leader.track, budget, caller.user, now, may_set, made, body.dry_run))

    def look(state: State) -> BudgetSetView:
        use = use_of(state, made[0], now)
        told = remarks(state, made[0], use.used, use.limit) if use is not None else []
        return {**_view(made[0], use), "applied": not body.dry_run, "warnings": told}

    return leader.look(look)


@router.delete("/budgets/{name}", openapi_extra=needs("admin"))
def delete_budget(name: BudgetName, leader: Leading, caller: Caller) -> BudgetRemovedView:
    leader.propose(remove_budget(name, caller.user, leader.clock.now(), lambda *about: _may_set(caller, *about)))
    return {"name": name}


@router.post("/budgets/{name}/grants", openapi_extra=needs("admin"))
def grant_more(name: BudgetName, body: GrantBody, leader: Leading, caller: Caller) -> BudgetView:
    """More money for the period that the budget is in, with the reason in the log. The next period has none of it."""
    now = leader.clock.now()
    leader.propose(
        grant(name, body.amount, body.reason, caller.user, now, lambda *about: _may_set(caller, *about))
    )  # fmt: skip

    def look(state: State) -> BudgetView:
        budget = find_budget(state, name)
        return _view(budget, use_of(state, budget, now))

    return leader.look(look)


def _sees(caller: Identity, state: State, budget: Budget) -> bool:
    if budget.project:
        return caller.role(state, budget.project) is not None
    return caller.token.superuser or budget.user == caller.user


def _may_set(caller: Identity, state: State, budget: Budget) -> None:
    """Raises NotFound for a budget that the caller can't see, so that it reveals nothing."""
    if not _sees(caller, state, budget):
        raise NotFound(f"There is no budget {budget.name!r} that you can see.", "See `muster cost budget ls`.")
    if budget.project:
        caller.need(state, budget.project, "admin")
    else:
        caller.need_superuser()


def _check_days(body: BudgetBody) -> None:
    if body.per != "fixed":
        if body.first or body.last:
            raise Invalid(f"A budget for each {body.per} has no first and last day.", "Leave them out, or `per`.")
        return
    try:
        first, last = date.fromisoformat(body.first), date.fromisoformat(body.last)
    except ValueError:
        raise Invalid(f"The days are {body.first!r} to {body.last!r}.", "Give two dates such as 2026-11-01.") from None
    if not 1971 <= first.year <= last.year <= 9000 or last < first:
        raise Invalid(f"The days are {first} to {last}.", "Give the first day, and a last day that is not before it.")


def _view(budget: Budget, use: BudgetUse | None) -> BudgetView:
    period = use.name if use is not None else ""
    spent = use.spent if use is not None else 0
    return {
        "name": budget.name,
        "scope": scope_of(budget),
        "mode": budget.mode,
        "per": budget.period,
        "first": budget.first,
        "last": budget.last,
        "currency": budget.currency,
        "amount": budget.amount,
        "period": period,
        "begin": use.period.begin if use is not None else None,
        "end": use.period.end if use is not None else None,
        "granted": budget.granted.get(period, 0),
        "limit": budget.limit(period),
        "spent": spent,
        "used": use.used if use is not None else 0,
        "committed": budget.committed,
        "left": budget.left(period),
        "forecast": use.forecast if use is not None else None,
    }
