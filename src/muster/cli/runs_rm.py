"""`muster runs rm`: deletes runs permanently, or hides and restores them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.text import Text

from muster.api.runs import RunDetail, RunPurged
from muster.cli import complete
from muster.cli.call import Json, Usage
from muster.cli.connect import client
from muster.cli.output import emit, out, show_error
from muster.client import Client, MusterError


def rm(
    refs: Annotated[
        list[str], typer.Argument(metavar="RUN", help="Ids, numbers or names.", autocompletion=complete.jobs)
    ],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")] = False,
    hide: Annotated[bool, typer.Option("--hide", help="Only take them out of every list.")] = False,
    restore: Annotated[bool, typer.Option("--restore", help="Take hidden runs back, by their whole ids.")] = False,
    json: Json = False,
) -> None:
    """Delete runs for good: metrics, parameters, notes, output, artifacts and checkpoints."""
    if hide and restore:
        raise Usage("--hide and --restore say the opposite.", "Give one of them.")
    if not (yes or json or hide or restore):
        typer.confirm(f"Delete {', '.join(refs)} for good, with all that was recorded and saved?", abort=True)
    results: list[Mapping[str, Any]] = []
    failed = False
    with client() as to:
        for ref in refs:
            try:
                done = _one(to, ref, hide, restore)
            except MusterError as error:
                failed = True
                results.append({"error": error.to_dict()})
                if not json:
                    show_error(error.to_dict(), as_json=False)
            else:
                results.append(done)
                if not json:
                    out().print(Text(_told(done, hide, restore)))
    if json:
        emit({"runs": results})
    if failed:
        raise typer.Exit(1)


def _one(to: Client, ref: str, hide: bool, restore: bool) -> RunDetail | RunPurged:
    return to.restore_run(ref) if restore else to.delete_run(ref, purge=not hide)


def _told(done: Mapping[str, Any], hide: bool, restore: bool) -> str:
    if hide or restore:
        return f"{done['id']} is {'hidden' if hide else 'listed again'}"
    return f"{done['id']} is deleted: {sum(done['rows'].values()):,} rows"
