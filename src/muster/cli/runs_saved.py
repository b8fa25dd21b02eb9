"""`muster runs save` and `muster runs queries`: saved queries."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from muster.cli import complete
from muster.cli.call import Json
from muster.cli.connect import client
from muster.cli.output import emit, note, out, show_table, table


def save(
    name: Annotated[str, typer.Argument(help="Then `muster runs @NAME` asks it.")],
    query: Annotated[list[str], typer.Argument(metavar="QUERY", help="In quotes.")],
    sort: Annotated[str, typer.Option("--sort", "-s", help="Such as -metrics.val_loss.")] = "",
    columns: Annotated[str, typer.Option("--columns", "-c", help="Such as params.lr,metrics.val_loss.")] = "",
    project: Annotated[
        str, typer.Option("--project", "-p", help="Share it with its members.", autocompletion=complete.projects)
    ] = "",
    json: Json = False,
) -> None:
    """Keep a query under a name, for yourself or for a project."""
    names = [one.strip() for one in columns.split(",") if one.strip()]
    with client() as to:
        saved = to.save_query(name.removeprefix("@"), " ".join(query), sort=sort, columns=names, project=project)
    if json:
        emit(saved)
    else:
        shared = f" for project {project}" if project else ""
        out().print(Text(f"saved{shared}; ask it with `muster runs @{saved['name']}`"))


def queries(
    remove: Annotated[
        str | None, typer.Option("--remove", help="Take this one away; PROJECT/NAME is a project's.")
    ] = None,
    json: Json = False,
) -> None:
    """List the queries that you and your projects keep."""
    with client() as to:
        removed = to.remove_query(remove.removeprefix("@")) if remove else None
        found = to.queries()
    if json:
        emit({"queries": found, "removed": removed})
        return
    if removed:
        note(f"removed @{removed['name']}")
    elif not found:
        note("No saved queries. Keep one with `muster runs save NAME QUERY`.")
    if found:
        made = table("name", "project", "by", "query", "sort", "columns")
        for one in found:
            name = f"@{one['project']}/{one['name']}" if one["project"] else f"@{one['name']}"
            cells = (one["project"], one["user"], one["query"], one["sort"], ", ".join(one["columns"]))
            made.add_row(Text(name, style="bold"), *(Text(cell) for cell in cells))
        show_table(made)
