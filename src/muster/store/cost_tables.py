"""Tables of the cost ledger, made from the events of charges.

cost_charges    its entries, by day; never changed
cost_days, cost_runs, cost_classes    sums of these: by day and who caused them, by run, and by what the time went to
cost_months, cost_class_months        the same by month
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Boolean, Column, Index, Integer, Table, Text

from muster.store.tables import metadata

# Amounts are millionths of the currency. `held` is in thousandths of accelerators × milliseconds, or thousandths of
# workers × milliseconds for work without accelerators; `unpriced` is the part of it that had no price.
_COST_DIMENSIONS = (
    "project", "user", "queue", "kind", "family", "environment", "pool", "account", "price", "unit", "currency",
)  # fmt: skip
_COST_SUMS = ("amount", "listed", "held", "unpriced")


def _dimensions() -> list[Column[str]]:
    return [Column(name, Text, nullable=False) for name in _COST_DIMENSIONS]


def _sums() -> list[Column[int]]:
    return [Column(name, BigInteger, nullable=False) for name in _COST_SUMS]


cost_charges = Table(
    "cost_charges",
    metadata,
    Column("seq", BigInteger, primary_key=True, autoincrement=False),  # of its event
    Column("part", Integer, primary_key=True, autoincrement=False),
    Column("run", Text, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("day", Text, nullable=False),  # a date in the time zone of the price book
    Column("begin", BigInteger, nullable=False),  # microseconds since 1970
    Column("end", BigInteger, nullable=False),
    *_dimensions(),
    *_sums(),
    Column("rate", BigInteger, nullable=False),  # billionths for an hour; -1: no price
    Column("book", Integer, nullable=False),  # the version of the price book
    Column("correction", Boolean, nullable=False),
    Column("cause", Text, nullable=False),  # why the platform pays: the code of a reason
    Index("cost_charges_by_run", "run", "attempt"),
    Index("cost_charges_by_day", "day", "project"),
)

cost_days = Table(
    "cost_days",
    metadata,
    Column("day", Text, primary_key=True),
    Column("key", Text, primary_key=True),  # its dimensions as one text
    *_dimensions(),
    *_sums(),
    Column("charges", BigInteger, nullable=False),  # how many entries it is made of
    Index("cost_days_by_project", "project", "day"),
    sqlite_with_rowid=False,
)

# The same by month, for reports of years.
cost_months = Table(
    "cost_months",
    metadata,
    Column("month", Text, primary_key=True),
    Column("key", Text, primary_key=True),
    *_dimensions(),
    *_sums(),
    Column("charges", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)

cost_runs = Table(
    "cost_runs",
    metadata,
    Column("run", Text, primary_key=True),
    Column("currency", Text, primary_key=True),
    Column("project", Text, nullable=False),
    Column("user", Text, nullable=False),
    Column("family", Text, nullable=False),
    Column("day", Text, nullable=False),  # of its last charge
    *_sums(),
    Column("platform", BigInteger, nullable=False),  # the part of the amount that the platform pays
    Index("cost_runs_by_day", "day", "project"),
)

cost_classes = Table(
    "cost_classes",
    metadata,
    Column("day", Text, primary_key=True),
    Column("project", Text, primary_key=True),
    Column("pool", Text, primary_key=True),
    Column("account", Text, primary_key=True),
    Column("currency", Text, primary_key=True),
    Column("class", Text, primary_key=True),  # of the goodput ledger; "idle_capacity", "storage"
    Column("cause", Text, primary_key=True),  # the code of the reason of the loss; "": none
    Column("amount", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)

cost_class_months = Table(
    "cost_class_months",
    metadata,
    *[
        Column(name, Text, primary_key=True)
        for name in ("month", "project", "pool", "account", "currency", "class", "cause")
    ],
    Column("amount", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)
