"""`muster cost`: what work cost in a month, a week or some days, by any dimensions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, cast

import typer
from rich.text import Text

from muster.api.cost_reports import CostPeriod, CostReport, CostTotal
from muster.cli import complete
from muster.cli.call import Json, Usage
from muster.cli.connect import client
from muster.cli.output import emit, note, out, show_table, table
from muster.core.money import format_amount

Month = Annotated[str | None, typer.Option(help="Such as 2026-11; the current month so far unless given.")]
Week = Annotated[str | None, typer.Option(help="An ISO week, such as 2026-W47, or `this`.")]
Since = Annotated[str | None, typer.Option(help="The first day, such as 2026-11-01, or a duration such as 30d.")]
Until = Annotated[str | None, typer.Option(help="The last day; with --since.")]
Project = Annotated[str | None, typer.Option(help="Only this project.", autocompletion=complete.projects)]
SHOWN: Final = 100  # rows on a terminal


def report(
    by: Annotated[
        str,
        typer.Option(
            help="Dimensions, with commas: project, user, queue, kind, family, environment, pool, account, price, day, "
            "week, month, run."
        ),
    ] = "project",
    since: Since = None,
    until: Until = None,
    month: Month = None,
    week: Week = None,
    project: Project = None,
    user: Annotated[str | None, typer.Option(help="Only of this user.")] = None,
    queue: Annotated[str | None, typer.Option(help="Only of this queue.", autocompletion=complete.queues)] = None,
    family: Annotated[str | None, typer.Option(help="Only of this experiment family.")] = None,
    environment: Annotated[str | None, typer.Option(help="Only of this environment.")] = None,
    pool: Annotated[str | None, typer.Option(help="Only of this pool.")] = None,
    account: Annotated[str | None, typer.Option(help="Only this account: project, platform, idle, storage.")] = None,
    limit: Annotated[int, typer.Option(help="Rows.", min=1, max=10_000)] = SHOWN,
    json: Json = False,
) -> None:
    """Show what work cost, by any dimensions; this month so far unless given.

    Pending is what attempts that still run have cost so far. Hours without a price are counted apart.
    """
    with client(timeout=120) as to:
        found = to.cost(
            by, month=month, week=week, since=since, until=until, limit=limit, project=project, user=user, queue=queue,
            family=family, environment=environment, pool=pool, account=account,
        )  # fmt: skip
    if json:
        emit(found)
        return
    title(f"Costs of {period_text(found['period'])}", found["projects"])
    _show(found)
    notes(found["notes"])


def one_period(month: str | None, week: str | None, since: str | None, until: str | None) -> dict[str, str | None]:
    given = [name for name, value in (("--month", month), ("--week", week), ("--since", since)) if value]
    if len(given) > 1:
        raise Usage(f"{' and '.join(given)} were given.", "Give one of them.")
    return {"month": month, "week": week, "since": since, "until": until}


def period_text(period: CostPeriod) -> str:
    return period["name"] + ("" if period["over"] else ", so far")


def title(text: str, projects: list[str] | None = None) -> None:
    covered = "" if projects is None else f" Projects: {', '.join(projects) or 'none'}."
    out().print(Text.assemble((text, "bold"), f".{covered}"))


def hours_text(hours: float) -> str:
    """With as many digits as it takes not to say zero."""
    return f"{hours:,.2f}" if not 0 < abs(hours) < 0.01 else f"{hours:.2g}"


def notes(some: list[str]) -> None:
    for each in some:
        note((each, "dim"))


def _show(found: CostReport) -> None:
    rows, by = found["rows"], found["by"]
    if not rows:
        note("Nothing was charged. `muster cost prices` shows which pools have a price, `muster cost apply` sets them.")
        return
    columns = _columns([*found["totals"]])
    names = ("amount", *columns)
    titles = tuple(name.replace("_", " ") for name in names)
    made = table(*by, *titles, right=titles)
    for row in rows:
        group = [row["group"][name] or "-" for name in by]
        made.add_row(*map(Text, group), *_cells(row, columns))
    for total in found["totals"] if by else ():
        first = [Text("all", style="bold"), *[Text("")] * (len(by) - 1)]
        made.add_row(*first, *(Text(cell, style="bold") for cell in _cells(total, columns)))
    show_table(made)
    if found["left_out"]:
        note(f"{found['left_out']:,} more rows are in the totals; --limit shows them.")


def _columns(totals: list[CostTotal]) -> list[str]:
    """Those in which there is anything."""
    names = ("platform", "idle", "storage", "pending", "accelerator_hours", "worker_hours", "unpriced_hours")
    return [name for name in names if any(_figures(total)[name] for total in totals)]


def _cells(row: CostTotal, columns: list[str]) -> list[str]:
    cells = [format_amount(row["amount"], row["currency"])]
    for name in columns:
        value = _figures(row)[name]
        cells.append(hours_text(value) if name.endswith("hours") else format_amount(int(value)))
    return cells


def _figures(row: CostTotal) -> Mapping[str, float]:
    """The row by names that are not known here."""
    return cast("Mapping[str, float]", row)
