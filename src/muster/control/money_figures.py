"""What the alert signals of money read: budgets, the hourly cost of running jobs, and what projects usually cost."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, timedelta
from typing import Final

from muster.core.budget_events import day_of
from muster.core.entities.price_book import book_of, prices_of
from muster.core.money import MICRO, format_amount
from muster.core.state import State
from muster.cost.budgets import BudgetUse, budget_uses, held_by
from muster.monitor.alerts.signals.base import BudgetFigures, Money
from muster.store.base import Store
from muster.track.budget_rows import project_costs
from muster.track.tracking import Tracking

EVERY: Final = 600.0  # seconds for which the usual costs are kept
DAYS: Final = 7
DAYS_LEAST: Final = 3  # days with costs before a project has something usual


def money_of(state: State, usual: Mapping[str, float], now: float) -> Money:
    """Empty where nothing has a price."""
    prices = prices_of(state)
    if not prices.any:
        return Money()
    running = [job for name in state.active if (job := state.jobs[name]).attempt is not None]
    hourly = {
        job.id: cost / MICRO
        for job in running
        if job.attempt is not None and (cost := prices.hourly(job.attempt.pool, held_by(job), now))
    }
    budgets = {name: _figures(use) for name, use in budget_uses(state, now).items()}
    return Money(budgets, hourly, usual, prices.book.currency)


class UsualCosts:
    """What each project pays for a mean hour of the last days, from the ledger's rows."""

    def __init__(self, store: Store, track: Tracking | None) -> None:
        self._store, self._track = store, track
        self._read_at: float | None = None
        self._found: Mapping[str, float] = {}

    def at(self, now: float) -> Mapping[str, float]:
        if self._track is not None and (self._read_at is None or not 0 <= now - self._read_at < EVERY):
            self._read_at, self._found = now, self._read(self._track, now)
        return self._found

    def _read(self, track: Tracking, now: float) -> Mapping[str, float]:
        state = self._store.state()
        until = day_of(state, now)
        since = (date.fromisoformat(until) - timedelta(days=DAYS)).isoformat()
        with track.db.reading() as connection:
            found = project_costs(connection, book_of(state).currency, since, until)
        return {
            project: amount / MICRO / (DAYS * 24)
            for project, (amount, days) in found.items()
            if days >= DAYS_LEAST and amount > 0
        }


def _figures(use: BudgetUse) -> BudgetFigures:
    texts = {"used": use.used, "limit": use.limit, "left": use.left, "forecast": use.forecast}
    facts = {name: format_amount(amount, use.budget.currency) for name, amount in texts.items()}
    facts |= {"period": use.name, "mode": use.budget.mode}
    return BudgetFigures(use.budget.project, use.share, use.forecast_share, facts)
