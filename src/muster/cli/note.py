"""`muster note`: writes into the logbook of a run or of a project."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from muster.cli import complete
from muster.cli.call import Json, Usage
from muster.cli.connect import client
from muster.cli.output import emit, out


def note(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN TEXT",
            help="Run, by id, number or name, and Markdown; without TEXT it is read from standard input.",
            autocompletion=complete.jobs,
        ),
    ],
    file: Annotated[list[Path] | None, typer.Option("--file", "-f", help="Attach a file; may be repeated.")] = None,
    step: Annotated[int | None, typer.Option(help="The step that it is about.")] = None,
    project: Annotated[
        str | None,
        typer.Option("--project", "-p", help="Of this project, not of a run.", autocompletion=complete.projects),
    ] = None,
    json: Json = False,
) -> None:
    """Note something for those who come after: `muster note RUN "lowered lr after the spike at 12k"`."""
    run, given = (None, words) if project is not None else (words[0], words[1:])
    if project is not None and (file or step is not None):
        raise Usage("A note of a project has neither files nor a step.", "Leave --project out to note it with a run.")
    text = " ".join(given) if given else _standard_input()
    with client() as to:
        if run is None:
            made = to.project_note(project or "default", text)
        else:
            made = to.note(run, text, files=file or (), step=step)
    if json:
        emit(made)
    else:
        where = f"project {project}" if run is None else made["run"]
        out().print(Text(f"noted in the logbook of {where}"))


def _standard_input() -> str:
    if sys.stdin.isatty():
        raise Usage("The note has no text.", 'Write it behind the run: `muster note RUN "text"`, or pipe it in.')
    return sys.stdin.read()
