"""`muster cost reconcile`: the ledger against Slurm's accounting, or against a provider's bill in FOCUS."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Annotated, Final
from zoneinfo import ZoneInfo

import typer
from rich.text import Text

from muster.cli.call import Json, Usage
from muster.cli.connect import client
from muster.cli.cost_report import Month, Project, Since, Until, Week, notes, one_period
from muster.cli.output import emit, note, out, show_table, table
from muster.core.money import MICRO
from muster.cost.reconcile import Account, Reconciled, added, reconciled
from muster.sim.traces.base import Ledger, Options
from muster.sim.traces.sacct import COMMAND, Sacct

_PREFIX: Final = "muster-"  # of the names of Slurm jobs
_DIMENSIONS: Final = {"job": "run", "account": "project", "day": "day"}
_FOCUS: Final = ("ChargePeriodStart", "BilledCost", "BillingCurrency")
_ROWS: Final = 10_000
_SHOWN: Final = 20


def reconcile(
    sacct: Annotated[Path | None, typer.Option(metavar="FILE", help="The output of `sacct -P`.")] = None,
    focus: Annotated[Path | None, typer.Option(metavar="FILE", help="A bill as CSV in FOCUS.")] = None,
    by: Annotated[
        str | None, typer.Option(help="job, account (a project) or day. With --sacct job unless given, else day.")
    ] = None,
    month: Month = None, week: Week = None, since: Since = None, until: Until = None, project: Project = None,
    pool: Annotated[str | None, typer.Option(help="Only the ledger's entries of this pool.")] = None,
    json: Json = False,
) -> None:  # fmt: skip
    """Compare the ledger with Slurm's accounting (hours) or a provider's bill (money): what differs, and why.

    Jobs of Slurm are known by their name, `muster-RUN`; those of a bill by their ResourceId.
    """
    if (sacct is None) == (focus is None):
        raise Usage("One of --sacct and --focus is needed.", f"Export with `{COMMAND}`, or give a bill.")
    chosen = by or ("job" if sacct is not None else "day")
    if chosen not in _DIMENSIONS or (sacct is not None and chosen == "day"):
        allowed = "job or account" if sacct is not None else "job, account or day"
        raise Usage(f"--by is {chosen!r}.", f"Give {allowed}.")
    period = one_period(month, week, since, until)
    name = _DIMENSIONS[chosen]
    with client(timeout=120) as to:
        found = to.cost(name, limit=_ROWS, **period, project=project, pool=pool)
    told = [*found["notes"]]
    if found["left_out"]:
        told.append(f"{found['left_out']:,} rows of the ledger are not compared: choose a shorter period.")
    currency = found["totals"][0]["currency"] if found["totals"] else ""
    ours = added(
        (row["group"][name], Account(row["accelerator_hours"] or row["worker_hours"], row["amount"]))
        for row in found["rows"]
        if row["currency"] == currency and row["group"][name] and row["entries"]
    )
    if sacct is not None:
        made = reconciled(ours, added(_slurm(sacct, chosen)), money=False)
    else:
        assert focus is not None
        bill = list(_bill(focus, chosen, ZoneInfo(found["period"]["zone"])))
        other = sorted({money for _, _, money in bill} - {currency})
        if other and currency:
            told.append(f"Rows of the bill in {', '.join(other)} are not compared with {currency}.")
        theirs = added((key, one) for key, one, money in bill if not currency or money == currency)
        made = reconciled(ours, theirs, money=True)
    if json:
        emit({**made, "notes": told})
        return
    _show(made)
    notes(told)


def _slurm(path: Path, by: str) -> Iterator[tuple[str, Account]]:
    ledger = Ledger(str(path))
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            head = file.readline()
            if not Sacct().sniff(head):
                raise Usage(f"{path} is not the output of sacct -P.", f"Export with `{COMMAND},JobName`.")
            file.seek(0)
            for _, job in Sacct().read(iter(file.readlines()), Options(), ledger):
                key = job.name.removeprefix(_PREFIX) if job.name else job.id
                hours = (job.size or job.nodes) * job.duration / 3600
                yield (key if by == "job" else job.project), Account(hours)
    except OSError as error:
        raise Usage(f"{path} can't be read: {error.strerror}.", "Give another file with --sacct.") from error


def _bill(path: Path, by: str, zone: ZoneInfo) -> Iterator[tuple[str, Account, str]]:
    """The rows of a bill: what they are compared by, hours and amount, and the currency."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file)
            missing = [name for name in _FOCUS if name not in (reader.fieldnames or ())]
            if missing:
                raise Usage(f"{path} has no column {', '.join(missing)}.", "Give a bill as CSV in FOCUS 1.0 or newer.")
            for row in reader:
                account = Account(_hours(row), _micros(path, reader.line_num, row))
                yield _bill_key(path, reader.line_num, row, by, zone), account, row["BillingCurrency"]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise Usage(f"{path} can't be read: {error}.", "Give a CSV file with --focus.") from error


def _bill_key(path: Path, line: int, row: Mapping[str, str], by: str, zone: ZoneInfo) -> str:
    """Days are those of the ledger's time zone."""
    if by != "day":
        return row.get("ResourceId" if by == "job" else "SubAccountId") or ""
    text = row["ChargePeriodStart"]
    try:
        begin = datetime.fromisoformat(text)
    except ValueError:
        raise Usage(
            f"{path}, line {line}: ChargePeriodStart is {text!r}.", "Expected a time such as 2026-11-01T00:00:00Z."
        ) from None
    return (begin if begin.tzinfo is not None else begin.replace(tzinfo=UTC)).astimezone(zone).date().isoformat()


def _hours(row: Mapping[str, str]) -> float:
    quantity = row.get("ConsumedQuantity") or row.get("PricingQuantity") or ""
    unit = row.get("ConsumedUnit") or row.get("PricingUnit") or ""
    try:
        return float(quantity) if "hour" in unit.lower() or unit.lower() == "hrs" else 0.0
    except ValueError:
        return 0.0


def _micros(path: Path, line: int, row: Mapping[str, str]) -> int:
    try:
        return int((Decimal(row["BilledCost"]) * MICRO).to_integral_value())
    except (InvalidOperation, ValueError, OverflowError):
        raise Usage(
            f"{path}, line {line}: BilledCost is {row['BilledCost']!r}.", "Expected an amount such as 12.50."
        ) from None


def _show(made: Reconciled) -> None:
    what = "hours" if made["compared"] == "hours" else "in units of the currency"
    out().print(
        Text(
            f"{made['matching']:,} match, {made['only_ours']:,} are only in the ledger, {made['only_theirs']:,} only "
            f"in the file; {made['ours']:,.2f} against {made['theirs']:,.2f} {what}"
        )
    )
    right = ("ledger", "file", "difference")
    shown = table("what", *right, "cause", right=right)
    for one in made["differences"][:_SHOWN]:
        figures = [f"{value:,.2f}" for value in (one["ours"], one["theirs"], one["difference"])]
        shown.add_row(Text(one["key"] or "-"), *figures, Text(one["cause"]))
    if made["differences"]:
        show_table(shown)
    else:
        note("There is no difference.")
