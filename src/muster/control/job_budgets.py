"""Stops jobs whose own `budget` is spent. It knows when that will be, so that the loop wakes in time."""

from __future__ import annotations

from collections.abc import Iterable
from math import inf

from muster.core.entities.price_book import PRICE_BOOKS, prices_of
from muster.core.event import SYSTEM, Event
from muster.core.job import Job
from muster.core.job_events import JobStopped, JobStopping
from muster.core.money import format_amount
from muster.core.reasons import Reason, reason
from muster.core.state import State
from muster.cost.budgets import amount_of, spent_at


class JobBudgets:
    def __init__(self) -> None:
        self._due: dict[str, float] = {}  # running job with a budget → when to look at it
        self._prices: tuple[object, object] = (None, None)  # those that the times were computed with

    def next_due(self) -> float | None:
        return min(self._due.values()) if self._due else None

    def track(self, state: State, changed: Iterable[str], now: float) -> None:
        """Computes when the budgets of these jobs will be spent. Another price changes it for all."""
        rules, book = state.in_force, PRICE_BOOKS.all(state).get("")
        if rules is not self._prices[0] or book is not self._prices[1]:
            self._prices, changed = (rules, book), {*changed, *self._due}
        for name in changed:
            if self._due:
                self._due.pop(name, None)
            job = state.jobs.get(name)
            if job is not None and (due := _due_at(state, job, now)) is not None:
                self._due[name] = due

    def look(self, state: State, now: float) -> list[Event]:
        """The stops that are due now."""
        due = sorted([name for name, at in self._due.items() if at <= now]) if self._due else []
        if not due:
            return []
        self.track(state, due, now)
        return [_stop(state.jobs[name], now) for name in due if self._due.get(name, inf) <= now]


def _due_at(state: State, job: Job, now: float) -> float | None:
    if job.spec.budget is None or (job.stop is not None and job.stop.then == "stopped"):
        return None
    if job.phase == "queued":
        return now if job.attempt is not None and job.spent >= (amount_of(job.spec.budget) or 0) else None
    return spent_at(prices_of(state), job, now)


def _stop(job: Job, now: float) -> Event:
    grace = job.spec.stop_grace
    data = JobStopped(_why(job)) if job.phase == "queued" else JobStopping(_why(job), "stopped", grace)
    return Event(data, now, SYSTEM, job.project, job.id, job.attempt.number if job.attempt is not None else 0)


def _why(job: Job) -> Reason:
    message = f"it has spent its `budget` of {job.spec.budget}"
    if job.spent:
        message += f"; its earlier attempts cost {format_amount(job.spent)}"
    return reason("job_budget_spent", message, budget=amount_of(job.spec.budget), spent=job.spent)
