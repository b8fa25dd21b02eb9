"""`muster runs sync`: ships runs that scripts recorded while no server was reachable."""

from __future__ import annotations

import json as text
import subprocess
import sys
from contextlib import suppress
from typing import Annotated, Any, Final

import typer
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from muster.cli.call import CALL, Json, Usage, home_folder
from muster.cli.output import SafeConsole, emit, note, out, show_table, table
from muster.core.errors import NotFound
from muster.core.units import InvalidValue, parse_duration
from muster.runtime.offline import OfflineRun, offline_runs

_WORDS: Final = {
    "shipped": "shipped",
    "away": "kept: no server took it in time",
    "refused": "kept: the server refused it",
    "busy": "being shipped by its own process",
    "running": "its script still runs",
}


def sync(
    runs: Annotated[list[str] | None, typer.Argument(metavar="RUN", help="Ids of runs; all that wait if none.")] = None,
    wait: Annotated[str, typer.Option(help="How long to wait for a server, for each run: 30s, 10m.")] = "30s",
    json: Json = False,
) -> None:
    """Ship runs that were recorded offline. Each is stored once, however often this is called."""
    try:
        patience = parse_duration(wait)
    except InvalidValue:
        raise Usage(f"--wait is {wait!r}.", "Expected a duration such as 30s or 10m.") from None
    waiting = _chosen(runs or [])
    results = _ship(waiting, patience, quiet=json)
    if json:
        emit({"runs": results})
    elif not results:
        note(("nothing waits: every run is with the server", "dim"))
    else:
        _show(results)
    if any(each["result"] in ("away", "refused") for each in results):
        raise typer.Exit(1)


def _chosen(runs: list[str]) -> list[tuple[str, OfflineRun]]:
    waiting = []
    for offline_run in offline_runs(home_folder()):
        with suppress(FileNotFoundError):  # just shipped
            waiting.append((offline_run.run, offline_run))
    if missing := [run for run in runs if run not in {name for name, _ in waiting}]:
        known = ", ".join(name for name, _ in waiting) or "none"
        raise NotFound(f"No run {missing[0]!r} waits in {home_folder()}.", f"Those that wait: {known}.")
    return [(run, offline_run) for run, offline_run in waiting if not runs or run in runs]


def _ship(waiting: list[tuple[str, OfflineRun]], patience: float, quiet: bool) -> list[dict[str, Any]]:
    results = []
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total}"))
    screen = SafeConsole(stderr=True)
    hidden = quiet or not screen.is_terminal or not waiting
    with Progress(*columns, TimeElapsedColumn(), console=screen, transient=True, disable=hidden) as progress:
        bar = progress.add_task("shipping", total=len(waiting))
        for run, offline_run in waiting:
            progress.update(bar, description=run)
            results.append({"run": run, "folder": str(offline_run.path), **_ship_one(offline_run, patience)})
            progress.advance(bar)
    return results


def _ship_one(offline_run: OfflineRun, patience: float) -> dict[str, str]:
    """Ships one run in a separate process, which logs to the sidecar's log."""
    command = [sys.executable, "-m", "muster.runtime.sidecar", "--ship", str(offline_run.path), str(patience)]
    with (offline_run.path / "sidecar.log").open("ab") as log:
        done = subprocess.run(
            [*command, *([CALL.url] if CALL.url else [])], stdout=subprocess.PIPE, stderr=log, check=False
        )
    try:
        return dict(text.loads(done.stdout))
    except ValueError:
        return {"result": "away", "trouble": f"it broke off; see {offline_run.path / 'sidecar.log'}"}


def _show(results: list[dict[str, Any]]) -> None:
    made = table("RUN", "RESULT", "WHY")
    for each in results:
        made.add_row(each["run"], _WORDS[each["result"]], each["trouble"])
    show_table(made)
    kept = [each for each in results if each["result"] in ("away", "refused")]
    if kept:
        out().print(f"{len(kept)} kept in {home_folder() / 'offline'}: nothing is lost, run this again")
