"""`muster cost families`, `runs`, `waste`, `forecast`, `change`, `spot` and `hours`, each with its definition."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

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
from muster.cli.output import emit, note, out, show_table, table
from muster.core.money import format_amount


def families(
    month: Month = None, week: Week = None, since: Since = None, until: Until = None, project: Project = None,
    json: Json = False,
) -> None:  # fmt: skip
    """Show what each experiment family cost for each run that succeeded, and what failed attempts added."""
    with client(timeout=120) as to:
        found = to.cost_families(**one_period(month, week, since, until), project=project)
    if json:
        emit(found)
        return
    title(f"Experiment families of {period_text(found['period'])}")
    names = ("amount", "a success", "failed attempts", "runs", "succeeded")
    made = table("project", "family", *names, right=names)
    for one in found["families"]:
        each = one["per_success"]
        cost = format_amount(each, one["currency"]) if each is not None else "none"
        cells = [format_amount(one["amount"], one["currency"]), cost, format_amount(one["failed"], one["currency"])]
        made.add_row(Text(one["project"]), Text(one["family"]), *cells, str(one["runs"]), str(one["succeeded"]))
    _finish(made, bool(found["families"]), found["definition"], found["notes"])


def runs(
    metric: Annotated[str, typer.Argument(metavar="METRIC", help="A metric that the runs reported.")] = "loss",
    higher: Annotated[bool, typer.Option("--higher", help="More of it is better; else less is.")] = False,
    month: Month = None, week: Week = None, since: Since = None, until: Until = None, project: Project = None,
    json: Json = False,
) -> None:  # fmt: skip
    """Show the runs that no other beats in cost and in a metric, and what each further point cost."""
    period = one_period(month, week, since, until)
    with client(timeout=120) as to:
        found = to.cost_runs(metric, "higher" if higher else "lower", **period, project=project)
    if json:
        emit(found)
        return
    title(f"Runs by cost and {metric} in {period_text(found['period'])}: {found['compared']:,} compared")
    made = table("run", "amount", metric, "a further point", right=("amount", metric, "a further point"))
    front = [one for one in found["runs"] if one["front"]]
    for one in front:
        further = f"{one['marginal']:,.2f} {one['currency']}" if one["marginal"] is not None else ""
        made.add_row(Text(one["run"]), format_amount(one["amount"], one["currency"]), f"{one['value']:.6g}", further)
    _finish(made, bool(front), found["definition"], found["notes"])


def waste(
    month: Month = None, week: Week = None, since: Since = None, until: Until = None, project: Project = None,
    json: Json = False,
) -> None:  # fmt: skip
    """Show what was charged for idle capacity and for time that trained nothing, by cause."""
    with client(timeout=120) as to:
        found = to.cost_waste(**one_period(month, week, since, until), project=project)
    if json:
        emit(found)
        return
    title(f"Idle and waste of {period_text(found['period'])}")
    made = table("cause", "amount", "share", right=("amount", "share"))
    for one in found["causes"]:
        share = f"{one['share']:.1%}" if one["share"] is not None else ""
        made.add_row(Text(one["cause"]), format_amount(one["amount"], one["currency"]), share)
    for currency, amount in found["useful"].items():
        made.add_row(Text("Training and evaluating", style="green"), format_amount(amount, currency), "")
    _finish(made, bool(found["causes"] or found["useful"]), found["definition"], found["notes"])


def forecast(month: Month = None, week: Week = None, project: Project = None, json: Json = False) -> None:
    """Show what the month or week will have cost at its end, with a band."""
    if month and week:
        raise Usage("--month and --week were given.", "Give one of them.")
    with client(timeout=120) as to:
        found = to.cost_forecast(month=month, week=week, project=project)
    if json:
        emit(found)
        return
    title(f"Forecast for {found['period']['name']}")
    for one in found["forecasts"]:
        so_far = format_amount(one["so_far"] + one["pending"], one["currency"])
        if one["expected"] is None or one["low"] is None or one["high"] is None:
            out().print(Text(f"{so_far} so far; the rest is not known: {one['unknown']}."))
            continue
        band = f"{format_amount(one['low'], '')} to {format_amount(one['high'], one['currency'])}"
        whole = format_amount(one["expected"], one["currency"])
        out().print(Text(f"{whole} ({band}); {so_far} so far, {one['days_left']:.1f} days left"))
    if not found["forecasts"]:
        note("Nothing was charged.")
    notes([found["definition"], *found["notes"]])


def change(
    month: Month = None, week: Week = None, since: Since = None, until: Until = None, project: Project = None,
    json: Json = False,
) -> None:  # fmt: skip
    """Show the change since the period before, explained by hours and by prices."""
    with client(timeout=120) as to:
        found = to.cost_change(**one_period(month, week, since, until), project=project)
    if json:
        emit(found)
        return
    title(f"{period_text(found['period'])} against {found['before']['name']}")
    for one in found["totals"]:
        out().print(Text(one["words"], style="bold"))
    for one in found["changes"][:20]:
        out().print(Text(f"  {one['words']}"))
    if not found["totals"]:
        note("Nothing was charged in either.")
    notes([found["definition"], *found["notes"]])


def spot(
    month: Month = None, week: Week = None, since: Since = None, until: Until = None, project: Project = None,
    json: Json = False,
) -> None:  # fmt: skip
    """Show the share of spot capacity, and what it saved net of its interruptions."""
    with client(timeout=120) as to:
        found = to.cost_spot(**one_period(month, week, since, until), project=project)
    if json:
        emit(found)
        return
    title(f"Spot in {period_text(found['period'])}")
    names = ("amount", "share", "saved", "lost", "net")
    made = table("pool", *names, right=names)
    for one in found["pools"]:
        share = f"{one['share']:.1%}" if one["share"] is not None else ""
        parts = [format_amount(value, one["currency"]) for value in (one["saved"], one["lost"], one["net"])]
        made.add_row(Text(one["pool"] or "all"), format_amount(one["amount"], one["currency"]), share, *parts)
    _finish(made, bool(found["pools"]), found["definition"], found["notes"])


def hours(
    month: Month = None, week: Week = None, since: Since = None, until: Until = None, project: Project = None,
    json: Json = False,
) -> None:  # fmt: skip
    """Show what an accelerator-hour cost by pool: at list price, as charged, with idle capacity, and useful."""
    with client(timeout=120) as to:
        found = to.cost_hours(**one_period(month, week, since, until), project=project)
    if json:
        emit(found)
        return
    title(f"An accelerator-hour in {period_text(found['period'])}")
    names = ("hours", "list price", "charged", "with idle", "useful")
    made = table("pool", *names, right=names)
    for one in found["pools"]:
        parts = [format_amount(value, one["currency"]) for value in (one["listed"], one["charged"], one["with_idle"])]
        useful = format_amount(one["useful"], one["currency"]) if one["useful"] is not None else "unknown"
        made.add_row(Text(one["pool"]), hours_text(one["hours"]), *parts, useful)
    _finish(made, bool(found["pools"]), found["definition"], found["notes"])


def _finish(made: Table, any_: bool, definition: str, some: list[str]) -> None:
    if any_:
        show_table(made)
    else:
        note("There is nothing to show.")
    notes([definition, *some])
