"""`muster runs failures`: what ended attempts, on which nodes and with which code, and how often to save."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer
from rich.text import Text

from muster.api.failures import FailureCount, FailuresView
from muster.cli import format
from muster.cli.call import Json
from muster.cli.connect import client
from muster.cli.node_history import seconds
from muster.cli.output import emit, note, out, show_table, table

_SHOWN = 20  # nodes and versions of code


def failures(
    since: Annotated[str, typer.Option(help="Count the attempts that ended so long ago, or later.")] = "30d",
    project: Annotated[str | None, typer.Option(help="Only this project.")] = None,
    json: Json = False,
) -> None:
    """Show failures by cause, node and code, the time between them, and the checkpoint interval that follows.

    The time between failures counts those of nodes and workers. Errors of programs are listed, but not counted.
    """
    with client() as to:
        found = to.failures(seconds("--since", since), project)
    if json:
        emit(found)
        return
    if not found["failures"]:
        note(f"None of {found['attempts']} attempts failed within {since}.")
        return
    _list("cause", found["causes"])
    _list("code", found["codes"])
    _list_nodes(found)
    out().print(Text(_summary(found)))
    if not found["whole"]:
        note("There were more attempts; only those of the newest runs are counted. Give a shorter --since.")


def _list(name: str, counts: Sequence[FailureCount]) -> None:
    made = table(name, "failures", right=("failures",))
    for one in counts[:_SHOWN]:
        made.add_row(Text(one["name"] or "not recorded", style="bold"), str(one["failures"]))
    show_table(made)


def _list_nodes(found: FailuresView) -> None:
    right = ("failures", "counted", "busy", "between failures")
    made = table("node", *right, right=right)
    for one in found["nodes"][:_SHOWN]:
        between = "-" if one["between"] is None else format.span(one["between"])
        cells = (str(one["failures"]), str(one["counted"]), format.span(one["busy"]), between)
        made.add_row(Text(one["node"], style="bold"), *cells)
    show_table(made)


def _summary(found: FailuresView) -> str:
    if found["between"] is None:
        return f"{found['failures']} of {found['attempts']} attempts failed, all of them by errors of the program."
    lines = [f"A node fails every {format.span(found['between'])} on average."]
    for one in found["intervals"]:
        if one["interval"] is not None and found["save"] is not None:
            gang = f"{one['nodes']} node{'s' if one['nodes'] > 1 else ''}"
            save = f"save every {format.span(one['interval'])} (a save takes {found['save']:.2g} s)"
            lines.append(f"  {gang}: a failure every {format.span(one['between'])}; {save}.")
    return "\n".join(lines)
