"""`muster tune import`: studies of Optuna and experiments of Ray Tune as runs, each trial a run below its study's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.text import Text

from muster.cli import complete
from muster.cli.call import Json, Usage
from muster.cli.connect import client
from muster.cli.output import emit, note, out, show_error
from muster.cli.runs_import import Result, import_one, list_found, progress_bar, result_view
from muster.client.transfer import Imported
from muster.track.importers import IMPORTERS
from muster.track.importers.base import FoundRun
from muster.track.importers.optuna import OptunaImporter

TOOLS: Final = ("auto", "optuna", "ray-tune")
_LANES: Final = 4  # trials that are sent at once

Found = list[tuple[str, FoundRun]]  # with the importer's name


def import_(
    source: Annotated[
        str, typer.Argument(metavar="PATH|ADDRESS", help="A folder or file, or an address of an Optuna storage.")
    ],
    tool: Annotated[str, typer.Option("--from", help=f"One of {', '.join(TOOLS)}.")] = "auto",
    project: Annotated[
        str, typer.Option("--project", "-p", help="Where the runs go.", autocompletion=complete.projects)
    ] = "default",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list what is there.")] = False,
    json: Json = False,
) -> None:
    """Import studies of Optuna (a journal file, a database or its address, muster://) or Ray Tune (a results folder).

    Each study is a run, and each trial a run below it, with its parameters, curves, times and how it ended. What was
    imported before and has changed since is read anew; trials that are not over yet can be imported again later.
    """
    if tool not in TOOLS:
        raise Usage(f"--from: got {tool!r}.", f"Expected one of {', '.join(TOOLS)}.")
    found = _found(source, tool)
    if dry_run:
        list_found(found, json)
        return
    with (
        client() as to,
        progress_bar("importing", len(found), json) as tell,
        ThreadPoolExecutor(_LANES, "muster-import") as lanes,
    ):

        def send(one: tuple[str, FoundRun]) -> Result:
            return import_one(to, *one, project, tell)

        # Trials name their study: it goes first, and without it they can't.
        heads = {one[1].key: send(one) for one in found if not one[1].parent}
        below = [one for one in found if isinstance(heads.get(one[1].parent), Imported)]
        results = dict(zip((one.key for _, one in below), lanes.map(send, below), strict=True))
    results = heads | results
    if json:
        emit({"runs": [result_view(one) for one in results.values()]})
    else:
        _print([one for _, one in found], results)
    if not all(isinstance(one, Imported) for one in results.values()):
        raise typer.Exit(1)


def _found(source: str, tool: str) -> Found:
    if "://" in source:
        if tool == "ray-tune":
            raise Usage(f"{source} is an address.", "Results of Ray Tune are read from a folder.")
        return [("optuna", one) for one in OptunaImporter().find_at(source)]
    path = Path(source).expanduser()
    if not path.exists():
        raise Usage(
            f"{source} does not exist.", "Name a folder or a file, or a storage's address such as sqlite:///x.db."
        )
    names = TOOLS[1:] if tool == "auto" else (tool,)
    found = [(name, one) for name in names for one in IMPORTERS.get(name).find(path)]
    if not found:
        about = "; ".join(IMPORTERS.get(name).about for name in names)
        raise Usage(f"{source} holds no study that can be imported.", f"Looked for: {about}.")
    return found


def _print(found: Sequence[FoundRun], results: Mapping[str, Result]) -> None:
    """A line for each study; below it what went wrong, or was left out, each once with its number."""
    for head in (one for one in found if not one.parent):
        own = [results[one.key] for one in found if one.parent == head.key and one.key in results]
        result = results[head.key]
        if isinstance(result, Imported):
            new = sum(isinstance(one, Imported) and one.new for one in own)
            told = f"{len(own):,} trials, {new:,} of them new" if own else "no trials"
            out().print(Text.assemble((result.id, "bold"), f"  {head.name}  ", (told, "dim")))
        problems = Counter(what for one in (result, *own) if isinstance(one, Imported) for what in one.problems)
        for what, count in problems.items():
            note(("  left out: ", "yellow"), f"{what} (x{count})" if count > 1 else what)
        errors = {one[1].message: one[1] for one in (result, *own) if not isinstance(one, Imported)}
        for error in errors.values():
            show_error(error.to_dict(), as_json=False)
