"""`muster logbook`: the notes of people and of Muster on a run or a project, as a list or a document."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Group
from rich.markdown import Markdown
from rich.padding import Padding
from rich.text import Text

from muster.api.logbook import NoteView
from muster.cli import complete, format
from muster.cli.call import Json, Usage
from muster.cli.connect import client
from muster.cli.output import emit, note, out
from muster.cli.terminal import stdout

_STYLES = {"note": "bold", "alert": "bold red", "end": "green", "restart": "yellow", "preemption": "yellow"}


def logbook(
    run: Annotated[
        str | None, typer.Argument(metavar="RUN", help="Id, number or name.", autocompletion=complete.jobs)
    ] = None,
    project: Annotated[
        str | None,
        typer.Option("--project", "-p", help="Of a project and all its runs.", autocompletion=complete.projects),
    ] = None,
    search: Annotated[str | None, typer.Option("--search", "-s", help="Only with this text.")] = None,
    kind: Annotated[list[str] | None, typer.Option(help="Only of this kind: note, restart, change, ...")] = None,
    last: Annotated[int | None, typer.Option("--last", "-n", min=1, max=1000, help="The last so many.")] = None,
    export: Annotated[
        Path | None, typer.Option("--export", help="Write it as a Markdown document; - prints it.")
    ] = None,
    json: Json = False,
) -> None:
    """Read the logbook of a run, or of a project with all its runs."""
    if (run is None) == (project is None):
        raise Usage("One logbook at a time.", "Name a run, or a project with --project.")
    with client() as to:
        if export is not None:
            _export(to.logbook(run, project=project), export)
            return
        entries = list(to.notes(run, project=project, search=search, kinds=kind or (), last=last))
    if json:
        emit({"entries": entries})
    elif not entries:
        note("No entries", " match." if search or kind else ".")
    for entry in [] if json else entries:
        out().print(_shown(entry, named=run is None))


def _export(document: str, path: Path) -> None:
    if str(path) == "-":
        stdout().write(document)
        return
    try:
        path.write_text(document)
    except OSError as error:
        raise Usage(f"{path} can't be written: {error.strerror}.", "Name another file.") from None
    note(f"wrote {path}")


def _shown(entry: NoteView, named: bool) -> Group:
    head = Text.assemble(
        (format.clock(entry["time"]), "dim"),
        "  ",
        (entry["kind"], _STYLES.get(entry["kind"], "cyan")),
        f"  {entry['author']}",
        f"  {entry['run']}" if named and entry["run"] else "",
        f"  step {entry['doc']['step']:,}" if isinstance(entry["doc"].get("step"), int) else "",
    )
    parts: list[Any] = [head, Padding(Markdown(entry["text"]), (0, 0, 0, 2))]
    if attached := entry["doc"].get("attachments"):
        names = ", ".join(one if isinstance(one, str) else one["path"] for one in attached)
        parts.append(Padding(Text(f"attached: {names}", style="dim"), (0, 0, 0, 2)))
    return Group(*parts)
