"""`muster tune change FILE`: puts another study file in force, after showing what is different."""

from __future__ import annotations

import sys
from typing import Annotated

import typer
from rich.text import Text

from muster.cli import complete
from muster.cli.call import Json, Usage
from muster.cli.connect import client, sees_our_files
from muster.cli.output import emit, note, out
from muster.cli.submit import Overrides
from muster.cli.tune_start import prepared
from muster.cli.tune_steer import show_changes
from muster.client.study_file import StudyFile
from muster.core.errors import Invalid


def change(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Study file.")],
    study: Annotated[
        str | None,
        typer.Argument(
            metavar="[STUDY]", help="The one of the file's name unless given.", autocompletion=complete.studies
        ),
    ] = None,
    override: Overrides = None,
    check: Annotated[bool, typer.Option("--check", help="Only show what would change.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")] = False,
    json: Json = False,
) -> None:
    """Put another study file, and its job, in force: shows what changes, and asks. A study that is over goes on.

    The objective can't be changed. Trials that run keep their job, and nothing is learnt from those outside of a
    smaller space.
    """
    with client() as to:
        given = prepared(file, override or (), sees_our_files(to))
        ref = study or _name(given)
        found = to.change_study(ref, given, dry_run=True)
        if check or not found["changes"]:
            if json:
                emit(found)
            elif found["changes"]:
                show_changes(found)
            else:
                note("Nothing is different.")
            return
        if not yes:
            if json or not sys.stdin.isatty():
                raise Usage("Nobody can be asked here.", "Add --yes, or look with --check.")
            show_changes(found)
            if not typer.confirm("Put it in force?"):
                raise typer.Exit(1)
        done = to.change_study(ref, given)
    if json:
        emit(done)
    elif yes:
        show_changes(done)
    else:
        out().print(Text("in force"))


def _name(given: StudyFile) -> str:
    if not given.name:
        raise Invalid(f"{given.source} names no study.", "Add `study: NAME` to it, or name the study after the file.")
    return given.name
