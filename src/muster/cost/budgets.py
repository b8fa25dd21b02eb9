"""Projected and running costs against budgets: what a job may cost, what is used of each budget, what is stopped first.

When a budget of mode `stop` has so little left that it does not last until the next look and the time to save, jobs are
stopped until it does for the others, the least valuable first: the lowest priority, then the one that loses the least
accelerator time since its last checkpoint, then the one that started last.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import date, timedelta
from typing import Final, NamedTuple
from zoneinfo import ZoneInfo

from muster.core.budget_events import day_of, days_of, in_force
from muster.core.entities.budget import Budget, budgets_of, spender_of
from muster.core.entities.price_book import book_zone, prices_of
from muster.core.history import groups_of
from muster.core.job import Job
from muster.core.money import parse_amount
from muster.core.period import Period
from muster.core.prices import HOUR, SECOND, Prices, Quantity, quantity
from muster.core.spec import JobSpec, ask
from muster.core.state import State
from muster.cost.charge import accrued_at, live_lines

LIKELY: Final = 0.9  # a job is projected to run as long as this share of similar ones did not exceed
OVERRUN: Final = 0.5  # one that has run longer goes on for this part of its time so far
PACE_DAYS: Final = 7
LOOK: Final = 10.0  # seconds until costs are looked at again, at most
_MILLI: Final = 1000
_FAR: Final = 30 * 24 * HOUR  # microseconds in which a change of prices is looked for


class BudgetUse(NamedTuple):
    """A budget in its present period. `used` is what is spent, with what running attempts have cost so far."""

    budget: Budget
    period: Period
    name: str  # of the period
    limit: int
    spent: int
    used: int
    left: int
    forecast: int  # what is used by the end of the period, at the pace of the last days

    @property
    def share(self) -> float:
        return _share(self.used, self.limit)

    @property
    def forecast_share(self) -> float:
        return _share(self.forecast, self.limit)


def amount_of(text: str | None) -> int | None:
    """The amount that a job file gives, in millionths."""
    return None if text is None else parse_amount(text).micros


def projected(state: State, spec: JobSpec, user: str, pools: Iterable[str], now: float, spent: int = 0) -> int:
    """What one job is projected to cost, in the dearest of the pools that it may start in.

    Its time is its `max_duration`, else what similar jobs needed, else `assumed_run` of the price book. It costs no
    more than the rest of its own `budget`.
    """
    prices = prices_of(state)
    if not spec.num_nodes or not prices.any:
        return 0
    held, cap = quantity(ask(spec), spec.num_nodes), amount_of(spec.max_hourly_cost)
    rates = [prices.hourly(pool, held, now) or 0 for pool in pools]
    rate = max([one for one in rates if cap is None or one <= cap] or rates, default=0)
    total = _for(rate, expected_seconds(state, spec, user, prices.book.assumed_run))
    budget = amount_of(spec.budget)
    return total if budget is None else min(total, max(budget - spent, 0))


def expected_seconds(state: State, spec: JobSpec, user: str, assumed: float) -> float:
    if spec.max_duration is not None:
        return spec.max_duration
    return state.history.quantile(groups_of(user, spec), LIKELY) if state.history.known else assumed


def projected_rest(state: State, prices: Prices, job: Job, now: float) -> int:
    """What the running attempt has cost so far, and will until the job is projected to end."""
    attempt = job.attempt
    assert attempt is not None
    rate = prices.hourly(attempt.pool, held_by(job), now) or 0
    ran = job.ran + (now - attempt.running_at if attempt.running_at is not None else 0.0)
    rest = expected_seconds(state, job.spec, job.user, prices.book.assumed_run) - ran
    cost = accrued_at(prices, job, now)
    total = cost + _for(rate, rest if rest > 0 else OVERRUN * ran)
    budget = amount_of(job.spec.budget)
    return total if budget is None else max(cost, min(total, budget - job.spent))


def spent_at(prices: Prices, job: Job, now: float) -> float | None:
    """When the job's own `budget` will be spent at the latest prices; None if it never will, as far as is known."""
    budget, attempt = amount_of(job.spec.budget), job.attempt
    if budget is None or attempt is None or not job.active:
        return None
    left = budget - job.spent - accrued_at(prices, job, now)
    if left <= 0:
        return now
    begin = round(now * SECOND)
    span = next(prices.spans(attempt.pool, held_by(job), begin, begin + _FAR))
    changes = span.end / SECOND
    return min(changes, now + left * 1000 * 3600 / span.nanos) if span.nanos else changes


