"""`muster queue`: whose share, and who waits."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from rich.text import Text

from muster.cli import complete, format
from muster.cli.call import Json
from muster.cli.connect import client
from muster.cli.group import bare_lists, group
from muster.cli.output import emit, note, out, table

app = group("List, show and create queues.")
Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the queue.", autocompletion=complete.queues)]


@app.command()
def ls(json: Json = False) -> None:
    """List the queues."""
    with client() as to:
        queues = to.queues()
    if json:
        emit({"queues": queues})
        return
    made = table("name", "project", "policy", "weight", "priority", "queued", "active", right=("queued", "active"))
    for queue in queues:
        made.add_row(Text(queue["name"], style="bold"), *_cells(queue))
    out().print(made, soft_wrap=False, crop=False)


bare_lists(app, ls)


@app.command()
def show(
    name: Name, limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=1000)] = 50, json: Json = False
) -> None:
    """Show who waits in a queue, in the order in which they would start."""
    with client() as to:
        jobs = to.line(name, limit)
    if json:
        emit({"jobs": [job.raw for job in jobs]})
    elif not jobs:
        note(f"Nobody waits in {name}.")
    else:
        made = table(
            "place", "id", "priority", "needs", "user", "waits", "reason", right=("place", "priority", "waits")
        )
        for place, job in enumerate(jobs, start=1):
            needs = f"{job.num_nodes} x {format.resources(job.resources)}"
            reason = Text(job.reason.message if job.reason else "", style="dim")
            cells = [str(job.priority), needs, job.user, format.since(job.since)]
            made.add_row(str(place), Text(job.id, style="bold"), *cells, reason)
        out().print(made, soft_wrap=False, crop=False)


@app.command()
def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the queue.")],
    project: Annotated[
        str, typer.Option(help="Project that it belongs to.", autocompletion=complete.projects)
    ] = "default",
    policy: Annotated[str | None, typer.Option(help="Order in which its jobs start.")] = None,
    weight: Annotated[float | None, typer.Option(help="Its share next to the other queues.")] = None,
    min_priority: Annotated[int | None, typer.Option(min=0, max=100, help="Lowest priority it admits.")] = None,
    max_priority: Annotated[int | None, typer.Option(min=0, max=100, help="Highest priority it admits.")] = None,
    json: Json = False,
) -> None:
    """Create a queue, or change it."""
    with client() as to:
        queue = to.create_queue(
            name, project, policy=policy, weight=weight, min_priority=min_priority, max_priority=max_priority
        )
    if json:
        emit(queue)
    else:
        out().print(Text(f"queue {name} of project {project} is there"))


def _cells(queue: dict[str, Any]) -> list[str]:
    priorities = f"{queue['min_priority']}-{queue['max_priority']}"
    shown = [queue["project"], queue["policy"], f"{queue['weight']:g}", priorities, queue["queued"], queue["active"]]
    return [str(value) for value in shown]
