"""`muster tune FILE`: starts a study and shows how it goes, or checks it and says what it would be."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from muster.cli import complete
from muster.cli.call import Json, Usage
from muster.cli.connect import client, sees_our_files
from muster.cli.lazy import load
from muster.cli.output import emit, note, out
from muster.cli.submit import Overrides
from muster.cli.tune_live import follow
from muster.client.study_file import StudyFile, read_study
from muster.client.surroundings import surroundings
from muster.core.errors import NotFound
from muster.core.suggest import did_you_mean


def start(
    file: Annotated[
        str | None, typer.Argument(metavar="[FILE]", help="Study file; - reads one from standard input.")
    ] = None,
    override: Overrides = None,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Return as soon as it is started.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check everything; show the study, one of its trials, and what they cost.")
    ] = False,
    project: Annotated[
        str | None, typer.Option(help="Of a study without a job.", autocompletion=complete.projects)
    ] = None,
    key: Annotated[str | None, typer.Option(help="Starting again with the same key gives the same study.")] = None,
    no_snapshot: Annotated[
        bool, typer.Option("--no-snapshot", help="Keep no copy of the code; trials can't be reproduced then.")
    ] = False,
    json: Json = False,
) -> None:
    """Start a study and watch it: best so far, trials by state, money and time, importance of its parameters.

    Ctrl-C leaves it running. The exit code is 0 if it succeeded, 1 if it failed or was stopped. With --json one object
    a line: started, status, end. Without a file, studies are listed.
    """
    if file is None:
        load("muster.cli.tune_list:ls")(json=json)
        return
    with client() as to:
        given = prepared(file, override or (), sees_our_files(to), project)
        if dry_run:
            load("muster.cli.tune_dry_run:show")(to, given, json)
            return
        study = to.tune(given, key=key, snapshot=not no_snapshot, on_note=lambda told: note((told, "yellow")))
        if json:
            event = {} if detach else {"event": "started"}
            emit({**event, "id": study.id, "name": study.name, "notes": study.notes})
        else:
            more = f"  see `muster tune status --watch {study.id}`" if detach else ""
            out().print(Text.assemble("started ", (study.id, "bold"), (more, "dim")))
        if not detach:
            raise typer.Exit(follow(to, study.id, json, begun=True))


def prepared(file: str, override: list[str] | tuple[()], local: bool, project: str | None = None) -> StudyFile:
    """The study of a file, and its job with the overrides; `local`: the server is on this machine."""
    if file != "-" and not Path(file).suffix and not Path(file).exists():
        verbs = load("muster.cli.tune:VERBS")
        meant = did_you_mean(file, [one.name for one in verbs], "See `muster tune --help`.")
        raise Usage(f"{file!r} is neither a study file nor a verb of `muster tune`.", meant)
    if file != "-" and not Path(file).exists():
        raise NotFound(f"There is no study file {file}.", "Check the path, or begin with `muster init -t tune`.")
    made = read_study(
        sys.stdin.read() + "\n" if file == "-" else file,
        overrides=load("muster.cli.prepare:parse_overrides")(override),
        project=project,
        defaults=lambda folder: surroundings(folder, local),
        local=local,
    )
    if override and made.job is None and not made.problems:
        raise Usage("-o sets fields of the job, and the study has none.", "Add `job` to it, or leave -o out.")
    return made
