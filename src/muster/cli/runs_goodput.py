"""`muster runs goodput`: what the held time of a run, project, queue or node went to."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import typer
from rich.text import Text

from muster.api.goodput import GoodputView, HeldTime
from muster.cli import complete, format
from muster.cli.call import Json
from muster.cli.connect import client
from muster.cli.node_history import seconds
from muster.cli.output import emit, note, out, show_table, table
from muster.client import Client
from muster.core.errors import NotFound

_START = "starting."


def goodput(
    ref: Annotated[
        str | None, typer.Argument(metavar="[RUN]", help="Id, number or name.", autocompletion=complete.jobs)
    ] = None,
    project: Annotated[str | None, typer.Option(help="Only this project.", autocompletion=complete.projects)] = None,
    queue: Annotated[str | None, typer.Option(help="Only this queue.", autocompletion=complete.queues)] = None,
    node: Annotated[str | None, typer.Option(help="Only this node.", autocompletion=complete.nodes)] = None,
    since: Annotated[
        str | None, typer.Option(help="From the UTC day so long ago: 7d unless given, for a run its whole life.")
    ] = None,
    json: Json = False,
) -> None:
    """Show what the time went to that attempts held: every accelerator-second is in one class.

    Attempts without accelerators count by their CPUs. docs/goodput.md says what the classes and the ratios mean.
    """
    span = seconds("--since", since) if since is not None else None
    with client() as to:
        found = to.goodput(ref, project=project, queue=queue, node=node, since=span)
    if json:
        emit(found)
        return
    if not found["ledgers"]:
        note(f"No attempt held seats since {format.clock(found['since'])}.")
        return
    for ledger in found["ledgers"]:
        _show(ledger, found)


def goodput_of(to: Client, run: str) -> HeldTime | None:
    """The ledger of a run, for one line of another command; None if it held nothing, or the server is older."""
    try:
        ledgers = to.goodput(run)["ledgers"]
    except NotFound:
        return None
    return ledgers[0] if ledgers else None


def share_line(ledger: HeldTime) -> str:
    """`82.1% training; the largest loss: starting.compile, 9.4%`."""
    kind, held = ledger["largest_loss"], ledger["held"]
    if ledger["training"] is None:
        return ""
    loss = f"; the largest loss: {kind}, {ledger['parts'][kind] / held:.1%}" if kind and held else ""
    return f"{ledger['training']:.1%} of the held time trained{loss}"


def start_line(ledger: HeldTime) -> str:
    """The parts of the start, over all attempts: `6.0 CPU-seconds: launch 1.2, import 4.0, build 0.8`."""
    parts = {kind.removeprefix(_START): spent for kind, spent in ledger["parts"].items() if kind.startswith(_START)}
    told = ", ".join(f"{kind} {spent:,.1f}" for kind, spent in parts.items() if spent)
    return f"{sum(parts.values()):,.1f} {_unit(ledger)}-seconds: {told}" if told else ""


def _show(ledger: HeldTime, found: GoodputView) -> None:
    held, unit = ledger["held"], _unit(ledger)
    made = table("class", f"{unit}-time", "seconds", "share", right=(f"{unit}-time", "seconds", "share"))
    for kind, spent in _rows(ledger):
        style = "bold" if kind in ("training", "held") else ""
        made.add_row(
            Text(kind, style=style), format.span(spent), f"{spent:,.1f}", f"{spent / held:.1%}" if held else "-"
        )
    show_table(made)
    shown = [("training", "training time"), ("effective", "effective training time"), ("iterations", "iterations")]
    ratios = {words: ledger[name] for name, words in shown}  # type: ignore[literal-required]
    told = ", ".join(f"{words} {value:.1%}" for words, value in ratios.items() if value is not None)
    count = f"{found['attempts']:,} attempt{'' if found['attempts'] == 1 else 's'}"
    out().print(Text(f"{told}; {count} since {format.clock(found['since'])}.", style="dim"))


def _unit(ledger: HeldTime) -> str:
    return "accelerator" if ledger["unit"] == "accelerator" else "CPU"


def _rows(ledger: HeldTime) -> Iterable[tuple[str, float]]:
    yield from ((kind, spent) for kind, spent in ledger["parts"].items() if spent or kind == "training")
    yield "held", ledger["held"]
