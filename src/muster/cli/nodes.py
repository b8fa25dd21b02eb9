"""`muster nodes`: the machines, what is free on them, and which of them may be used."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from muster.api.capacity import CapacityView
from muster.api.cluster import NodeView
from muster.cli import complete, format, node_history, node_record
from muster.cli.call import Json, Usage
from muster.cli.connect import client
from muster.cli.group import group
from muster.cli.lazy import load
from muster.cli.node_history import Csv, Every, History, Pool, Since
from muster.cli.node_record import Before, Limit
from muster.cli.output import emit, out, show_table, table

app = group("List nodes, drain them and put them back; see what they were used for.")
Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the node.", autocompletion=complete.nodes)]
Names = Annotated[list[str], typer.Argument(metavar="NAME", help="Names of nodes.", autocompletion=complete.nodes)]
Reason = Annotated[str, typer.Option("--reason", "-r", help="Why, for those who wonder.")]
HEALTH_STYLES = {"healthy": "green", "draining": "yellow", "suspect": "yellow", "quarantined": "red"}


@app.command()
def ls(
    history: History = False,
    pool: Pool = None,
    since: Since = None,
    every: Every = None,
    csv: Csv = False,
    json: Json = False,
) -> None:
    """List the nodes, or with --history show what they were used for."""
    if history:
        node_history.show(pool, since, every, csv, json)
        return
    if since or every or csv:
        raise Usage("--since, --every and --csv belong to --history.", "Add --history, or leave them out.")
    _list(pool, json)


@app.callback(invoke_without_command=True)
def bare(
    ctx: typer.Context,
    history: History = False,
    pool: Pool = None,
    since: Since = None,
    every: Every = None,
    csv: Csv = False,
    json: Json = False,
) -> None:
    if ctx.invoked_subcommand is None:
        ls(history, pool, since, every, csv, json)


def _list(pool: str | None, json: bool) -> None:
    with client() as to:
        nodes = [node for node in to.nodes() if pool in (None, node["pool"])]
        pools = [one for one in to.capacity() if pool in (None, one["pool"])]
        rules = to.rules()["rules"] if not json else {}
    if json:
        emit({"nodes": nodes, "stranded": [_stranded(one) for one in pools if one["accelerator"]]})
        return
    several = {node["engine"] for node in nodes} - {"local"}
    engine = ("engine",) if several else ()
    failed = ("failures",) if any(node["failures"] for node in nodes) else ()
    made = table("name", *engine, "pool", "health", *failed, "cpus free", "memory free", "accelerators free", "jobs")
    for node in nodes:
        health = Text(node["health"], style=HEALTH_STYLES.get(node["health"], ""))
        health.append(f" ({node['why']})" if node["why"] else ", spare" if node["spare"] else "")
        where = [node["engine"]] if several else []
        many = [str(node["failures"])] if failed else []
        made.add_row(Text(node["name"], style="bold"), *where, node["pool"], health, *many, *_free(node), _jobs(node))
    show_table(made)
    for name, rule in sorted(rules.get("pools", {}).items()):
        if rule.get("spares") and pool in (None, name):
            free = sum(node["spare"] and node["pool"] == name for node in nodes)
            out().print(f"pool {name}: {free} of {rule['spares']} spares are free, for jobs that lose a node")
    for one in pools:
        if any(one["stranded"].values()):
            out().print(Text(stranded_sentence(one)))


def stranded_sentence(one: CapacityView) -> str:
    """How many free accelerators no typical request could use, and what is missing beside them."""
    lack = one["stranded"]
    parts = (
        (lack["cpus"], "CPUs"),
        (lack["memory"], "memory"),
        (lack["accelerators"], "more accelerators or the rest of a shared one"),
    )
    missing = ", ".join(f"{count:g} lack {what}" for count, what in parts if count)
    total = sum(count for count, _ in parts)
    return f"pool {one['pool']}: {total:g} free {one['accelerator']} are of no use to typical jobs ({missing})"


@app.command()
def drain(
    name: Name,
    reason: Reason = "",
    json: Json = False,
) -> None:
    """Start nothing new on a node; what runs there goes on."""
    _set(name, "draining", reason, json)


@app.command()
def undrain(name: Name, json: Json = False) -> None:
    """Use a node again."""
    _set(name, "healthy", "", json)


@app.command()
def quarantine(name: Name, reason: Reason = "", json: Json = False) -> None:
    """Take a node out as faulty: nothing starts there until it is released; what runs there goes on."""
    _set(name, "quarantined", reason, json)


@app.command()
def release(name: Name, json: Json = False) -> None:
    """Use a node again that was quarantined, by a person or by a check."""
    _set(name, "healthy", "", json)


@app.command()
def check(names: Names, json: Json = False) -> None:
    """Check nodes now: disk, memory, kernel log and devices. The exit code is 1 if a check failed."""
    node_record.check(names, json)


@app.command()
def history(name: Name, limit: Limit = 50, before: Before = None, json: Json = False) -> None:
    """Show what happened to a node: failures, checks, changes of its health, stragglers. The newest is last."""
    node_record.history(name, limit, before, json)


@app.command()
def exporter(
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 for any that is free.")] = 9400,
    host: Annotated[str, typer.Option(help="Address to listen on; this machine alone if unset.")] = "127.0.0.1",
    name: Annotated[str, typer.Option(help="Name of this node; its host name if unset.")] = "",
    pool: Annotated[str, typer.Option(help="Pool of this node, as a label.")] = "",
    token_file: Annotated[Path | None, typer.Option(help="File with a token that requests must have.")] = None,
    json: Json = False,
) -> None:
    """Offer the figures of this machine and its accelerators to Prometheus, until it is stopped. Needs no server."""
    load("muster.cli.node_exporter:serve")(host, port, name, pool, token_file, json)


def _stranded(one: CapacityView) -> dict[str, object]:
    return {"pool": one["pool"], "accelerator": one["accelerator"], "free": one["free"], "missing": one["stranded"]}


def _set(name: str, health: str, reason: str, json: bool) -> None:
    with client() as to:
        node = to.set_health(name, health, reason)
    if json:
        emit(node)
        return
    running = f", {len(node['jobs'])} still running there" if node["jobs"] and health != "healthy" else ""
    out().print(Text(f"{name} is {node['health']}{running}"))


def _jobs(node: NodeView) -> str:
    """The jobs on the node; "others" for use of an engine's machine that Muster does not know."""
    names = ", ".join(node["jobs"])
    used = node["used"]
    others = used is not None and not names and (used["cpus"] or used["accelerators"])
    return names or ("others" if others else "")


def _free(node: NodeView) -> list[str]:
    total, free = node["total"], node["free"]
    kind = f" {total['accelerator']}" if total["accelerators"] else ""
    return [
        f"{free['cpus']:g}/{total['cpus']:g}",
        f"{format.size(free['memory'])} of {format.size(total['memory'])}",
        f"{free['accelerators']}/{total['accelerators']}{kind}" if total["accelerators"] else "-",
    ]
