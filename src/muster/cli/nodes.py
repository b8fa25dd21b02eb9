"""`muster nodes`: the machines, what is free on them, and which may be used."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.text import Text

from muster.cli import complete, format
from muster.cli.call import Json
from muster.cli.connect import client
from muster.cli.group import bare_lists, group
from muster.cli.output import emit, out, table

app = group("List nodes, drain them and put them back.")
Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the node.", autocompletion=complete.nodes)]
_HEALTH_STYLES = {"healthy": "green", "draining": "yellow", "suspect": "yellow", "quarantined": "red"}


@app.command()
def ls(json: Json = False) -> None:
    """List the nodes."""
    with client() as to:
        nodes = to.nodes()
    if json:
        emit({"nodes": nodes})
        return
    made = table("name", "pool", "health", "cpus free", "memory free", "accelerators free", "jobs")
    for node in nodes:
        health = Text(node["health"], style=_HEALTH_STYLES.get(node["health"], ""))
        health.append(f" ({node['why']})" if node["why"] else "")
        made.add_row(Text(node["name"], style="bold"), node["pool"], health, *_free(node), ", ".join(node["jobs"]))
    out().print(made, soft_wrap=False, crop=False)


bare_lists(app, ls)


@app.command()
def drain(
    name: Name,
    reason: Annotated[str, typer.Option("--reason", "-r", help="Why, for those who wonder.")] = "",
    json: Json = False,
) -> None:
    """Start nothing new on a node; what runs there goes on."""
    _set(name, "draining", reason, json)


@app.command()
def undrain(name: Name, json: Json = False) -> None:
    """Use a node again."""
    _set(name, "healthy", "", json)


def _set(name: str, health: str, reason: str, json: bool) -> None:
    with client() as to:
        node = to.set_health(name, health, reason)
    if json:
        emit(node)
        return
    running = f", {len(node['jobs'])} still running there" if node["jobs"] and health == "draining" else ""
    out().print(Text(f"{name} is {node['health']}{running}"))


def _free(node: dict[str, Any]) -> list[str]:
    total, free = node["total"], node["free"]
    kind = f" {total['accelerator']}" if total["accelerators"] else ""
    return [
        f"{free['cpus']:g}/{total['cpus']:g}",
        f"{format.size(free['memory'])} of {format.size(total['memory'])}",
        f"{free['accelerators']}/{total['accelerators']}{kind}" if total["accelerators"] else "-",
    ]
