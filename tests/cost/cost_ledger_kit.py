"""For tests of cost reports: entries of a ledger, and a database that has them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime

from sqlalchemy import Connection, create_engine, make_url

from muster.control.costs import _row
from muster.core.prices import SECOND
from muster.cost.charge import UNPRICED
from muster.cost.ledger import LedgerEntry, Payer
from muster.store import cost_tables, record_tables
from muster.store.connect import connect
from muster.track.cost_rows import ClassRow, cost_record

TABLES = [
    cost_tables.cost_charges, cost_tables.cost_days, cost_tables.cost_runs, cost_tables.cost_classes,
    cost_tables.cost_months, cost_tables.cost_class_months, record_tables.runs, record_tables.metric_series,
]  # fmt: skip


def entry(
    seq: int = 1,
    amount: int = 1_000_000,
    day: str = "2026-11-02",
    run: str = "a-1",
    payer: Payer | None = None,
    **given: object,
) -> LedgerEntry:
    """An hour of one accelerator from noon on, at an amount for it."""
    payer = payer or Payer("red", "ann", "q", "train", "gpt", "", "h100")
    begin = round(datetime.fromisoformat(f"{day}T12:00:00+00:00").timestamp()) * SECOND
    made = LedgerEntry(
        seq, 0, run, 1, day, begin, begin + 3600 * SECOND, payer,
        "project", "on_demand", "accelerator", "USD", amount, amount, 3_600_000_000, 0, amount * 1000, 1, False, "",
    )  # fmt: skip
    made = made._replace(**given)  # type: ignore[arg-type]
    return made._replace(amount=0, listed=0, unpriced=made.held) if made.rate == UNPRICED else made


@contextmanager
def ledger_of(
    entries: Sequence[LedgerEntry], classes: Sequence[ClassRow] = (), url: str = "sqlite://"
) -> Iterator[Connection]:
    engine = connect(make_url(url)).writer if "postgres" in url else create_engine(url)
    with engine.begin() as connection:
        record_tables.runs.metadata.create_all(connection, tables=TABLES)
        cost_record([_row(one) for one in entries], classes)(connection)
        yield connection
    engine.dispose()


def run_row(run: str, phase: str, attempts: int) -> dict[str, object]:
    empty = dict.fromkeys(("user", "purpose", "code_commit", "code_branch", "code_tree"), "")
    unset = dict.fromkeys(("started_at", "ended_at", "parent", "deleted_at"))
    return {
        "id": run, "project": "red", "experiment": 0, "name": run, "kind": "train", "source": "job", "phase": phase,
        "created_at": 0.0, "valid": True, "problems": "[]", "attempts": attempts, "code_dirty": False, "doc": "{}",
        **empty, **unset,
    }  # fmt: skip
