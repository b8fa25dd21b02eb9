"""Keeps what is committed of budgets up to date, and stops jobs of budgets of mode `stop` before the money is spent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from muster.control.background import Background
from muster.control.clock import Clock
from muster.core.budget_events import JobReserved
from muster.core.entities.budget import budgets_of, spender_of
from muster.core.entities.price_book import prices_of
from muster.core.event import SYSTEM, Event
from muster.core.job import Job
from muster.core.job_events import JobStopped, JobStopping
from muster.core.money import format_amount
from muster.core.reasons import Reason, reason
from muster.core.state import State
from muster.cost.budgets import BudgetUse, budget_uses, projected_rest, victims
from muster.cost.charge import accrued_at
from muster.store.base import Entry
from muster.store.commit import Commit

EVERY: Final = 5.0  # seconds between two looks
LESS: Final = 0.8  # a projection that falls below this part of what is reserved replaces it


class BudgetWatch:
    """A thread beside the control loop."""

    def __init__(self, commit: Commit, clock: Clock, may_act: Callable[[], bool]) -> None:
        self._commit, self._clock = commit, clock
        self._thread = Background("budgets", self.look, may_act, lambda took: max(EVERY, 10 * took))

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._thread.close()

    def look(self) -> None:
        now = self._clock.now()
        self._commit.submit(lambda state: Entry([*reserve_changes(state, now), *budget_stops(state, now)])).result()


def reserve_changes(state: State, now: float) -> list[Event]:
    """Other projections for running jobs that have cost more than was reserved, or that run for a lower price."""
    prices = prices_of(state)
    if not state.budgets or not prices.any:
        return []
    found = []
    for job in map(state.jobs.__getitem__, state.active):
        if not budgets_of(state, spender_of(prices.book, job.spec, job.user)):
            continue
        rest = projected_rest(state, prices, job, now)
        if accrued_at(prices, job, now) > job.reserved or rest < LESS * job.reserved:
            found.append(_event(JobReserved(rest), job, now))
    return found


def budget_stops(state: State, now: float) -> list[Event]:
    """The stops that budgets of mode `stop` ask for now, the least valuable job first."""
    if not any(budget.mode == "stop" for budget in state.budgets.values()):
        return []
    found: dict[str, Event] = {}
    for use in budget_uses(state, now).values():
        if use.budget.mode != "stop":
            continue
        for job in victims(state, use, list(_covered(state, use)), now):
            found.setdefault(job.id, _stop(job, use, now))
    return list(found.values())


def _covered(state: State, use: BudgetUse) -> Iterator[Job]:
    """Running jobs of the budget; queued ones too if nothing of it is left."""
    book = prices_of(state).book
    ids = list(state.active)
    if use.used >= use.limit:
        ids += [job for line in state.lines.values() for job in line]
    for job in map(state.jobs.__getitem__, ids):
        if use.budget.covers(spender_of(book, job.spec, job.user)):
            yield job


def _stop(job: Job, use: BudgetUse, now: float) -> Event:
    why = _why(use)
    data = JobStopping(why, "stopped", job.spec.stop_grace) if job.active else JobStopped(why)
    return _event(data, job, now)


def _why(use: BudgetUse) -> Reason:
    used, limit = (format_amount(amount, use.budget.currency) for amount in (use.used, use.limit))
    name = use.budget.name
    figures = f": {used} of {limit}" if use.budget.project else ""
    return reason(
        "budget_spent",
        f"budget {name!r} is spent in {use.name}, or will be before it could save{figures}",
        budget=name,
        period=use.name,
    )


def _event(data: JobReserved | JobStopped | JobStopping, job: Job, now: float) -> Event:
    return Event(data, now, SYSTEM, job.project, job.id, job.attempt.number if job.attempt is not None else 0)
