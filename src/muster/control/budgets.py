"""What people do with budgets, as proposals: set one, remove one, and grant more for its present period."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from muster.core.budget_events import (
    BudgetGranted,
    BudgetRemoved,
    BudgetSet,
    correction_days,
    day_of,
    days_of,
)
from muster.core.cost_events import AttemptCharged, CostCorrected
from muster.core.entities.budget import Budget, Spender, scope_of
from muster.core.entities.price_book import book_of, book_zone, prices_of
from muster.core.errors import Conflict, Invalid, NotFound
from muster.core.event import Event
from muster.core.job import Job
from muster.core.money import format_amount, parse_amount
from muster.core.state import State
from muster.core.units import InvalidValue
from muster.store.base import Entry, EventFilter, JobFilter, Proposal, Store
from muster.track.budget_rows import costs_by_day
from muster.track.tracking import Tracking

COSTS: Final = "costs"  # the follower that writes the ledger's rows
BUDGETS_MAX: Final = 10_000
_PAGE: Final = 1000
_PACE: Final = timedelta(days=7)

MaySet = Callable[[State, Budget], None]  # raises NotAllowed or NotFound


@dataclass(frozen=True, slots=True)
class KnownCosts:
    """What the ledger's rows have of a budget, and up to which event."""

    seq: int
    days: Mapping[str, int]


def read_amount(text: str, state: State, where: str) -> int:
    """Millionths of the price book's currency. Raises Invalid for another currency, and for 0."""
    currency = book_of(state).currency
    try:
        found = parse_amount(text)
    except InvalidValue as error:
        raise Invalid(f"{where}: got {text!r}.", error.hint) from None
    if found.currency not in ("", currency):
        raise Invalid(f"{where}: {text!r} is in {found.currency}, and the price book is in {currency}.",
                      f"Write the amount in {currency}.")  # fmt: skip
    if not found.micros:
        raise Invalid(f"{where}: got {text!r}.", f"Write an amount above 0, such as `500 {currency}`.")
    return found.micros


def known_costs(store: Store, track: Tracking | None, budget: Budget, now: float) -> KnownCosts:
    """Read before the commit. What follows is read from the log in it."""
    if track is None:
        return KnownCosts(0, {})
    since = _since(budget, day_of(store.state(), now))
    while True:  # the rows and their mark are written together, and read one after the other
        before = store.marks().get(COSTS, 0)
        with track.db.reading() as connection:
            days = costs_by_day(connection, scope_of(budget), budget.currency, since)
        if store.marks().get(COSTS, 0) == before:
            return KnownCosts(before, days)


def set_budget(
    store: Store, track: Tracking | None, budget: Budget, actor: str, now: float, may_set: MaySet, found: list[Budget],
    dry_run: bool = False,
) -> Proposal:  # fmt: skip
    """Makes or changes a budget. `may_set` is asked about it, and about the one that it replaces.

    `found` gets the budget as it is then; with `dry_run` nothing else happens.
    """
    known = known_costs(store, track, budget, now)

    def propose(state: State) -> Entry:
        may_set(state, budget)
        old = state.budgets.get(budget.name)
        if old is not None:
            may_set(state, old)
        elif len(state.budgets) >= BUDGETS_MAX:
            raise Conflict(f"There are {BUDGETS_MAX:,} budgets, and no more can be made.", "Remove some of them.")
        today = day_of(state, now)
        days = _days_since(store, state, budget, known)
        period = budget.period_of(today)
        spent = sum(amount for day, amount in days.items() if budget.period_of(day) == period)
        made = BudgetSet(
            budget.name, budget.amount, budget.currency, scope_of(budget), budget.period, budget.first, budget.last,
            budget.mode, {period: spent} if period and spent else {},
            {day: amount for day, amount in days.items() if day >= _since_day(today)},
        )  # fmt: skip
        found[:] = [made.folded(state)]
        return Entry([] if dry_run else [Event(made, max(now, state.time), actor, budget.project)])

    return propose


