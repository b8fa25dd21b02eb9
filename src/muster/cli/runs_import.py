"""`muster runs import`: imports runs of other tools, each once, however often the command is repeated."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from muster.cli import complete
from muster.cli.call import Json, Usage
from muster.cli.connect import client
from muster.cli.lazy import load
from muster.cli.output import emit, err, note, out, show_error
from muster.client import Client, MusterError
from muster.client.transfer import Imported, send_run
from muster.track.importers import IMPORTERS
from muster.track.importers.base import FoundRun
from muster.track.importers.optuna import sqlite_has

TOOLS: Final = ("auto", *IMPORTERS, "mlflow")
_MLFLOW: Final = "muster.track.mlflow.importing:import_all"
_SHOWN: Final = 5  # problems of a run that are printed; --json has all of them

Result = Imported | tuple[FoundRun, MusterError]
Tell = Callable[[str, int], None]  # called with what is in progress, and the number of bytes sent


def import_(
    source: Annotated[str, typer.Argument(metavar="PATH|URL", help="A folder or file, or an MLflow server's address.")],
    tool: Annotated[str, typer.Option("--from", help=f"One of {', '.join(TOOLS)}.")] = "auto",
    project: Annotated[
        str, typer.Option("--project", "-p", help="Where the runs go.", autocompletion=complete.projects)
    ] = "default",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list what is there.")] = False,
    json: Json = False,
) -> None:
    """Import runs of W&B (offline folders), TensorBoard (log folders) or MLflow (a server, mlruns or its database), and
    studies of Optuna and Ray Tune (see `muster tune import`).

    The same run imported twice is one run; one that was cut off goes on where it stopped; one that has changed since is
    read anew, and takes the place of what was there.
    """
    if tool not in TOOLS:
        raise Usage(f"--from: got {tool!r}.", f"Expected one of {', '.join(TOOLS)}.")
    if tool == "mlflow" or (tool == "auto" and _is_mlflow(source)):
        _import_mlflow(source, project, dry_run, json)
        return
    found = _found(source, tool)
    if dry_run:
        list_found(found, json)
        return
    with client() as to, progress_bar("importing", len(found), json) as tell:
        results = [import_one(to, name, one, project, tell) for name, one in found]
    _print(results, json)


def _found(source: str, tool: str) -> list[tuple[str, FoundRun]]:
    path = Path(source).expanduser()
    if not path.exists():
        raise Usage(f"{source} does not exist.", "Name a folder or a file on this machine, or an MLflow server's URL.")
    names = list(IMPORTERS) if tool == "auto" else [tool]
    found = [(name, one) for name in names for one in IMPORTERS.get(name).find(path)]
    # Ray Tune writes event files beside each trial's results.
    trials = {one.path for name, one in found if name == "ray-tune"}
    found = [(name, one) for name, one in found if name == "ray-tune" or one.path not in trials]
    if not found:
        about = "; ".join(IMPORTERS.get(name).about for name in names)
        raise Usage(f"{source} holds no runs that can be imported.", f"Looked for: {about}.")
    return found


def import_one(to: Client, tool: str, found: FoundRun, project: str, tell: Tell) -> Result:
    """Imports one run; returns an error so that the other runs are still imported."""
    try:
        made = send_run(to, IMPORTERS.get(tool), found, project, lambda size: tell(found.name, size))
    except MusterError as error:
        return found, error
    except OSError as error:
        return found, MusterError(f"{found.path} can't be read: {error}.", "Mend it, and import it again.")
    finally:
        tell(found.name, -1)
    return made


def _print(results: list[Result], json: bool) -> None:
    if json:
        emit({"runs": [result_view(one) for one in results]})
    for one in () if json else results:
        if isinstance(one, Imported):
            _print_run(one)
        else:
            show_error(one[1].to_dict(), as_json=False)
    if not all(isinstance(one, Imported) for one in results):
        raise typer.Exit(1)


def _print_run(one: Imported) -> None:
    what = f"{one.points:,} points" + (f", {one.media} files" if one.media else "") if one.new else "was here already"
    out().print(Text.assemble((one.id, "bold"), f"  {one.name}  ", (what, "dim")))
    for problem in one.problems[:_SHOWN]:
        note(("  left out: ", "yellow"), problem)
    if len(one.problems) > _SHOWN:
        note(("  left out: ", "yellow"), f"{len(one.problems) - _SHOWN} more kinds of things; see --json")


def result_view(one: Result) -> dict[str, Any]:
    if not isinstance(one, Imported):
        return {"name": one[0].name, "place": str(one[0].path), "error": one[1].to_dict()}
    names = ("id", "name", "new", "points", "media", "problems")
    return {name: getattr(one, name) for name in names}


def list_found(found: list[tuple[str, FoundRun]], json: bool) -> None:
    if json:
        emit(
            {"runs": [{"tool": name, "name": one.name, "key": one.key, "place": str(one.path)} for name, one in found]}
        )
        return
    for name, one in found:
        out().print(Text.assemble((one.name, "bold"), f"  {name}  ", (str(one.path), "dim")))


def _is_mlflow(source: str) -> bool:
    """Whether it is an address, a database, or a folder in which MLflow stores experiments."""
    if "://" in source:
        return True
    path = Path(source).expanduser()
    if path.is_file():
        return sqlite_has(path, "experiments")
    return path.name == "mlruns" or any(path.glob("*/meta.yaml"))


def _import_mlflow(source: str, project: str, dry_run: bool, json: bool) -> None:
    with client() as to, progress_bar("importing", None, json) as tell:
        summary = load(_MLFLOW)(to, source, project=project, dry_run=dry_run, tell=tell)
    if json:
        emit(summary)
        return
    counts = ", ".join(f"{count:,} {name}" for name, count in summary.items() if name != "problems" and count)
    out().print(Text(f"{'found' if dry_run else 'imported'}: {counts or 'nothing'}"))
    for problem in summary["problems"]:
        note(("  problem: ", "yellow"), problem)


@contextmanager
def progress_bar(what: str, total: int | None, json: bool) -> Iterator[Tell]:
    """Shows progress on a terminal; `tell(name, -1)` ends one run."""
    columns = (
        TextColumn(what),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}"),
    )
    screen = err()
    with Progress(*columns, console=screen, transient=True, disable=json or not screen.is_terminal) as bars:
        task = bars.add_task("", total=total)
        sent: dict[str, int] = {}

        def tell(name: str, size: int) -> None:
            if size < 0:
                bars.advance(task)
            else:
                sent[name] = sent.get(name, 0) + size
                bars.update(task, description=f"{name} {sent[name] / 1e6:.1f} MB")

        yield tell
