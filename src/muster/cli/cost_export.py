"""`muster cost statement` and `muster cost focus`: costs as files for finance."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.text import Text

from muster.api.cost_reports import CostStatement
from muster.cli.call import Json, Usage
from muster.cli.connect import client
from muster.cli.cost_report import (
    Month,
    Project,
    Since,
    Until,
    Week,
    hours_text,
    notes,
    one_period,
    period_text,
    title,
)
from muster.cli.lazy import load
from muster.cli.output import emit, note, show_table, table
from muster.core.money import exact_amount, format_amount

_GROUP: Final = ("user", "family", "pool", "price", "account")
_COLUMNS: Final = (
    "project", "period", *_GROUP, "currency", "amount", "list_amount", "accelerator_hours", "worker_hours",
    "unpriced_hours",
)  # fmt: skip
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")


def statement(
    month: Month = None, week: Week = None, since: Since = None, until: Until = None, project: Project = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write HTML, one page a project.")] = None,
    csv_: Annotated[Path | None, typer.Option("--csv", metavar="FILE", help="Write CSV; - is stdout.")] = None,
    json: Json = False,
) -> None:  # fmt: skip
    """Show what a project, or each one, is charged: by user, family, pool, price and account."""
    if sum((html is not None, csv_ is not None, json)) > 1:
        raise Usage("Several of --html, --csv and --json were given.", "Give one of them.")
    with client(timeout=120) as to:
        found = to.cost_statements(**one_period(month, week, since, until), project=project)
    if json:
        emit({"statements": found})
    elif html is not None:
        _write(html, load("muster.cli.cost_page:page")(found), "--html")
    elif csv_ is not None:
        _write(csv_, statement_csv(found), "--csv")
    else:
        for one in found:
            _show(one)
        if not found:
            note("Nothing was charged.")


def focus(
    month: Month = None, week: Week = None, since: Since = None, until: Until = None, project: Project = None,
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The file; - is stdout.")] = Path("-"),
    json: Json = False,
) -> None:  # fmt: skip
    """Write the entries of the ledger as CSV in FOCUS 1.2, one row for each; this month so far unless given.

    Corrections have the charge class Correction. Entries without a price are left out, and counted.
    """
    period, standard = one_period(month, week, since, until), str(output) == "-"
    if json and standard:
        raise Usage("--json was given, and the rows go to stdout.", "Name a file with --output.")
    with client(timeout=120) as to:
        pieces = to.cost_focus(**period, project=project)
        if standard:
            for piece in pieces:
                sys.stdout.write(piece.decode())
        else:
            try:
                with output.open("wb") as file:
                    size = sum(file.write(piece) for piece in pieces)
            except OSError as error:
                raise _unwritable(output, error, "--output") from error
        whole = to.cost("account", month=month, week=week, since=since, until=until, project=project)
    if json:
        emit({"file": str(output), "bytes": size, "totals": whole["totals"], "notes": whole["notes"]})
        return
    if not standard:
        note(f"Wrote {output}.")
    notes(whole["notes"])


def statement_csv(found: Iterable[CostStatement]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(_COLUMNS)
    for one in found:
        for row in one["rows"]:
            names = [row["group"][name] for name in _GROUP]
            amounts = [exact_amount(row["amount"]), exact_amount(row["listed"])]
            hours = [f"{row[name]:.6f}" for name in ("accelerator_hours", "worker_hours", "unpriced_hours")]
            given = [one["project"], one["period"]["name"], *names]
            writer.writerow([*map(_plain, given), row["currency"], *amounts, *hours])
    return text.getvalue()


def _plain(value: str) -> str:
    """A spreadsheet would run a text that begins like a formula, and names are what people typed."""
    return f"'{value}" if value.startswith(_FORMULA) else value


def _show(one: CostStatement) -> None:
    title(f"Statement of project {one['project']} for {period_text(one['period'])}")
    made = table(*_GROUP, "hours", "amount", right=("hours", "amount"))
    for row in one["rows"]:
        hours = row["accelerator_hours"] + row["worker_hours"]
        cells: list[Any] = [Text(row["group"][name] or "-") for name in _GROUP]
        made.add_row(*cells, hours_text(hours), format_amount(row["amount"], row["currency"]))
    for total in one["totals"]:
        hours = total["accelerator_hours"] + total["worker_hours"]
        whole = [Text("all", style="bold"), *[Text("")] * (len(_GROUP) - 1)]
        made.add_row(*whole, hours_text(hours), Text(format_amount(total["amount"], total["currency"]), style="bold"))
    show_table(made)
    notes(one["notes"])


def _write(path: Path, text: str, option: str) -> None:
    if str(path) == "-":
        sys.stdout.write(text)
        return
    try:
        path.write_text(text, encoding="utf-8", newline="")
    except OSError as error:
        raise _unwritable(path, error, option) from error
    note(f"Wrote {path}.")


def _unwritable(path: Path, error: OSError, option: str) -> Usage:
    return Usage(f"{path} can't be written: {error.strerror}.", f"Give another file with {option}.")