def remove_budget(name: str, actor: str, now: float, may_set: MaySet) -> Proposal:
    def propose(state: State) -> Entry:
        budget = find_budget(state, name)
        may_set(state, budget)
        return Entry([Event(BudgetRemoved(name), max(now, state.time), actor, budget.project)])

    return propose


def grant(name: str, amount: str, why: str, actor: str, now: float, may_set: MaySet) -> Proposal:
    """More money for the period that the budget is in now."""

    def propose(state: State) -> Entry:
        budget = find_budget(state, name)
        may_set(state, budget)
        micros = read_amount(amount, state, "The grant")
        period = budget.period_of(day_of(state, max(now, state.time)))
        if not period:
            raise Invalid(f"Budget {name!r} is in force from {budget.first} to {budget.last}.", "Set other days.")
        return Entry([Event(BudgetGranted(name, period, micros, why), max(now, state.time), actor, budget.project)])

    return propose


def find_budget(state: State, name: str) -> Budget:
    found = state.budgets.get(name)
    if found is None:
        raise NotFound(f"There is no budget {name!r} that you can see.", "See `muster cost budget ls`.")
    return found


def remarks(state: State, budget: Budget, used: int, limit: int) -> list[str]:
    """What whoever sets the budget should know."""
    found = []
    if not prices_of(state).any:
        found.append("Nothing has a price yet, so nothing counts: see `muster cost prices`.")
    if used > limit:
        effect = {
            "soft": "jobs are accepted with a warning",
            "hard": "jobs are refused from now on",
            "stop": "jobs are refused, and its running jobs save and are stopped, from now on",
        }[budget.mode]
        spent, most = format_amount(used, budget.currency), format_amount(limit, budget.currency)
        found.append(f"{spent} is spent in this period already, more than {most}: {effect}.")
    elif budget.committed + used > limit and budget.mode != "soft":
        committed = format_amount(budget.committed, budget.currency)
        found.append(
            f"Its jobs are projected to cost {committed} yet, more than is left: others are refused until then."
        )
    return found


def _days_since(store: Store, state: State, budget: Budget, known: KnownCosts) -> dict[str, int]:
    """The known costs with those of events that follow, up to the state."""
    days, zone = dict(known.days), book_zone(state)
    for kind in ("attempt.charged", "cost.corrected"):
        after = known.seq
        while True:
            page = store.events(EventFilter(kind=kind, after=after, limit=_PAGE))
            found = {one.id: one for one in _jobs(store, page)}
            for event in page:
                if (whose := _whose(event, found.get(event.job))) and budget.covers(whose):
                    for day, amount in _by_day(event, budget.currency, zone).items():
                        days[day] = days.get(day, 0) + amount
            if len(page) < _PAGE:
                break
            after = page[-1].seq
    since = _since(budget, day_of(state, state.time))
    return {day: amount for day, amount in days.items() if day >= since}


def _jobs(store: Store, events: list[Event]) -> list[Job]:
    ids = list({event.job for event in events})
    return store.jobs(JobFilter(ids=ids, limit=len(ids))) if ids else []


def _whose(event: Event, job: Job | None) -> Spender | None:
    data = event.data
    if isinstance(data, CostCorrected):
        return Spender(event.project, data.user, data.family, data.environment)
    if isinstance(data, AttemptCharged):
        return Spender(event.project, job.user if job is not None else "", data.family, data.environment)
    return None


def _by_day(event: Event, currency: str, zone: ZoneInfo) -> dict[str, int]:
    data = event.data
    if isinstance(data, AttemptCharged) and data.currency == currency:
        return days_of(data.lines, zone)
    if isinstance(data, CostCorrected) and data.currency == currency:
        return correction_days(data.amount, data.lines, zone)
    return {}


def _since(budget: Budget, today: str) -> str:
    """The first day that counts: of the period, or for the pace."""
    if budget.period == "fixed":
        return min(budget.first, _since_day(today))
    day = date.fromisoformat(today)
    first = day.replace(day=1) if budget.period == "month" else day - timedelta(days=day.weekday())
    return min(first.isoformat(), _since_day(today))


def _since_day(today: str) -> str:
    return (date.fromisoformat(today) - _PACE).isoformat()
