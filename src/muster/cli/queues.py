"""`muster queue`: queues, their shares, and their waiting jobs."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from muster.api.cluster import QueueView
from muster.cli import complete, format
from muster.cli.call import Json
from muster.cli.connect import client
from muster.cli.forecast import forecast
from muster.cli.group import bare_lists, group
from muster.cli.output import emit, note, out, show_table, table
from muster.cli.rules import apply, rules
from muster.cli.slo import slo

app = group("List, show and create queues, and the rules that they are held to.")
Name = Annotated[str, typer.Argument(metavar="NAME", help="Name of the queue.", autocompletion=complete.queues)]


@app.command()
def ls(json: Json = False) -> None:
    """List the queues."""
    with client() as to:
        queues = to.queues()
    if json:
        emit({"queues": queues})
        return
    numbers = ("weight", "queued", "active")
    made = table("name", "project", "order", "weight", "quota", "priority", "queued", "active", right=numbers)
    for queue in queues:
        made.add_row(Text(queue["name"], style="bold"), *_cells(queue))
    show_table(made)


bare_lists(app, ls)
app.command()(forecast)
app.command()(slo)
app.command()(rules)
app.command()(apply)


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
            reason = Text(job.reason.code if job.reason else "", style="dim")
            cells = [str(job.priority), needs, job.user, format.since(job.since)]
            made.add_row(str(place), Text(job.id, style="bold"), *cells, reason)
        show_table(made)
        note(("`muster why ID` says what a reason comes to, and what would change it.", "dim"))


@app.command()
def create(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the queue.")],
    project: Annotated[
        str, typer.Option(help="Project that it belongs to.", autocompletion=complete.projects)
    ] = "default",
    min_priority: Annotated[int | None, typer.Option(min=0, max=100, help="Lowest priority it admits.")] = None,
    max_priority: Annotated[int | None, typer.Option(min=0, max=100, help="Highest priority it admits.")] = None,
    json: Json = False,
) -> None:
    """Create a queue, or change it."""
    with client() as to:
        queue = to.create_queue(name, project, min_priority=min_priority, max_priority=max_priority)
    if json:
        emit(queue)
    else:
        out().print(Text(f"queue {name} of project {project} is there"))


def _cells(queue: QueueView) -> list[str]:
    priorities = f"{queue['min_priority']}-{queue['max_priority']}"
    quota = ", ".join(f"{pool}:{amount}" for pool, amount in queue["quota"].items()) or "-"
    ruled = [queue["order"], f"{queue['weight']:g}", quota]
    return [queue["project"], *ruled, priorities, str(queue["queued"]), str(queue["active"])]
