"""The events of budgets, and how charges and projected costs of jobs change them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from datetime import datetime
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from muster.core.entities.budget import (
    BUDGETS,
    DAYS_KEPT,
    PERIODS_KEPT,
    Budget,
    BudgetMode,
    PeriodKind,
    Spender,
    budgets_of,
    commit_amount,
    newest,
    spender_of,
)
from muster.core.entities.price_book import book_of, book_zone
from muster.core.money import divide
from muster.core.payload import Payload, payload
from muster.core.period import local_days

if TYPE_CHECKING:
    from muster.core.event import Event
    from muster.core.job import Job
    from muster.core.state_data import Changes, State


@payload("budget.set")
class BudgetSet(Payload):
    """A budget was made or changed: the whole record. `spent` and `days` say what the ledger has of it by then."""

    name: str
    amount: int
    currency: str
    scope: dict[str, str]
    period: PeriodKind = "month"
    first: str = ""
    last: str = ""
    mode: BudgetMode = "hard"
    spent: dict[str, int] = field(default_factory=dict)
    days: dict[str, int] = field(default_factory=dict)

    def fold(self, state: State, event: Event, changes: Changes) -> None:
        BUDGETS.put(state, self.name, self.folded(state), changes)

    def folded(self, state: State) -> Budget:
        """The budget that it makes of what is in the state."""
        made = self.budget()
        known = state.budgets.get(self.name)
        if known is not None and known.period == made.period:
            made = replace(made, granted=known.granted)
        book = book_of(state)
        covered = [job for job in state.jobs.values() if made.covers(spender_of(book, job.spec, job.user))]
        held = sum(job.reserved for job in covered)
        return replace(made, committed=held)

    def budget(self) -> Budget:
        said = self.scope.get
        return Budget(
            self.name,
            self.amount,
            self.currency,
            *(said("project", ""), said("family", ""), said("environment", ""), said("user", "")),
            period=self.period,
            first=self.first,
            last=self.last,
            mode=self.mode,
            spent=newest(self.spent, PERIODS_KEPT),
            days=newest(self.days, DAYS_KEPT),
        )


@payload("budget.removed")
class BudgetRemoved(Payload):
    """A budget is no longer in force."""

    name: str

    def fold(self, state: State, event: Event, changes: Changes) -> None:
        BUDGETS.drop(state, self.name, changes)


@payload("budget.granted")
class BudgetGranted(Payload):
    """More money for one period of a budget, and why; a negative amount takes some of it back."""

    name: str
    period: str
    amount: int
    why: str

    def fold(self, state: State, event: Event, changes: Changes) -> None:
        known = state.budgets.get(self.name)
        if known is not None:
            granted = {**known.granted, self.period: known.granted.get(self.period, 0) + self.amount}
            BUDGETS.put(state, self.name, replace(known, granted=newest(granted, PERIODS_KEPT)), changes)


@payload("job.reserved")
class JobReserved(Payload):
    """What a job that is not over is projected to cost yet: it runs longer than was expected, or for another price."""

    amount: int

    def fold(self, state: State, event: Event, changes: Changes) -> None:
        job = state.jobs.get(event.job)
        if job is not None:
            commit_money(state, job, self.amount - job.reserved, changes)
            changes.touch(job)


# --- for the folds of other events ------------------------------------------------------------------------------------
def commit_money(state: State, job: Job, amount: int, changes: Changes) -> None:
    """Adds to what is reserved for a job; less if the amount is negative."""
    if amount:
        commit_amount(state, book_of(state), job, amount, changes)


def spend_money(state: State, spender: Spender, currency: str, by_day: Mapping[str, int], changes: Changes) -> None:
    """Adds costs to what is spent of all budgets of that currency that cover them."""
    covering = budgets_of(state, spender) if by_day and state.budgets else ()
    for budget in [one for one in covering if one.currency == currency]:
        spent, days = dict(budget.spent), dict(budget.days)
        for day, amount in by_day.items():
            if period := budget.period_of(day):
                spent[period] = spent.get(period, 0) + amount
                days[day] = days.get(day, 0) + amount
        made = replace(budget, spent=newest(spent, PERIODS_KEPT), days=newest(days, DAYS_KEPT))
        BUDGETS.put(state, budget.name, made, changes)


def days_of(lines: Iterable[Sequence[int | str]], zone: ZoneInfo) -> dict[str, int]:
    """What the project pays of the lines of a charge, by day; as the ledger divides it."""
    found: dict[str, int] = {}
    for begin, end, _, cost, platform, *_ in lines:
        if not platform and cost:
            cuts = list(local_days(int(begin), int(end), zone))
            for (day, _, _), part in zip(cuts, divide(int(cost), [b - a for _, a, b in cuts]), strict=True):
                found[day] = found.get(day, 0) + part
    return found


def correction_days(amount: int, lines: Iterable[Sequence[int | str]], zone: ZoneInfo) -> dict[str, int]:
    """A difference by day, in proportion to the lines as they should have been."""
    days = days_of(lines, zone)
    if not days:
        begins = [int(line[0]) for line in lines][:1]
        days = {next(local_days(begin, begin + 1, zone))[0]: 0 for begin in begins}
    return dict(zip(days, divide(amount, list(days.values())), strict=True)) if days else {}


# --- periods ----------------------------------------------------------------------------------------------------------
def day_of(state: State, now: float) -> str:
    return datetime.fromtimestamp(now, book_zone(state)).date().isoformat()


def in_force(state: State, now: float) -> Iterator[tuple[Budget, str]]:
    """The budgets in force, each with the name of its period."""
    day = day_of(state, now)
    for budget in list(state.budgets.values()):
        if period := budget.period_of(day):
            yield budget, period
