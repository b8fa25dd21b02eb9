"""`muster report`: the figures of a month against their targets, how they changed, and what was wasted."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer
from rich.text import Text

from muster.api.report import FigureView, ReportView
from muster.cli import complete, format
from muster.cli.call import Json, Usage
from muster.cli.connect import client
from muster.cli.lazy import load
from muster.cli.node_history import seconds
from muster.cli.output import emit, note, out, show_table, table

LARGEST: Final = 3  # causes of waste that are shown
_SHARES: Final = ("observed_share", "with_code_errors", "within_target", "share_in_service")
_TIMES: Final = ("p50", "p90")
_STEADY: Final = 0.005  # relative changes below this are no change


def report(
    month: Annotated[str | None, typer.Option(help="Such as 2026-10; the current month so far unless given.")] = None,
    week: Annotated[bool, typer.Option("--week", help="The current ISO week so far.")] = False,
    since: Annotated[str | None, typer.Option(help="The last days instead, such as 7d: whole days, in UTC.")] = None,
    project: Annotated[str | None, typer.Option(help="Only this project.", autocompletion=complete.projects)] = None,
    zone: Annotated[str | None, typer.Option(help="Time zone of the month or week. UTC unless given.")] = None,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write one HTML file instead.")] = None,
    json: Json = False,
) -> None:
    """Show the figures of a month against their targets, how they changed, and the three largest causes of waste.

    A value that is not known says why. docs/report.md defines every figure; so does the HTML file.
    """
    given = [name for name, value in (("--month", month), ("--week", week), ("--since", since)) if value]
    if len(given) > 1:
        raise Usage(f"{' and '.join(given)} were given.", "Give one of them.")
    if html is not None and json:
        raise Usage("--html and --json were given.", "Give one of them.")
    span = seconds("--since", since) if since is not None else None
    with client() as to:
        found = to.report(month, week="this" if week else None, since=span, project=project, zone=zone)
    if json:
        emit(found)
    elif html is not None:
        _write(html, load("muster.cli.report_page:page")(found))
        note(f"Wrote {html}.")
    else:
        _show(found)


def covered(found: ReportView) -> str:
    """What the report is of, in a sentence."""
    projects = found["projects"]
    if projects is None:
        return "All projects and pools."
    if not projects:
        return "No project: you are a member of none."
    return f"Project{'s' if len(projects) > 1 else ''} {', '.join(projects)}; not the use of the pools."


def title(found: ReportView) -> str:
    period = found["period"]
    return f"Report of {period['name']}" + ("" if period["over"] else ", so far")


def value_text(measure: str, value: float | None) -> str:
    if value is None:
        return "unknown"
    if measure == "share":
        return f"{value:.1%}"
    if measure == "seconds":
        return format.span(value) if value >= 10 or not value else f"{value:.2g}s"
    return f"{value:,.2f}" if measure == "amount" or abs(value) < 100 else f"{value:,.0f}"


def target_text(one: FigureView) -> str:
    if one["target"] is None:
        return ""
    sign = "≥" if one["better"] == "higher" else "≤"
    share = one["measure"] == "share"
    return f"{sign} {one['target']:.0%}" if share else f"{sign} {value_text(one['measure'], one['target'])}"


def change_text(one: FigureView) -> tuple[str, bool | None]:
    """The change against the period before with an arrow, and whether it is one for the better."""
    change, value = one["change"], one["value"]
    if change is None or value is None:
        return "", None
    if abs(change) <= _STEADY * max(abs(value), abs(value - change)):
        return "→", None
    amount = f"{100 * abs(change):.1f} points" if one["measure"] == "share" else value_text(one["measure"], abs(change))
    good = None if one["better"] is None else (change > 0) == (one["better"] == "higher")
    return f"{'↑' if change > 0 else '↓'} {amount}", good


def detail_text(one: FigureView) -> str:
    """What the value consists of; why it is unknown if it is."""
    if one["unknown"] is not None:
        return one["unknown"]
    parts = []
    for name, value in one["details"].items():
        if value is None:
            continue
        if name in _SHARES:
            text = f"{value:.1%}"
        elif name in _TIMES:
            text = value_text("seconds", value)
        else:
            text = f"{value:,.0f}" if value == int(value) or value >= 100 else f"{value:.2g}"
        parts.append(f"{name.replace('_', ' ')} {text}")
    return ", ".join(parts)


def hours_text(hours: float) -> str:
    return f"{hours:,.0f} h" if hours >= 100 else f"{hours:.2f} h" if hours >= 0.01 else "under 0.01 h"


def _show(found: ReportView) -> None:
    out().print(Text.assemble((title(found), "bold"), f" ({found['zone']}). {covered(found)}"))
    made = table("figure", "value", "target", "change", "in detail", right=("value", "target"))
    for one in found["figures"]:
        style = "dim" if one["value"] is None else {True: "green", False: "red", None: ""}[one["met"]]
        change, good = change_text(one)
        arrow = Text(change, style={True: "green", False: "red", None: "dim"}[good])
        value = Text(value_text(one["measure"], one["value"]), style=style)
        made.add_row(Text(one["label"]), value, target_text(one), arrow, Text(detail_text(one), style="dim"))
    if found["figures"]:
        show_table(made)
    if found["waste"]:
        out().print(Text(f"\nThe largest causes of waste, in {found['unit']} hours:", style="bold"))
        for number, cause in enumerate(found["waste"][:LARGEST], 1):
            out().print(Text(f"  {number}. {cause['cause']}: {hours_text(cause['hours'])}"))
    for each in found["notes"]:
        note((each, "dim"))


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise Usage(f"{path} can't be written: {error.strerror}.", "Give another file with --html.") from error