def held_by(job: Job) -> Quantity:
    return quantity(job.ask, len(job.attempt.workers) if job.attempt is not None else job.spec.num_nodes)


# --- budgets ----------------------------------------------------------------------------------------------------------
def budget_uses(state: State, now: float) -> dict[str, BudgetUse]:
    """The budgets in force, by name."""
    current = list(in_force(state, now))
    if not current:
        return {}
    zone, today = book_zone(state), day_of(state, now)
    live = live_days(state, now, zone)
    return {budget.name: _use(budget, name, live.get(budget.name, {}), zone, today, now) for budget, name in current}


def use_of(state: State, budget: Budget, now: float) -> BudgetUse | None:
    """A budget that need not be in the state; None if it is not in force."""
    zone, today, prices = book_zone(state), day_of(state, now), prices_of(state)
    live: dict[str, int] = {}
    for job in map(state.jobs.__getitem__, state.active):
        if budget.covers(spender_of(prices.book, job.spec, job.user)):
            for day, amount in days_of(live_lines(prices, job, now), zone).items():
                live[day] = live.get(day, 0) + amount
    name = budget.period_of(today)
    return _use(budget, name, live, zone, today, now) if name else None


def live_days(state: State, now: float, zone: ZoneInfo) -> dict[str, dict[str, int]]:
    """What running attempts have cost so far: budget → day → amount."""
    found: dict[str, dict[str, int]] = {}
    prices = prices_of(state)
    for job in map(state.jobs.__getitem__, state.active):
        covering = budgets_of(state, spender_of(prices.book, job.spec, job.user))
        for day, amount in days_of(live_lines(prices, job, now), zone).items() if covering else ():
            for budget in covering:
                days = found.setdefault(budget.name, {})
                days[day] = days.get(day, 0) + amount
    return found


def _use(budget: Budget, name: str, live: Mapping[str, int], zone: ZoneInfo, today: str, now: float) -> BudgetUse:
    period, limit, spent = budget.bounds(name, zone), budget.limit(name), budget.spent.get(name, 0)
    used = spent + sum(amount for day, amount in live.items() if budget.period_of(day) == name)
    since = (date.fromisoformat(today) - timedelta(days=PACE_DAYS - 1)).isoformat()
    days = {day for day in {*budget.days, *live} if day >= since}
    lately = sum(budget.days.get(day, 0) + live.get(day, 0) for day in days)
    first = min(days, default=today)
    past = (date.fromisoformat(today) - date.fromisoformat(first)).days + 1
    rest = max(period.end - now, 0.0)
    forecast = used + int(lately / (past * 86_400) * rest)
    return BudgetUse(budget, period, name, limit, spent, used, budget.left(name), forecast)


def victims(state: State, use: BudgetUse, jobs: Sequence[Job], now: float) -> list[Job]:
    """The jobs of the budget that are stopped now, the least valuable first. Queued ones if all of it is spent."""
    prices, left = prices_of(state), use.limit - use.used
    kept = 0
    stopped: list[Job] = []
    for job in sorted((one for one in jobs if one.active), key=lambda one: value_of(one, now), reverse=True):
        assert job.attempt is not None
        if job.stop is not None and job.stop.then == "stopped":
            kept += _for(prices.hourly(job.attempt.pool, held_by(job), now) or 0, LOOK)
            continue
        needs = _for(prices.hourly(job.attempt.pool, held_by(job), now) or 0, LOOK + job.spec.stop_grace)
        if kept + needs <= left:
            kept += needs
        else:
            stopped.append(job)
    queued = [job for job in jobs if job.phase == "queued"] if left <= 0 else []
    return [*queued, *reversed(stopped)]


def value_of(job: Job, now: float) -> tuple[float, ...]:
    """By what jobs are kept: the higher, the longer."""
    attempt, mark = job.attempt, job.checkpoint
    assert attempt is not None
    begun = attempt.running_at if attempt.running_at is not None else now
    saved = max(begun, mark.time) if mark is not None else begun
    unsaved = (now - saved) * (job.ask.weight or 1.0) * len(attempt.workers)
    return (float(job.priority), unsaved, -attempt.planned_at, -float(job.number))


def _for(rate: int, seconds: float) -> int:
    """The cost of so much time, rounded up."""
    return -(-rate * round(seconds * _MILLI) // (3600 * _MILLI))


def _share(part: int, whole: int) -> float:
    return part / whole if whole > 0 else float(part > 0)
