"""`muster runs tag`: sets and removes tags of runs."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.text import Text

from muster.cli import complete
from muster.cli.call import Json, Usage
from muster.cli.connect import client
from muster.cli.output import emit, out


def tag(
    ref: Annotated[str, typer.Argument(metavar="RUN", help="Id, number or name.", autocompletion=complete.jobs)],
    tags: Annotated[list[str] | None, typer.Argument(metavar="[NAME=VALUE]", help="Tags to set.")] = None,
    remove: Annotated[
        list[str] | None, typer.Option("--remove", "-r", help="A tag to remove; may be repeated.")
    ] = None,
    json: Json = False,
) -> None:
    """Set and remove tags of a run; without any, list them."""
    values: dict[str, str | None] = dict.fromkeys(remove or ())
    for one in tags or ():
        name, sign, value = one.partition("=")
        if not sign or not name:
            raise Usage(f"Got {one!r}.", "Expected NAME=VALUE, such as candidate=yes.")
        values[name] = value
    with client() as to:
        run = to.run(ref)
        found = to.set_tags(run.id, values) if values else run.tags
    if json:
        emit({"id": run.id, "tags": found})
        return
    for name, value in sorted(found.items()):
        out().print(Text.assemble((name, "bold"), f" = {value}"))
