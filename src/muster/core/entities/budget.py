"""A budget: how much money the jobs of a project, a family, an environment or a user may cost in a period.

`spent` is what ended attempts cost, by period. `committed` is what the jobs that are not over are projected to cost
yet: the sum of `Job.reserved` over the jobs that the budget covers, under the price book in force. Days, weeks and
months are those of the book's time zone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import date
from typing import TYPE_CHECKING, Final, Literal, NamedTuple
from zoneinfo import ZoneInfo

from muster.core.entities.base import EntityType, from_fields
from muster.core.period import Period, day_period, months, weeks
from muster.core.prices import PriceBook, environment_of, family_of

if TYPE_CHECKING:
    from muster.core.job import Job
    from muster.core.spec import JobSpec
    from muster.core.state_data import Changes, State

PeriodKind = Literal["week", "month", "fixed"]
BudgetMode = Literal["soft", "hard", "stop"]
FIXED: Final = "fixed"  # the name of the only period of a fixed budget
PARTS: Final = ("user", "family", "environment", "project")  # of a scope, those that fewer jobs match first
PERIODS_KEPT: Final = 14  # the ledger has those before
DAYS_KEPT: Final = 8  # enough for the pace of a week
_FAR: Final = 2.0**53  # a time after every period that is asked for


class Spender(NamedTuple):
    """Whose money it is: what the scopes of budgets are compared with."""

    project: str
    user: str
    family: str
    environment: str


@dataclass(frozen=True, slots=True)
class Budget:
    """An empty part of the scope covers all. Amounts are millionths of the currency."""

    name: str
    amount: int
    currency: str
    project: str = ""
    family: str = ""
    environment: str = ""
    user: str = ""
    period: PeriodKind = "month"
    first: str = ""  # of a fixed budget: its first day and its last, as dates
    last: str = ""
    mode: BudgetMode = "hard"
    spent: dict[str, int] = field(default_factory=dict)  # period → amount
    granted: dict[str, int] = field(default_factory=dict)  # period → amount on top of the budget's own
    days: dict[str, int] = field(default_factory=dict)  # the last days with costs → amount
    committed: int = 0

    def covers(self, spender: Spender) -> bool:
        return (
            self.project in ("", spender.project)
            and self.family in ("", spender.family)
            and self.environment in ("", spender.environment)
            and self.user in ("", spender.user)
        )

    def period_of(self, day: str) -> str:
        """The name of the period that a day is in; "" for a day in which a fixed budget is not in force."""
        if self.period == "month":
            return day[:7]
        if self.period == "week":
            year, week, _ = date.fromisoformat(day).isocalendar()
            return f"{year:04d}-W{week:02d}"
        return FIXED if self.first <= day <= self.last else ""

    def bounds(self, period: str, zone: ZoneInfo) -> Period:
        if self.period == "fixed":
            return day_period(self.first, self.last, zone)
        return (months if self.period == "month" else weeks)(period, _FAR, zone, 0)[-1]

    def limit(self, period: str) -> int:
        return self.amount + self.granted.get(period, 0)

    def left(self, period: str) -> int:
        """What is neither spent nor committed; negative if it is overdrawn."""
        return self.amount + self.granted.get(period, 0) - self.spent.get(period, 0) - self.committed


class _BudgetType(EntityType[Budget]):
    """Keeps the index of the state, by which the budgets of a job are found without looking at all."""

    def load(self, state: State, name: str, entity: Budget) -> None:
        known = state.budgets.get(name)
        if known is None or _place(known) != _place(entity):
            self._forget(state, name)
            state.budget_index.setdefault(_place(entity), {})[name] = None
        super().load(state, name, entity)

    def drop(self, state: State, name: str, changes: Changes) -> None:
        self._forget(state, name)
        super().drop(state, name, changes)

    def _forget(self, state: State, name: str) -> None:
        known = state.budgets.get(name)
        if known is not None:
            names = state.budget_index[_place(known)]
            del names[name]
            if not names:
                del state.budget_index[_place(known)]


BUDGETS = _BudgetType("budget", from_fields(Budget), place=lambda state: state.budgets)


def budgets_of(state: State, spender: Spender) -> list[Budget]:
    """The budgets that cover the spender."""
    index, budgets = state.budget_index, state.budgets
    places = [(part, getattr(spender, part)) for part in PARTS]
    some = [budgets[name] for place in places for name in index.get(place, ())]
    found = [budget for budget in some if budget.covers(spender)]
    found += [budgets[name] for name in index.get(("", ""), ())]
    return found


def spender_of(book: PriceBook, spec: JobSpec, user: str) -> Spender:
    return Spender(spec.project, user, family_of(book, spec, user), environment_of(book, spec, user))


def commit_amount(state: State, book: PriceBook, job: Job, amount: int, changes: Changes) -> None:
    """Adds to what is reserved for a job, in all budgets that cover it; less if the amount is negative."""
    job.reserved += amount
    for budget in budgets_of(state, spender_of(book, job.spec, job.user)) if amount and state.budgets else ():
        BUDGETS.put(state, budget.name, replace(budget, committed=budget.committed + amount), changes)


def commit_again(state: State, book: PriceBook, changes: Changes) -> None:
    """Computes what is committed anew, since another price book may put jobs into other families."""
    held = dict.fromkeys(state.budgets, 0)
    for job in state.jobs.values() if held else ():
        for budget in budgets_of(state, spender_of(book, job.spec, job.user)) if job.reserved else ():
            held[budget.name] += job.reserved
    for name, amount in held.items():
        if amount != state.budgets[name].committed:
            BUDGETS.put(state, name, replace(state.budgets[name], committed=amount), changes)


def scope_of(budget: Budget) -> dict[str, str]:
    """The parts of its scope that are not empty."""
    return {part: value for part in reversed(PARTS) if (value := getattr(budget, part))}


def _place(budget: Budget) -> tuple[str, str]:
    """Where the index has it: under the part of its scope that fewest jobs match."""
    return next(((part, value) for part in PARTS if (value := getattr(budget, part))), ("", ""))


def newest(amounts: Mapping[str, int], most: int) -> dict[str, int]:
    return dict(sorted(amounts.items())[-most:])
