"""What `muster preflight` prints: the ladder with what holds already, and what was found in a rung."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import Final

from rich.text import Text

from muster.api.numbers import JsonFloat
from muster.api.preflight import CertificateView, FullRunView, PreflightPlan, RungPlan, RungVerdict
from muster.api.words import Rung
from muster.cli.output import out, show_table, table

_MARKS: Final = {"ok": ("ok", "green"), "failed": ("FAILED", "bold red"), "not applicable": ("-", "dim"),
                 "unknown": ("unknown", "yellow")}  # fmt: skip


def show_plan(plan: PreflightPlan, rungs: Sequence[Rung]) -> None:
    rows = table("RUNG", "WHAT IT PROVES", "NEEDED", "STATE")
    for one in plan["rungs"]:
        needed = "required" if one["required"] else "advised" if one["advised"] else ""
        rows.add_row(Text(one["rung"], "bold"), one["proves"], needed, _state(one, one["rung"] in rungs))
    show_table(rows)


def show_verdict(verdict: RungVerdict) -> None:
    screen = out()
    words = ("passed", "bold green") if verdict["passed"] else ("did not pass", "bold red")
    screen.print(Text.assemble((verdict["rung"], "bold"), " ", words))
    rows = table("", "", "")
    rows.show_header = False
    for one in verdict["findings"]:
        detail = Text(one["detail"])
        if one["hint"] and one["status"] in ("failed", "unknown"):
            detail.append(f"\n→ {one['hint']}", "cyan")
        rows.add_row(Text(*_MARKS[one["status"]]), one["name"], detail)
    show_table(rows)
    if verdict["full_run"]:
        screen.print(Text(f"the full run: {full_run(verdict['full_run'])}", "bold"))
    if verdict["certificate"]:
        screen.print(Text(f"certificate {verdict['certificate']['id']}", "dim"))


def show_certificates(found: Sequence[CertificateView]) -> None:
    rows = table("CERTIFICATE", "RUNG", "JOB", "PROJECT", "SINCE", "BY", "EVIDENCE")
    for one in found:
        evidence = f"waived: {one['why']}" if one["waived"] else ", ".join(one["jobs"])
        rows.add_row(one["id"], one["rung"], one["job"], one["project"], _day(one["at"]), one["by"], evidence)
    show_table(rows)


def full_run(view: FullRunView) -> str:
    low, middle, high = view["hours"]
    text = f"{view['steps']:,} steps take {_hours(middle)} ({_hours(low)} to {_hours(high)})"
    if view["cost"]:
        low, middle, high = view["cost"]
        text += f" and cost {middle:,.2f} ({low:,.2f} to {high:,.2f})"
    return text


def _state(one: RungPlan, runs: bool) -> Text:
    certificate = one["certificate"]
    if certificate is not None:
        word = "waived" if certificate["waived"] else "passed"
        return Text.assemble((word, "green"), (f" {_day(certificate['at'])}", "dim"), " again" if runs else "")
    because = f": {' and '.join(one['changed'])} changed" if one["changed"] else ""
    return Text(f"{'to run' if runs else 'not passed'}{because}", "yellow" if runs else "dim")


def _hours(hours: JsonFloat) -> str:
    hours = float(hours)
    seconds = hours * 3600
    return f"{hours:,.1f} h" if hours >= 1 else f"{seconds / 60:.1f} min" if seconds >= 60 else f"{seconds:.0f} s"


def _day(at: float) -> str:
    return datetime.datetime.fromtimestamp(at).strftime("%Y-%m-%d %H:%M")
