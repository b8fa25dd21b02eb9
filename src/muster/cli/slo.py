"""`muster queue slo`: whether jobs started within the target waits of the rules."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from muster.api.history import LevelView
from muster.cli import complete, format
from muster.cli.call import Json
from muster.cli.connect import client
from muster.cli.node_history import seconds
from muster.cli.output import emit, note, show_table, table

_NUMBERS = ("target", "started", "in time", "p50", "p90", "waiting", "late")


def slo(
    queue: Annotated[
        str | None, typer.Argument(metavar="QUEUE", help="Only this queue.", autocompletion=complete.queues)
    ] = None,
    since: Annotated[str, typer.Option(help="Count the jobs that started so long ago, or later.")] = "7d",
    json: Json = False,
) -> None:
    """Show which share of jobs started within the target wait of their class.

    A wait is from submission to the first start, to the millisecond. The targets are those in force now, also for jobs
    that started under others; `muster queue rules` shows them.
    """
    with client() as to:
        found = to.service_levels(queue, seconds("--since", since))
    if json:
        emit(found)
        return
    rows = [level for level in found["levels"] if level["started"] or level["waiting"]]
    if not rows:
        note(f"No job started within {since}, and none waits.")
        return
    made = table("work", "priority", *_NUMBERS, right=_NUMBERS)
    for level in rows:
        made.add_row(Text(level["work"], style="bold"), level["priority"], *_cells(level))
    show_table(made)
    note(("p50 and p90 are of waits, from submission to the first start; late are those past their target.", "dim"))


def _cells(level: LevelView) -> list[Text]:
    share, late = level["share"], level["late"]
    in_time = Text("-" if share is None else f"{share:.1%}", style="yellow" if share is not None and share < 1 else "")
    plain = [format.span(level["target"]), str(level["started"])]
    waits = [format.span(level["p50"]), format.span(level["p90"]), str(level["waiting"])]
    return [*map(Text, plain), in_time, *map(Text, waits), Text(str(late), style="red" if late else "")]
