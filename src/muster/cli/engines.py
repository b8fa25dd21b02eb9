"""`muster engines`: the clusters that jobs run on, their state, and what each can do."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from muster.api.cluster import NodeView
from muster.api.engines import EngineView
from muster.cli import complete, format
from muster.cli.call import Json
from muster.cli.connect import client
from muster.cli.group import bare_lists, group
from muster.cli.node_history import seconds
from muster.cli.output import emit, note, out, show_table, table

app = group("List the engines that jobs run on; look at one; compare its books with Muster's.")
Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the engine.", autocompletion=complete.engines)]


@app.command()
def ls(json: Json = False) -> None:
    """List the engines."""
    with client() as to:
        engines = to.engines()
    if json:
        emit({"engines": engines})
        return
    right = ("nodes", "running", "waiting")
    made = table("name", "kind", "condition", "nodes", "pools", "running", "waiting", "can", right=right)
    for one in engines:
        gangs = one["gangs"]
        cells = [_nodes(one), ", ".join(one["pools"]), str(gangs["running"]), str(gangs["waiting"])]
        able = Text(", ".join(one["abilities"]), style="dim")
        made.add_row(Text(one["name"], style="bold"), one["kind"], _condition(one), *cells, able)
    show_table(made)
    for one in engines:
        said = one["trouble"] or one["detail"]
        if not one["ok"] and said:
            note((f"{one['name']}: {said}", "yellow"), (f"  {one['hint']}" if one["hint"] else "", "green"))


bare_lists(app, ls)


@app.command()
def show(name: Name, json: Json = False) -> None:
    """Show one engine: what it is connected to, its pools, and what it can do."""
    with client() as to:
        one = to.engine(name)
        nodes = [node for node in to.nodes() if node["engine"] == name]
    if json:
        emit({**one, "machines": nodes})
        return
    screen = out()
    screen.print(Text.assemble((one["name"], "bold"), f" ({one['kind']}) ", _condition(one)))
    card = Table.grid(padding=(0, 2))
    card.add_column(style="dim")
    card.add_column(overflow="fold")
    for title, text in _rows(one, nodes):
        card.add_row(f"  {title}", text)
    screen.print(card, soft_wrap=False)


@app.command()
def usage(
    name: Name,
    since: Annotated[str, typer.Option(help="What ended so long ago, or later.")] = "7d",
    json: Json = False,
) -> None:
    """Show what the engine's own books say that attempts used."""
    with client() as to:
        found = to.engine_usage(name, seconds("--since", since))
    if json:
        emit(found)
        return
    if not found["usage"]:
        note(f"{name} has nothing on record since {since} ago.")
        return
    right = ("attempt", "lasted", "accelerator hours", "CPU hours")
    made = table("job", "attempt", "state", "nodes", "lasted", "accelerator hours", "CPU hours", right=right)
    for one in found["usage"]:
        lasted = (one["ended_at"] or 0) - one["started_at"] if one["started_at"] and one["ended_at"] else None
        hours = [f"{one[unit] / 3600:.2f}" for unit in ("accelerator_seconds", "cpu_seconds")]
        cells = [str(one["attempt"]), one["state"], ", ".join(one["nodes"]), format.span(lasted)]
        made.add_row(Text(one["job"], style="bold"), *cells, *hours)
    show_table(made)


@app.command()
def reconcile(
    name: Name,
    since: Annotated[str, typer.Option(help="Attempts that ended so long ago, or later.")] = "7d",
    json: Json = False,
) -> None:
    """Compare the engine's own books with Muster's. The exit code is 1 if they differ."""
    with client() as to:
        found = to.reconcile_engine(name, seconds("--since", since))
    differences = found["differences"]
    if json:
        emit(found)
    elif not differences:
        out().print(Text(f"{found['attempts']} attempts and {found['records']} records of {name} agree."))
    else:
        made = table("job", "attempt", "differs in", "Muster", name, right=("attempt",))
        for one in differences:
            cells = [_moment(one["what"], one[whose]) for whose in ("ours", "theirs")]
            made.add_row(Text(one["job"], style="bold"), str(one["attempt"]), one["what"].replace("_", " "), *cells)
        show_table(made)
        note(f"{found['attempts']} attempts and {found['records']} records were compared.")
    if differences:
        raise typer.Exit(1)


def _moment(what: str, text: str) -> str:
    """Formats times, which are reported in seconds since 1970."""
    return format.clock(float(text)) if what in ("started", "ended", "unknown_to_engine") and text != "-" else text


def _rows(one: EngineView, nodes: list[NodeView]) -> list[tuple[str, Text]]:
    there = one["ok"] or one["trouble"]
    rows = [("connected to" if there else "what is wrong", Text(one["detail"] or "-"))]
    rows += [("trouble", Text(one["trouble"], style="yellow"))] if one["trouble"] else []
    if one["hint"]:
        rows.append(("what to do", Text(one["hint"], style="green")))
    rows.append(("pools", Text(", ".join(one["pools"]) or "-")))
    rows.append(("nodes", Text(_nodes(one))))
    ill = [f"{node['name']} ({node['health']}{': ' + node['why'] if node['why'] else ''})" for node in nodes
           if node["health"] != "healthy"]  # fmt: skip
    if ill:
        rows.append(("not healthy", Text(", ".join(ill))))
    gangs = one["gangs"]
    rows.append(("gangs", Text(f"{gangs['running']} run, {gangs['waiting']} wait or start")))
    rows.append(("can", Text(", ".join(one["abilities"]) or "-")))
    rows.append(("check it", Text(f"muster doctor --engine {one['name']}", style="dim")))
    return rows


def _condition(one: EngineView) -> Text:
    if one["ok"]:
        return Text("ok", style="green")
    if one["trouble"]:
        return Text("in trouble", style="yellow")
    text = f"away for {format.since(one['since'])}" if one["since"] else "away"
    return Text(text, style="red" if one["away"] else "yellow")


def _nodes(one: EngineView) -> str:
    return str(one["nodes"]) if one["healthy"] == one["nodes"] else f"{one['healthy']}/{one['nodes']}"
