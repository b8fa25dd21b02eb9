"""What the ledger's rows say of a budget: what its jobs cost on each day."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Connection, func, select

from muster.store.cost_tables import cost_days


def costs_by_day(connection: Connection, scope: Mapping[str, str], currency: str, since: str) -> dict[str, int]:
    """Day → amount that projects pay for attempts, from this day on. An empty scope is everything."""
    query = select(cost_days.c.day, func.sum(cost_days.c.amount)).group_by(cost_days.c.day)
    query = query.where(cost_days.c.account == "project", cost_days.c.currency == currency, cost_days.c.day >= since)
    for part, value in scope.items():
        query = query.where(cost_days.c[part] == value)
    return {day: int(amount) for day, amount in connection.execute(query)}


def project_costs(connection: Connection, currency: str, since: str, until: str) -> dict[str, tuple[int, int]]:
    """Project → what it paid for attempts on the days from `since` up to `until`, and on how many days."""
    query = select(cost_days.c.project, func.sum(cost_days.c.amount), func.count(cost_days.c.day.distinct()))
    query = query.where(cost_days.c.account == "project", cost_days.c.currency == currency)
    query = query.where(cost_days.c.day >= since, cost_days.c.day < until).group_by(cost_days.c.project)
    return {project: (int(amount), int(days)) for project, amount, days in connection.execute(query)}
