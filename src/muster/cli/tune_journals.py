"""`muster tune journals`: where the studies of Optuna are kept that use this server as their storage."""

from __future__ import annotations

import time
from typing import Annotated

import typer
from rich.text import Text

from muster.cli import complete
from muster.cli.call import Json
from muster.cli.connect import client
from muster.cli.output import emit, out
from muster.core.units import format_size


def journals(
    project: Annotated[
        str, typer.Option("--project", "-p", help="Whose journals.", autocompletion=complete.projects)
    ] = "default",
    delete: Annotated[str, typer.Option("--delete", metavar="NAME", help="Delete one with all of its studies.")] = "",
    json: Json = False,
) -> None:
    """List a project's journals, in which Optuna keeps studies with `storage="muster://"`.

    `optuna studies --storage muster://` lists the studies of one.
    """
    with client() as to:
        if delete:
            done = to.delete_optuna_journal(delete, project)
            if json:
                emit(done)
            else:
                out().print(Text(f"Deleted the journal {delete} of {project}, and its studies."))
            return
        found = to.optuna_journals(project)
    if json:
        emit({"journals": found})
        return
    for one in found:
        when = time.strftime("%Y-%m-%d %H:%M", time.localtime(one["updated_at"]))
        told = f"{one['logs']:,} operations, {format_size(one['bytes'])}, last {when}, made by {one['user']}"
        out().print(Text.assemble((one["name"], "bold"), f"  {told}"))
    if not found:
        out().print(Text(f"Project {project} has no journals."))
