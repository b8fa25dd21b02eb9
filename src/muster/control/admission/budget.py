"""Refuses a job that a hard budget does not cover, and amounts in another currency than the price book's."""

from __future__ import annotations

from typing import Final

from muster.control.admission.base import Context
from muster.control.admission.pools import open_pools
from muster.core.array import parse_array
from muster.core.budget_events import day_of
from muster.core.entities.budget import Budget, budgets_of, spender_of
from muster.core.entities.price_book import book_of, priced
from muster.core.money import format_amount, parse_amount
from muster.core.reasons import Reason, reason
from muster.core.spec import JobSpec, ask
from muster.core.state import State
from muster.cost.budgets import projected

BUDGET: Final = "budget"  # in `Context.pending`: ("budget", name) → amount that is committed before this job
_NAMED: Final = 3  # people that a message names


def check(spec: JobSpec, context: Context) -> Reason | None:
    state = context.state
    if (spec.budget or spec.max_hourly_cost) and (wrong := _other_currency(spec, state)):
        return wrong
    if not state.budgets:
        return None
    covering = _covering(spec, context)
    wanted = reserve_of(spec, context) * _count(spec) if covering else 0
    if not wanted:
        return None
    currency = book_of(state).currency
    before = context.pending
    for budget, period in covering:
        if budget.mode == "soft":
            continue
        if budget.currency != currency:
            message = f"budget {budget.name!r} is in {budget.currency}, and the price book is in {currency}"
            return reason("over_budget", message, "Have the budget set again in the currency of the price book.")
        pending = before.get((BUDGET, budget.name), 0) if before else 0
        if budget.left(period) - pending < wanted:
            return _refusal(budget, period, pending, wanted, state)
    return None


def reserve_of(spec: JobSpec, context: Context) -> int:
    """What one job, or one task of an array, is projected to cost."""
    state = context.state
    if not spec.num_nodes or not priced(state):
        return 0
    wants, pools = ask(spec), open_pools(context, spec)
    fits = {pool for pool, total in state.kinds if pool in pools and total.holds(wants)}
    return projected(state, spec, context.user, fits or pools, context.time, context.spent)


def claims(spec: JobSpec, context: Context) -> dict[tuple[str, str], int]:
    """What the job commits of each budget that covers it, for the jobs after it in the same proposal."""
    if not context.state.budgets:
        return {}
    wanted = reserve_of(spec, context) * _count(spec)
    return {(BUDGET, budget.name): wanted for budget, _ in _covering(spec, context)}


def warnings(state: State, spec: JobSpec, user: str, now: float) -> list[str]:
    """What the user should know of budgets that the job was accepted in."""
    found = []
    day = day_of(state, now) if state.budgets else ""
    for budget in budgets_of(state, spender_of(book_of(state), spec, user)) if state.budgets else ():
        period = budget.period_of(day)
        if period and budget.mode == "soft" and budget.left(period) < 0:
            over = format_amount(-budget.left(period), budget.currency)
            found.append(f"Budget {budget.name!r} is overdrawn by {over}, with what its jobs are projected to cost.")
    return found


def _covering(spec: JobSpec, context: Context) -> list[tuple[Budget, str]]:
    """The budgets in force that cover the job, each with its period."""
    state = context.state
    day = day_of(state, context.time)
    covering, names = budgets_of(state, spender_of(book_of(state), spec, context.user)), dict[str, str]()
    for budget in covering:
        if budget.period not in names and budget.period != "fixed":
            names[budget.period] = budget.period_of(day)
    periods = ((budget, names.get(budget.period) or budget.period_of(day)) for budget in covering)
    return [(budget, period) for budget, period in periods if period]


def _count(spec: JobSpec) -> int:
    return 1 if spec.array is None else len(parse_array(spec.array).indexes)


def _refusal(budget: Budget, period: str, pending: int, wanted: int, state: State) -> Reason:
    def money(amount: int) -> str:
        return format_amount(amount, budget.currency)

    limit, spent, left = budget.limit(period), budget.spent.get(period, 0), budget.left(period) - pending
    data = {"budget": budget.name, "period": period, "needs": wanted, "left": left, "currency": budget.currency}
    figures = ""
    if budget.project:  # others would learn from it what projects that they can't see have spent
        data |= {"limit": limit, "spent": spent, "committed": budget.committed + pending}
        committed = money(budget.committed + pending)
        figures = f": of {money(limit)}, {money(spent)} is spent and {committed} committed to other jobs"
    message = (
        f"it is projected to cost {money(wanted)}, and budget {budget.name!r} has {money(max(left, 0))} left{figures}"
    )
    missing = format_amount(wanted - left, budget.currency)
    grant = f'`muster cost grant {budget.name} "{missing}" --reason ...`'
    hint = (
        "Give it a shorter `max_duration` or a `budget`, wait for other jobs to end, or ask "
        f"{_granters(budget, state)} for {grant}."
    )
    return reason("over_budget", message, hint, **data)


def _granters(budget: Budget, state: State) -> str:
    project = state.projects.get(budget.project)
    members = project.members if project is not None else {}
    admins = [user for user, role in members.items() if role == "admin"]
    if not admins:
        return "an administrator of the server"
    return " or ".join(admins[:_NAMED]) + f" ({'an admin' if len(admins) == 1 else 'admins'} of {budget.project!r})"


def _other_currency(spec: JobSpec, state: State) -> Reason | None:
    for name in ("budget", "max_hourly_cost"):
        text = getattr(spec, name)
        named = parse_amount(text).currency if text is not None else ""
        if named and named != (currency := book_of(state).currency):
            message = f"`{name}: {text}` is in {named}, and the price book is in {currency}"
            return reason("other_currency", message, f"Write the amount in {currency}.", given=named, expected=currency)
    return None
