"""`muster runs export`: writes runs as files for other tools."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from muster.api.words import PHASES
from muster.cli.call import Json, Usage
from muster.cli.connect import client
from muster.cli.lazy import load
from muster.cli.output import emit, err, note, out
from muster.client import Client, MusterError
from muster.client.transfer import RemoteRun, facts_of
from muster.core.errors import NotFound
from muster.track.exporters import EXPORTERS
from muster.track.exporters.base import Exporter, Facts

FORMATS: Final = tuple(EXPORTERS)
_MLFLOW_SERVER: Final = "muster.track.mlflow.exporting:export_server"
_REF: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\Z")  # may be a run; anything else is a query


def export(
    what: Annotated[
        list[str],
        typer.Argument(metavar="RUN|QUERY", help="Runs by id, number or name; or a query as of `muster runs`."),
    ],
    to: Annotated[
        str,
        typer.Option("--to", help="The folder to write into (the same runs are replaced), or an MLflow server's URL."),
    ],
    format: Annotated[str, typer.Option("--format", "-f", help=f"One of {', '.join(FORMATS)}.")] = "csv",
    attempts: Annotated[
        bool, typer.Option("--attempts", help="Also what later attempts reported anew, as series of its own.")
    ] = False,
    ranks: Annotated[bool, typer.Option("--ranks/--no-ranks", help="With the series of every rank.")] = True,
    json: Json = False,
) -> None:
    """Write runs with their parameters, curves and media into a folder: csv, parquet, tensorboard or mlflow (mlruns).

    `tensorboard --logdir FOLDER` shows what was exported as tensorboard.
    """
    if format not in FORMATS:
        raise Usage(f"--format: got {format!r}.", f"Expected one of {', '.join(FORMATS)}.")
    folder, remote = Path(to).expanduser(), "://" in to
    if remote and format != "mlflow":
        raise Usage(f"--to: {to} is an address, and {format} is written into a folder.", "Name a folder.")
    if not remote and folder.exists() and not folder.is_dir():
        raise Usage(f"--to: {to} is a file.", "Name a folder.")
    with client(timeout=120) as server:
        found = list(_find(server, what))
        if not found:
            raise NotFound(f"No run matches {' '.join(what)!r}.", "See `muster runs`.")
        runs = [RemoteRun(server, facts, ranks) for facts in found]
        with _bar(len(runs), json) as advance:
            views = _send(runs, to, advance) if remote else _write(runs, format, folder, attempts, advance)
    if json:
        emit({"to": to, "runs": views})
        return
    for view in views:
        out().print(Text.assemble((str(view["run"]), "bold"), f"  {_words(view)}  ", (str(view["path"]), "dim")))
    if format == "tensorboard":
        if any(view["points"] or view["media"] for view in views):
            note(("Look at it with ", "dim"), f"tensorboard --logdir {to}")
        else:
            note(f"Nothing was reported yet, so {to} was not written. ", ("`muster status RUN` says more.", "dim"))


def _write(
    runs: list[RemoteRun], format: str, folder: Path, attempts: bool, advance: Callable[[], None]
) -> list[dict[str, Any]]:
    exporter: Exporter = EXPORTERS.get(format)
    views = []
    try:
        for one in exporter.export(runs, folder, superseded=attempts):
            views.append({"run": one.run, "path": str(one.path), "points": one.points, "media": one.media})
            advance()
    except OSError as error:
        raise MusterError(f"{folder} can't be written: {error.strerror or error}.", "Choose another place.") from None
    return views


def _send(runs: list[RemoteRun], url: str, advance: Callable[[], None]) -> list[dict[str, Any]]:
    """Sends runs to an MLflow server, with the token that its own clients would use."""
    token = os.environ.get("MLFLOW_TRACKING_TOKEN")
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    views = []
    for own, other in load(_MLFLOW_SERVER)(runs, url, headers=headers):
        views.append({"run": own, "path": other})
        advance()
    return views


def _words(view: dict[str, Any]) -> str:
    if "points" not in view:
        return "is there"
    return f"{view['points']:,} points" + (f", {view['media']} media" if view["media"] else "")


@contextmanager
def _bar(total: int, json: bool) -> Iterator[Callable[[], None]]:
    screen = err()
    columns = (TextColumn("exporting"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=screen, transient=True, disable=json or not screen.is_terminal) as bars:
        task = bars.add_task("", total=total)
        yield lambda: bars.advance(task)


def _find(server: Client, words: list[str]) -> Iterator[Facts]:
    """Runs by name; if the words are not names, the runs that match the query."""
    if all(_REF.match(word) for word in words):
        try:
            yield from [facts_of(server.run(word).raw) for word in words]
            return
        except NotFound:
            if words[0] not in PHASES or len(words) > 1:  # a phase alone is a query
                raise
    for run in server.runs(" ".join(words), limit=None):
        yield facts_of(run.raw)
