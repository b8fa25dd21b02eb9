"""Reads the cost ledger for reports: sums by any dimensions, entries in the order of the log, and runs with costs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, timedelta
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Connection,
    Integer,
    Subquery,
    Table,
    and_,
    case,
    func,
    literal_column,
    or_,
    select,
    union_all,
)

from muster.store import record_tables as records
from muster.store.cost_tables import (
    cost_charges,
    cost_class_months,
    cost_classes,
    cost_days,
    cost_months,
    cost_runs,
)

ENTRIES_PAGE: Final = 5_000
# As parameters they would not be the same text twice, and PostgreSQL would not see what is grouped by.
_ONE: Final = literal_column("1", Integer)
_SEVEN: Final = literal_column("7", Integer)


@dataclass(frozen=True, slots=True)
class CostFilter:
    """Entries of the days `first` to `last`. `projects`: None for all. `equal`: dimension → the one value."""

    first: str
    last: str
    projects: Sequence[str] | None = None
    equal: Mapping[str, str] = field(default_factory=dict)


def read_sums(
    connection: Connection, want: CostFilter, by: Sequence[str], limit: int | None = None
) -> list[tuple[tuple[str, ...], Any]]:
    """Sums by these dimensions and the currency; weeks are given as days. `limit`: only the largest.

    Each is the values of the dimensions, and (currency, amount, platform, idle, storage, listed, held, workers,
    unpriced, entries).
    """
    table = _source(want, by)
    keys = _keys(table, by)
    entries = func.sum(table.c.charges)
    amount, account = table.c.amount, table.c.account
    parts = [account == name for name in ("platform", "idle", "storage")]
    sums = [
        func.sum(amount),
        *[func.sum(case((part, amount), else_=0)) for part in parts],
        func.sum(table.c.listed),
        *[
            func.sum(case((and_(table.c.unit == name, account != "idle"), table.c.held), else_=0))
            for name in ("accelerator", "worker")
        ],
        func.sum(table.c.unpriced),
        entries,
    ]
    query = select(*keys, table.c.currency, *sums).group_by(*keys, table.c.currency)
    if limit is not None:
        query = query.order_by(func.sum(amount).desc(), *keys).limit(limit)
    rows = connection.execute(query)
    return [(tuple(row[: len(keys)]), (row[len(keys)], *map(int, row[len(keys) + 1 :]))) for row in rows]


def count_groups(connection: Connection, want: CostFilter, by: Sequence[str]) -> int:
    """How many rows `read_sums` has without a limit."""
    table = _source(want, by)
    keys = [*_keys(table, by), table.c.currency]
    groups = select(*keys).distinct().subquery()
    return int(connection.execute(select(func.count()).select_from(groups)).scalar_one())


def read_entries(
    connection: Connection, want: CostFilter, after: tuple[int, int] = (-1, -1), limit: int = ENTRIES_PAGE
) -> list[Mapping[str, Any]]:
    """Entries after this place of the log: event and part."""
    columns, (seq, part) = cost_charges.c, after
    later = or_(columns.seq > seq, and_(columns.seq == seq, columns.part > part))
    query = select(cost_charges).where(*_where(cost_charges, want), later, columns.seq >= seq)
    return [dict(row) for row in connection.execute(query.order_by(columns.seq, columns.part).limit(limit)).mappings()]


def read_costs(connection: Connection, want: CostFilter, currency: str) -> Iterator[tuple[str, int, int]]:
    """(run, amount, unpriced) of each run with entries in this currency."""
    columns = cost_charges.c
    query = select(columns.run, func.sum(columns.amount), func.sum(columns.unpriced)).where(
        *_where(cost_charges, want), columns.run != "", columns.currency == currency
    )
    for run, amount, unpriced in connection.execute(query.group_by(columns.run)):
        yield run, int(amount), int(unpriced)


def read_run_cost(connection: Connection, run: str) -> dict[str, tuple[int, int]]:
    """What all charges of a run add up to: currency → the amount, and the platform's part of it."""
    columns = cost_runs.c
    query = select(columns.currency, columns.amount, columns.platform).where(columns.run == run)
    return {currency: (amount, platform) for currency, amount, platform in connection.execute(query)}


def read_runs_cost(connection: Connection, runs: Sequence[str]) -> tuple[dict[str, int], bool]:
    """What all charges of these runs add up to: currency → the amount, and whether all of it had a price."""
    columns = cost_runs.c
    query = select(columns.currency, func.sum(columns.amount), func.sum(columns.unpriced), func.count())
    rows = connection.execute(query.where(columns.run.in_(runs)).group_by(columns.currency)).all()
    amounts = {currency: int(amount) for currency, amount, _, _ in rows if int(amount)}
    return amounts, bool(rows) and not any(int(unpriced) for _, _, unpriced, _ in rows)


def read_classes(connection: Connection, want: CostFilter) -> list[tuple[str, str, str, str, str, int]]:
    """(project, pool, currency, class, cause, amount): amounts by what the time went to."""
    columns = _by_months(cost_classes, cost_class_months, want).c
    keys = (columns.project, columns.pool, columns.currency, columns["class"], columns.cause)
    query = select(*keys, func.sum(columns.amount)).group_by(*keys)
    return [(*row[:5], int(row[5])) for row in connection.execute(query)]


