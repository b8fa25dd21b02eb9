"""Rows of the cost ledger: its entries, and the sums that reports read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import Connection, func, select

from muster.store.base import Record
from muster.store.codec import dumps
from muster.store.cost_tables import (
    cost_charges,
    cost_class_months,
    cost_classes,
    cost_days,
    cost_months,
    cost_runs,
)
from muster.store.insert import Row, add, add_up
from muster.track.rows import chunks

SUMS: Final = ("amount", "listed", "held", "unpriced")
DIMENSIONS: Final = (
    "project", "user", "queue", "kind", "family", "environment", "pool", "account", "price", "unit", "currency",
)  # fmt: skip


class ClassRow(NamedTuple):
    """An amount by what the time went to."""

    day: str
    project: str
    pool: str
    account: str
    currency: str
    name: str
    cause: str
    amount: int


def cost_record(entries: Sequence[Mapping[str, Any]], classes: Iterable[ClassRow]) -> Record:
    """Writes entries of the ledger, whose keys are the columns of `cost_charges`, and adds them to the sums."""
    days, runs, by_class = dict[tuple[str, str], Row](), dict[tuple[str, str], Row](), dict[tuple[Any, ...], Row]()
    for one in entries:
        key = dumps([one[name] for name in DIMENSIONS])
        day = days.setdefault(
            (one["day"], key),
            {"day": one["day"], "key": key, **{name: one[name] for name in DIMENSIONS}, **_ZERO, "charges": 0},
        )
        day["charges"] += 1
        sums = [day]
        if one["run"]:
            run = runs.setdefault(
                (one["run"], one["currency"]),
                {name: one[name] for name in ("run", "currency", "project", "user", "family", "day")}
                | _ZERO
                | {"platform": 0},
            )
            run["day"] = max(run["day"], one["day"])
            run["platform"] += one["amount"] if one["account"] == "platform" else 0
            sums.append(run)
        for row in sums:
            for name in SUMS:
                row[name] += one[name]
    for each in classes:
        row = by_class.setdefault(tuple(each[:-1]), {**dict(zip(_CLASS_KEY, each, strict=False)), "amount": 0})
        row["amount"] += each.amount

    def record(connection: Connection) -> None:
        add(connection, cost_charges, [dict(one) for one in entries])
        add_up(connection, cost_days, list(days.values()), (*SUMS, "charges"))
        add_up(connection, cost_months, _by_month(days.values(), ("key",), (*SUMS, "charges")), (*SUMS, "charges"))
        add_up(connection, cost_runs, list(runs.values()), (*SUMS, "platform"))
        add_up(connection, cost_classes, list(by_class.values()), ("amount",))
        add_up(connection, cost_class_months, _by_month(by_class.values(), _CLASS_KEY[1:], ("amount",)), ("amount",))

    return record


def _by_month(rows: Iterable[Row], key: Sequence[str], sums: Sequence[str]) -> list[Row]:
    """Sums of rows by day, by month and the columns of the key."""
    found: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        month = row["day"][:7]
        known = found.get((month, *(row[name] for name in key)))
        if known is None:
            rest = {name: value for name, value in row.items() if name != "day"}
            found[(month, *(row[name] for name in key))] = {"month": month, **rest}
            continue
        for name in sums:
            known[name] += row[name]
    return list(found.values())


def read_charges(connection: Connection, runs: Sequence[str]) -> Iterator[Mapping[str, Any]]:
    """All entries of these runs, in their order."""
    for part in chunks(list(runs)):
        query = select(cost_charges).where(cost_charges.c.run.in_(part))
        for row in connection.execute(query.order_by(cost_charges.c.seq, cost_charges.c.part)).mappings():
            yield dict(row)


def charged_runs(connection: Connection, pool: str, since: float) -> list[str]:
    """Runs with charges in the pool for time after `since`."""
    columns = cost_charges.c
    query = select(columns.run).where(columns.pool == pool, columns.end > round(since * 1e6), columns.run != "")
    return list(connection.scalars(query.distinct().order_by(columns.run)))


def charged_pools(connection: Connection) -> set[str]:
    """The pools in which something was charged."""
    return set(connection.scalars(select(cost_days.c.pool).where(cost_days.c.account.in_(_HELD)).distinct()))


def pool_use(connection: Connection, pool: str, day: str) -> dict[str, int]:
    """What projects held of the pool's accelerators on a day, by entries: thousandths × milliseconds."""
    columns = cost_days.c
    query = select(columns.project, func.sum(columns.held)).where(
        columns.day == day, columns.pool == pool, columns.unit == "accelerator", columns.account.in_(_HELD)
    )
    return {project: int(held) for project, held in connection.execute(query.group_by(columns.project))}


_HELD: Final = ("project", "platform")  # accounts of what attempts held, whoever pays it
_ZERO: Final[Row] = dict.fromkeys(SUMS, 0)
_CLASS_KEY: Final = ("day", "project", "pool", "account", "currency", "class", "cause")
