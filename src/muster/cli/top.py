"""`muster top`: the cluster and its jobs on one live screen."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.console import Group
from rich.table import Table
from rich.text import Text

from muster.api.cluster import NodeView
from muster.cli import complete, format
from muster.cli.call import Json
from muster.cli.connect import client
from muster.cli.jobs import jobs_table
from muster.cli.live_screen import EVERY, watch_screen
from muster.cli.nodes import HEALTH_STYLES
from muster.cli.output import emit, out, table
from muster.cli.top_ranks import top_ranks
from muster.client import Client, Job

_BAR = 12  # characters
_WIDE = 130  # columns of a terminal that has room for bars
_NODES = 12  # nodes that are shown one by one; of more, the fullest and those with trouble
_JOBS = 200
_ACTIVE = ("starting", "running", "stopping")


def top(
    job: Annotated[
        str | None, typer.Argument(metavar="[JOB]", help="Its ranks instead.", autocompletion=complete.jobs)
    ] = None,
    pool: Annotated[str | None, typer.Option(help="Only the nodes of this pool.")] = None,
    queue: Annotated[str | None, typer.Option(help="Only this queue's jobs.", autocompletion=complete.queues)] = None,
    every: Annotated[float, typer.Option(min=0.5, metavar="SECONDS", help="The interval.")] = EVERY,
    once: Annotated[bool, typer.Option("--once", help="Show it once.")] = False,
    json: Json = False,
) -> None:
    """Show nodes and jobs, live: what is used, what runs and how far it is, what waits and why. Ctrl-C leaves.

    What is used is what jobs hold, not how busy they keep it. With a job: what each of its ranks does, and which is
    unlike the others. --json prints one document, once."""
    with client() as to:
        if job is not None:
            top_ranks(to, job, every, once, json)
        elif json:
            nodes, jobs = _look(to, pool, queue)
            emit({"nodes": nodes, "jobs": [job.raw for job in jobs]})
        elif once or not out().is_terminal:
            out().print(_screen(*_look(to, pool, queue), most=_NODES))
        else:
            height = out().height
            watch_screen(lambda: (_screen(*_look(to, pool, queue), most=max(3, height // 3)), False), every)


def _look(to: Client, pool: str | None, queue: str | None) -> tuple[list[NodeView], list[Job]]:
    nodes = [node for node in to.nodes() if pool in (None, node["pool"])]
    jobs = [*to.jobs(phase=_ACTIVE, queue=queue, limit=_JOBS), *to.jobs(phase=("queued",), queue=queue, limit=_JOBS)]
    return nodes, list({job.id: job for job in jobs}.values())


def _screen(nodes: Sequence[NodeView], jobs: list[Job], most: int) -> Group:
    running = sum(job.phase in _ACTIVE for job in jobs)
    unfit = sum(node["health"] != "healthy" for node in nodes)
    words = [
        format.clock(time.time()),
        f"{len(nodes)} node{'s' if len(nodes) != 1 else ''}" + (f", {unfit} not healthy" if unfit else ""),
        *_sums(nodes),
        f"{running} running, {len(jobs) - running} queued",
    ]
    shown = sorted(nodes, key=lambda node: (node["health"] == "healthy", -_used(node), node["name"]))[:most]
    more = [Text(f"and {len(nodes) - len(shown)} more nodes", style="dim")] if len(nodes) > len(shown) else []
    below = [jobs_table(jobs)] if jobs else [Text("No jobs.", style="dim")]
    return Group(Text("   ".join(words), style="bold"), Text(""), _nodes_table(shown), *more, Text(""), *below)


def _sums(nodes: Sequence[NodeView]) -> list[str]:
    """Used and total, of each kind of accelerator and of the CPUs."""
    kinds: dict[str, list[float]] = {}
    for node in nodes:
        total, free = node["total"], node["free"]
        amounts: list[tuple[str, float, float]] = [("CPUs", total["cpus"], free["cpus"])]
        if total["accelerators"]:
            amounts.insert(0, (total["accelerator"] or "accelerators", total["accelerators"], free["accelerators"]))
        for name, whole, left in amounts:
            found = kinds.setdefault(name, [0.0, 0.0])
            found[0] += whole - left
            found[1] += whole
    return [f"{name} {used:g}/{whole:g}" for name, (used, whole) in kinds.items()]


def _nodes_table(nodes: Sequence[NodeView]) -> Table:
    made = table("node", "pool", "health", "accelerators", "cpus", "memory", "jobs")
    for node in nodes:
        total, free = node["total"], node["free"]
        made.add_row(
            Text(node["name"], style="bold"),
            node["pool"],
            Text(node["health"], style=HEALTH_STYLES.get(node["health"], "")),
            _bar(total["accelerators"], free["accelerators"], "{:g}/{:g}".format),
            _bar(total["cpus"], free["cpus"], "{:g}/{:g}".format),
            _bar(total["memory"], free["memory"], lambda used, whole: f"{format.size(used)} of {format.size(whole)}"),
            ", ".join(node["jobs"]),
        )
    return made


def _bar(total: float, free: float, words: Any) -> Text:
    if not total:
        return Text("-", style="dim")
    used = total - free
    if out().width < _WIDE:
        return Text(words(used, total))
    filled = round(_BAR * min(1.0, max(0.0, used / total)))
    return Text.assemble(("━" * filled, "blue"), ("╌" * (_BAR - filled), "dim"), f" {words(used, total)}")


def _used(node: NodeView) -> float:
    """The share of the node that is used, by its scarcest resource."""
    total, free = node["total"], node["free"]
    pairs = [(total[name], free[name]) for name in ("accelerators", "cpus", "memory")]
    return max((1 - left / whole for whole, left in pairs if whole), default=0.0)
