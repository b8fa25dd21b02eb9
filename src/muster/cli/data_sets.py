"""`muster data`: the data sets that runs have read and written, by version."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer
from rich.text import Text

from muster.api.data_sets import DataVersion
from muster.cli import format
from muster.cli.call import Json
from muster.cli.connect import client
from muster.cli.output import emit, note, phase_text, show_table, table


def data(
    name: Annotated[str, typer.Argument(metavar="[NAME[@VERSION]]", help="One data set, and who used it.")] = "",
    contains: Annotated[str, typer.Option(help="Only names and versions with this text.")] = "",
    json: Json = False,
) -> None:
    """List the data sets that runs have named, or show one with the runs that read and wrote it.

    They are named by `data` in a job file and by muster.runtime.data(...), which also tells their digests."""
    with client() as to:
        if name:
            detail = to.data_set(name)
        else:
            listed = to.data_sets(contains)
    if json:
        emit(detail if name else listed)
    elif name:
        _show_versions(detail["versions"])
        made = table("run", "", "version", "phase", "project", "user", "when", right=("when",))
        for use in detail["uses"]:
            word = "read" if use["role"] == "reads" else "wrote"
            when = format.since(use["time"])
            made.add_row(
                use["run"], word, use["version"] or "-", phase_text(use["phase"]), use["project"], use["user"], when
            )
        show_table(made)
        note(f"`muster runs lineage data:{name}` shows what was made of it.")
    elif listed["data"]:
        _show_versions(listed["data"])
        if listed["more"]:
            note("There are more: see --contains.")
    else:
        note(
            "No data set matches."
            if contains
            else "No run has named a data set. Name them with `data: [c4-en@v3]` in a job file."
        )


def _show_versions(versions: Sequence[DataVersion]) -> None:
    right = ("read by", "written by", "rows", "size", "used")
    made = table("data set", "version", "read by", "written by", "rows", "size", "digest", "used", right=right)
    for one in versions:
        rows = f"{one['rows']:,}" if one["rows"] is not None else "-"
        counts = (str(one["readers"]), str(one["writers"]), rows, format.size(one["bytes"]))
        digest = one["digest"].removeprefix("sha256:")[:12] or "-"
        used = format.since(one["last_at"])
        made.add_row(Text(one["name"], style="bold"), one["version"] or "-", *counts, digest, used)
    show_table(made)
