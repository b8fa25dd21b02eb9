"""The output of `muster submit --dry-run`: whether a job would be accepted, where it would run, and when."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.text import Text

from muster.api.cost import CostEstimate
from muster.api.jobs import DryRun
from muster.api.why import ForecastView, ReasonView, VariantView
from muster.cli.forecast import show_offers, when
from muster.cli.format import span
from muster.cli.output import cause_lines, err, out, show_table, table
from muster.core.money import format_amount

_SHOWN = 3  # maximum variants, nodes and jobs of each kind


def show_accepted(source: str, name: str, answer: DryRun, after: Sequence[str] = ()) -> None:
    """`after`: jobs of the same call that it needs; the answer is what would happen without them."""
    screen = out()
    screen.print(Text(f"{source} is in order and would be accepted as {name}"))
    nodes, pool = _listed(answer["nodes"]), f" in pool {answer['pool']}" if answer["pool"] else ""
    if after:
        _line("starts after", f"{', '.join(after)}, then:")
    if answer["starts_now"]:
        _line("would start", f"at once, on {nodes}{pool}")
    else:
        _line("would start", when(answer["forecast"]))
        for reason in answer["reasons"]:
            _line("would wait", reason["message"])
        if answer["nodes"]:
            _line("would go to", f"{nodes}{pool}")
    if answer["preempts"]:
        _line("would stop", f"{_listed(answer['preempts'])}: saved, stopped and queued again")
    for variant in answer["sooner"][:_SHOWN]:
        at = "" if "would start now" in variant["message"] else f": {_sooner(variant, answer['forecast'])}"
        screen.print(Text.assemble(("  sooner       ", "dim"), (f"{variant['message']}{at}", "green")))
    for other in answer["waits_for"][:_SHOWN]:
        _line("waits for", other["message"])
    for warning in answer.get("warnings") or ():
        _line("warning", str(warning))
    show_offers(answer["offers"])
    if (cost := answer.get("cost")) is not None:
        _show_cost(cost, answer["forecast"]["at"])


def _show_cost(cost: CostEstimate, now: float) -> None:
    """A table: the job as it is asked for, then the alternatives."""
    currency, learnt = cost["currency"], cost["source"] == "learnt"
    heads = ("an hour", "P50" if learnt else "assumed", "P90" if learnt else "limit")
    made = table("cost", "start", *heads, "", right=heads)
    for one in cost["choices"]:
        start = "-" if one["start"] is None else "now" if one["start"] <= now else f"in {span(one['start'] - now)}"
        cells = ["-" if value is None else format_amount(value) for value in (one["per_hour"], one["p50"], one["p90"])]
        where = f"{one['differs']}, pool {one['pool']}" if one["what"] == "this" and one["pool"] else one["differs"]
        change = (
            f"-o {' -o '.join(f'{key}={_value(value)}' for key, value in one['set'].items())}" if one["set"] else ""
        )
        words = "; ".join([*([change] if change else []), *one["notes"]])
        made.add_row(Text(where), start, *cells, Text(words, style="dim"))
    show_table(made)
    each = f"of one of {cost['tasks']} tasks, " if cost["tasks"] > 1 else ""
    ran = "by how long such jobs ran" if learnt else f"if it runs {span(cost['seconds_p50'])}: few jobs have ended here"
    _line("amounts", f"{each}in {currency}, {ran}")
    for words in cost["unknown"]:
        _line("not known", words)


def show_refused(source: str, reasons: Sequence[ReasonView]) -> None:
    lines = [Text.assemble(("refused: ", "bold red"), f"{source} would not be accepted")]
    for reason in reasons:
        lines += cause_lines(reason)
        if nearest := _fields(reason["data"].get("nearest") or {}):
            lines.append(Text.assemble("    nearest that would be: ", (nearest, "green")))
    err().print(Text("\n").join(lines))


def _line(name: str, text: str) -> None:
    out().print(Text.assemble((f"  {name:<12} ", "dim"), text))


def _sooner(variant: VariantView, forecast: ForecastView) -> str:
    at = variant["p50"]
    if at is None or at <= forecast["at"]:
        return "would start at once"
    return when({**forecast, "p50": at, "p90": None, "cut": [], "after": None, "never": False})


def _fields(nearest: dict[str, Any]) -> str:
    """The fields as they are written in a job file."""
    words = []
    for name, value in nearest.items():
        if isinstance(value, dict):
            inside = ", ".join(f"{key}: {_value(one)}" for key, one in value.items())
            words.append(f"{name}: {{{inside}}}")
        else:
            words.append(f"{name}: {_value(value)}" if value is not None else f"no {name}")
    return ", ".join(words)


def _value(value: Any) -> str:
    return "none" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{', '.join(names[:_SHOWN])}{more}"
