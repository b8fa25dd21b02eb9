"""`muster runs rm`: deletes runs permanently, or hides and restores them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from muster.cli import complete
from muster.cli.call import Json, Usage
from muster.cli.connect import for_each
from muster.client import Client


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

    def one(to: Client, ref: str) -> tuple[Mapping[str, Any], str]:
        if restore or hide:
            run = to.restore_run(ref) if restore else to.delete_run(ref, purge=False)
            return run, f"{run['id']} is {'hidden' if hide else 'listed again'}"
        gone: Mapping[str, Any] = to.delete_run(ref, purge=True)
        return gone, f"{gone['id']} is deleted: {sum(gone['rows'].values()):,} rows"

    for_each("runs", refs, one, json)
