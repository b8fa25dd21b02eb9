"""`muster compare`: first what differs between runs, then their metrics, curves and the effect of their seeds."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

import typer
from rich.text import Text

from muster.api.compare import ComparedFiles, Comparison, DifferenceView, MetricFigures, SignificanceView, ValueRow
from muster.api.numbers import JsonFloat, number
from muster.api.words import is_measurement
from muster.cli import complete
from muster.cli.call import Json, Usage
from muster.cli.connect import client
from muster.cli.output import emit, out, phase_text, show_table, table
from muster.cli.overlay import draw_curves

_TITLES: Final = {
    "params": "parameters", "configuration": "configuration", "environment": "environment", "packages": "packages",
    "code": "code", "data": "data",
}  # fmt: skip
_WIDEST: Final = 40  # characters of a cell
_SHOWN_METRICS: Final = 12
_DIGEST: Final = re.compile(r"[0-9a-f]{40}([0-9a-f]{24})?")
_FILES: Final = 20  # files listed of each kind


def compare(
    refs: Annotated[
        list[str] | None, typer.Argument(metavar="[RUN]...", help="Two or more.", autocompletion=complete.jobs)
    ] = None,
    query: Annotated[str | None, typer.Option("--query", "-q", help="The runs that it finds, or @NAME.")] = None,
    metric: Annotated[str | None, typer.Option("--metric", "-m", help="Such as val_loss, or val_loss.min.")] = None,
    best: Annotated[str | None, typer.Option("--best", help="min or max; else guessed from the metric's name.")] = None,
    group: Annotated[str | None, typer.Option("--group", help="Groups by a field, such as params.lr.")] = None,
    by: Annotated[list[str] | None, typer.Option("--by", help="What repeats a run; else its seed.")] = None,
    everything: Annotated[bool, typer.Option("--all", "-a", help="What is the same, too.")] = False,
    diff: Annotated[bool, typer.Option("--diff", help="The changed lines of the code.")] = False,
    json: Json = False,
) -> None:
    """Put runs side by side: what differs in parameters, environment, code and data, and whether it matters."""
    if not refs and query is None:
        raise Usage("No runs were given.", "Name two or more, or give --query.")
    if best not in (None, "min", "max"):
        raise Usage(f"--best: got {best!r}.", "Expected min or max.")
    with client() as to:
        found = to.compare(refs or (), query=query, metric=metric, mode=best, group=group, by=by,
                           everything=everything, lines=diff)  # fmt: skip
        if json:
            emit(found)
            return
        _print_runs(found)
        _print_differences(found, everything)
        _print_files(found["files"])
        _print_metrics(found, everything)
        tested = found["significance"]
        if tested is not None:
            draw_curves([to.run(run["id"]) for run in found["runs"][:8]], tested["name"])
            _print_significance(tested)


def _print_runs(found: Comparison) -> None:
    for i, run in enumerate(found["runs"]):
        text = f"  {run['purpose']}" if run["purpose"] else ""
        out().print(
            Text.assemble((_letter(i), "dim"), " ", (run["id"], "bold"), " ", phase_text(run["phase"]), (text, "dim"))
        )


def _print_differences(found: Comparison, everything: bool) -> None:
    screen = out()
    heads = [_letter(i) for i in range(len(found["runs"]))]
    same: list[str] = []
    for space, title in _TITLES.items():
        rows = found["differences"][space]
        if count := found["same"][space]:
            same.append(f"{title} {count}")
        if rows:
            screen.print(Text(f"\nother {title}", style="bold"))
            _print_rows(heads, rows)
        if everything and found["equal"][space]:
            screen.print(Text(f"\nthe same {title}", style="bold"))
            _print_rows(["all"], [{"name": row["name"], "values": row["values"][:1]} for row in found["equal"][space]])
    if not any(found["differences"].values()):
        screen.print(Text("\nNothing differs that was captured.", style="bold"))
    if same:
        screen.print(Text(f"the same: {', '.join(same)}", style="dim"))


def _print_rows(heads: list[str], rows: Sequence[ValueRow]) -> None:
    made = table("", *heads)
    for row in rows:
        made.add_row(Text(row["name"], style="bold"), *(_cell(value) for value in row["values"]))
    show_table(made)


def _print_files(files: ComparedFiles | None) -> None:
    screen = out()
    changes: Sequence[Mapping[str, Any]] = files["changes"] if files else ()
    for change in changes:
        screen.print(Text(f"\nfiles of {change['run']} against {files['base'] if files else ''}", style="bold"))
        if change["problem"]:
            screen.print(Text(f"  {change['problem']}", style="yellow"))
        for name, sign, style in (("changed", "~", "yellow"), ("added", "+", "green"), ("removed", "-", "red")):
            for path in change[name][:_FILES]:
                screen.print(Text(f"  {sign} {path}", style=style))
            if len(change[name]) > _FILES:
                screen.print(Text(f"  and {change['counts'][name] - _FILES} more {name}", style="dim"))
        for line in (change["diff"] or "").splitlines():
            style = {"+": "green", "-": "red", "@": "cyan"}.get(line[:1], "")
            screen.print(Text(line, style=style))


def _print_metrics(found: Comparison, everything: bool) -> None:
    rows = [row for row in found["metrics"] if everything or is_measurement(row["name"])]
    if not rows:
        return
    heads = [_letter(i) for i in range(len(found["runs"]))]
    out().print(Text("\nmetrics, last (lowest to highest)", style="bold"))
    made = table("", *heads, right=tuple(heads))
    for row in rows if everything else rows[:_SHOWN_METRICS]:
        made.add_row(Text(row["name"], style="bold"), *(_summary(one) for one in row["runs"]))
    show_table(made)
    if len(rows) > _SHOWN_METRICS and not everything:
        out().print(Text(f"and {len(rows) - _SHOWN_METRICS} more; --all shows them", style="dim"))


def _print_significance(tested: SignificanceView) -> None:
    screen = out()
    better = "lower" if tested["mode"] == "min" else "higher"
    screen.print(Text(f"\n{tested['metric']} by group, {better} is better", style="bold"))
    made = table("group", "runs", "mean", "95 % interval", "deviation", right=("runs", "mean", "deviation"))
    for group in tested["groups"]:
        interval = "" if group["low"] is None else f"{_plain(group['low'])} to {_plain(group['high'])}"
        cells = (str(group["count"]), _plain(group["mean"]), interval, _plain(group["deviation"]))
        made.add_row(Text(group["label"], style="bold green" if group["best"] else "bold"), *cells)
    if tested["groups"]:
        show_table(made)
    for one in tested["differences"]:
        screen.print(_verdict(one))
    for text in tested["notes"]:
        screen.print(Text(text, style="yellow"))
    if tested["left_out"]:
        screen.print(Text(f"without a number, and left out: {', '.join(tested['left_out'])}", style="dim"))


def _verdict(one: DifferenceView) -> Text:
    first, second = one["labels"]
    if one["adjusted"] is None:
        return Text(f"  {first} and {second}: {one['why']}", style="dim")
    difference, low, high, adjusted = map(number, (one["difference"], one["low"], one["high"], one["adjusted"]))
    word = "lower" if difference < 0 else "higher"
    interval = f"{difference:+.4g} (95 % from {low:+.4g} to {high:+.4g})"
    chance = f"p = {adjusted:.2g}" if adjusted >= 1e-4 else "p < 0.0001"
    if adjusted < 0.05:
        return Text.assemble(f"  {first} is {word} than {second}: {interval}, ", (chance, "bold green"))
    few = f"; {one['why']}" if one["why"] else ""
    return Text(f"  {first} and {second}: no difference shown, {interval}, {chance}{few}", style="dim")


def _letter(i: int) -> str:
    """A, B, ... Z, AA, ..."""
    return (_letter(i // 26 - 1) if i >= 26 else "") + chr(ord("A") + i % 26)


def _cell(value: str | None) -> Text:
    if value is None:
        return Text("-", style="dim")
    text = value[:12] if _DIGEST.fullmatch(value) else " ".join(value.split())
    return Text(text if len(text) <= _WIDEST else f"{text[: _WIDEST - 1]}…")


def _summary(one: MetricFigures | None) -> str:
    if one is None:
        return "-"
    spread = f" ({number(one['min']):.4g} to {number(one['max']):.4g})" if one["min"] is not None else ""
    return f"{number(one['last']):.5g}{spread}"


def _plain(value: JsonFloat | None) -> str:
    return "" if value is None else f"{number(value):.5g}"