def read_families(connection: Connection, want: CostFilter) -> list[tuple[Any, ...]]:
    """(project, family, currency, amount, failed, platform, runs, succeeded) of each family and currency.

    `failed`: attempts of runs that did not succeed, and those before the last one of runs that did.
    """
    columns, runs = cost_charges.c, records.runs.c
    good, over = runs.phase == "succeeded", runs.phase.in_(("failed", "stopped"))
    failed = case((or_(over, and_(good, columns.attempt < runs.attempts)), columns.amount), else_=0)
    platform = case((columns.account == "platform", columns.amount), else_=0)
    keys = (columns.project, columns.family, columns.currency)
    sums = [func.sum(part).label(name) for name, part in
            (("amount", columns.amount), ("failed", failed), ("platform", platform))]  # fmt: skip
    each = select(*keys, *sums, func.max(case((good, 1), else_=0)).label("good"))
    each = each.outerjoin_from(cost_charges, records.runs, runs.id == columns.run)
    inner = each.where(*_where(cost_charges, want), columns.run != "").group_by(*keys, columns.run).subquery()
    found = inner.c
    names = (found.project, found.family, found.currency)
    totals = [func.sum(part) for part in (found.amount, found.failed, found.platform)]
    query = select(*names, *totals, func.count(), func.sum(found.good)).group_by(*names)
    return [(*row[:3], *map(int, row[3:])) for row in connection.execute(query)]


def read_run_values(
    connection: Connection, want: CostFilter, metric: str, column: str
) -> list[tuple[str, str, str, str, int, float]]:
    """(run, name, project, currency, amount, value) of runs with costs whose rank 0 reported this metric.

    `column` of the series: low, high or last.
    """
    columns, runs, series = cost_charges.c, records.runs.c, records.metric_series
    keys = (columns.run, columns.currency)
    inner = select(*keys, func.sum(columns.amount).label("amount")).where(*_where(cost_charges, want))
    costs = inner.where(columns.run != "").group_by(*keys).subquery()
    query = (
        select(costs.c.run, runs.name, runs.project, costs.c.currency, costs.c.amount, series.c[column])
        .join_from(costs, records.runs, runs.id == costs.c.run)
        .join(series, and_(series.c.run == costs.c.run, series.c.name == metric, series.c.rank == 0))
        .where(series.c[column].is_not(None))
    )
    return [(run, name, project, money, int(amount), value)
            for run, name, project, money, amount, value in connection.execute(query)]  # fmt: skip


def _source(want: CostFilter, by: Sequence[str]) -> Subquery:
    """The rows that are added up: entries, if runs are told apart; else sums by day, or by month where that is enough.

    `day` is then the month, of which the first seven characters are the same.
    """
    if "run" in (*by, *want.equal):
        names = [column for column in cost_charges.c if column.name not in ("begin", "end")]
        return select(*names, _ONE.label("charges")).where(*_where(cost_charges, want)).subquery()
    if "day" in by or "week" in by:
        return select(cost_days).where(*_where(cost_days, want)).subquery()
    return _by_months(cost_days, cost_months, want)


def _by_months(days: Table, months: Table, want: CostFilter) -> Subquery:
    """The rows of whole months, and those of the days before and after them."""
    whole, spans = _whole_months(want.first, want.last)
    names = [column.name for column in days.c if column.name != "day"]
    parts = [
        select(days.c.day, *(days.c[name] for name in names)).where(
            *_where(days, replace(want, first=first, last=last))
        )
        for first, last in spans
    ]
    if whole is not None:
        rows = select(months.c.month.label("day"), *(months.c[name] for name in names))
        between = (months.c.month >= whole[0], months.c.month <= whole[1])
        parts.append(rows.where(*between, *_chosen(months, want)))
    return parts[0].subquery() if len(parts) == 1 else union_all(*parts).subquery()


def _whole_months(first: str, last: str) -> tuple[tuple[str, str] | None, list[tuple[str, str]]]:
    """The first and the last month that are wholly between two days, and the days before and after these months."""
    begin, end = date.fromisoformat(first), date.fromisoformat(last)
    after = _next_month(end.replace(day=1))
    start = begin if begin.day == 1 else _next_month(begin.replace(day=1))
    stop = after if end + timedelta(days=1) == after else end.replace(day=1)  # the first day that is in no whole month
    if start >= stop:
        return None, [(first, last)]
    spans = [(first, (start - timedelta(days=1)).isoformat())] if begin < start else []
    spans += [(stop.isoformat(), last)] if stop <= end else []
    return (f"{start:%Y-%m}", f"{stop - timedelta(days=1):%Y-%m}"), spans


def _next_month(first: date) -> date:
    return (first + timedelta(days=31)).replace(day=1)


def _keys(table: Table | Subquery, by: Sequence[str]) -> list[ColumnElement[str]]:
    times = {"day": table.c.day, "week": table.c.day, "month": func.substr(table.c.day, _ONE, _SEVEN)}
    return [
        column.label(f"key_{place}")
        for place, name in enumerate(by)
        for column in [times[name] if name in times else table.c[name]]
    ]


def _where(table: Table, want: CostFilter) -> Iterator[ColumnElement[bool]]:
    yield table.c.day >= want.first
    yield table.c.day <= want.last
    yield from _chosen(table, want)


def _chosen(table: Table, want: CostFilter) -> Iterator[ColumnElement[bool]]:
    if want.projects is not None:
        yield table.c.project.in_(want.projects)
    for name, value in want.equal.items():
        yield table.c[name] == value
