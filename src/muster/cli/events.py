"""`muster events`: the event log, which is the audit log."""

from __future__ import annotations

import json as json_lib
from typing import Annotated, Any

import typer
from rich.text import Text

from muster.api.events import EventView
from muster.cli import complete, format
from muster.cli.call import Json
from muster.cli.connect import client
from muster.cli.event_words import words
from muster.cli.output import emit, out


def events(
    actor: Annotated[str | None, typer.Option(help="Only what this user or part of Muster did.")] = None,
    job: Annotated[str | None, typer.Option(help="Only of this job.", autocompletion=complete.jobs)] = None,
    kind: Annotated[str | None, typer.Option(help="Only of this kind, such as job.submitted.")] = None,
    project: Annotated[str | None, typer.Option(help="Only of this project.", autocompletion=complete.projects)] = None,
    last: Annotated[int, typer.Option("--last", "-n", min=1, help="The last so many.")] = 50,
    everything: Annotated[bool, typer.Option("--all", "-a", help="From the beginning.")] = False,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as they happen.")] = False,
    json: Json = False,
) -> None:
    """Print the event log; with --json one document, or with --follow one object a line."""
    with client() as to:
        job_id = to.job(job).id if job else None
        found = to.events(
            actor=actor, job=job_id, kind=kind, project=project, last=None if everything else last, follow=follow
        )
        if json and not follow:
            emit({"events": list(found)})
            return
        screen = out()
        for event in found:
            if json:
                emit(event)
            else:
                # Cut at the edge of a terminal, complete for a file or another program.
                screen.print(_line(event, screen.is_terminal), soft_wrap=not screen.is_terminal, no_wrap=True)


def _details(kind: str, data: dict[str, Any]) -> str:
    """A short description of the event: its words, its reason, the job's command, or else all its data."""
    if (plain := words(kind, data)) is not None:
        return plain
    if isinstance(reason := data.get("reason"), dict):
        return str(reason["message"])
    if isinstance(spec := data.get("spec"), dict):
        return str(spec["run"])
    return json_lib.dumps(data) if data else ""


def _line(event: EventView, cut: bool) -> Text:
    about = " ".join(filter(None, [event["job"], f"attempt {event['attempt']}" if event["attempt"] else ""]))
    details = _details(event["kind"], event["data"])
    line = Text.assemble(
        (f"{event['seq']:>6} {format.clock(event['time'])}  ", "dim"),
        (f"{event['kind']:<18} ", "bold"),
        (f"{event['actor']:<10} ", "cyan"),
        (f"{about}  " if about else ""),
        (details, "dim"),
    )
    line.overflow = "ellipsis" if cut else None
    return line
