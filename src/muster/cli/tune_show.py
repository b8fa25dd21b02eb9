"""`muster tune status`, `best` and `report`: how a study stands, its best parameters, and its report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer
from rich.text import Text

from muster.api.studies import StudyReport, TrialRow
from muster.cli.call import Json, Usage
from muster.cli.connect import client
from muster.cli.lazy import load
from muster.cli.output import emit, note, out, show_table
from muster.cli.tune_format import value_text
from muster.cli.tune_list import StudyRef
from muster.cli.tune_live import EVERY, follow
from muster.cli.tune_words import status_screen, trials_table
from muster.client.study_page import write_report
from muster.client.surroundings import SHELL_ENVS

_BEST: Final = 10  # trials in the report on a terminal
_ALL: Final = 1_000


def status(
    ref: StudyRef,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Follow it until it is over; Ctrl-C leaves it.")] = False,
    every: Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="With --watch: the interval.")] = EVERY,
    json: Json = False,
) -> None:
    """Show how a study stands: best so far, trials by state, money and time, importance of its parameters, levels."""
    with client() as to:
        found = to.study_status(ref)
        if watch:
            raise typer.Exit(follow(to, found["study"]["id"], json, every))
    if json:
        emit(found)
    else:
        out().print(status_screen(found), soft_wrap=False)


def best(
    ref: StudyRef,
    job: Annotated[bool, typer.Option("--job", help="Print a job file that runs it.")] = False,
    json: Json = False,
) -> None:
    """Show the parameters of the best trial, its values, and how it held up with other seeds."""
    with client() as to:
        found = to.study_report(ref)
        row = found["best"]
        if row is not None and job:
            spec = to.winner_job(found["study"]["id"], row)
            envs = {name: value for name, value in spec.envs.items() if name not in SHELL_ENVS}
            text = load("muster.core.spec:dump_job")(spec.model_copy(update={"envs": envs}))
            emit({"job": text}) if json else out().print(Text(text.rstrip("\n")))
            return
    if json:
        emit({"study": found["study"]["id"], "best": row, "confirmed": found["confirmed"], "verdict": found["verdict"]})
    elif row is None:
        note(f"No trial of {found['study']['id']} has a value yet.")
        raise typer.Exit(1)
    else:
        _show_best(found, row)


def report(
    ref: StudyRef,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Write one HTML file instead.")] = None,
    json: Json = False,
) -> None:
    """Show the report of a study. As HTML it has parallel coordinates, slices, levels, fronts and learning curves."""
    if html is not None and json:
        raise Usage("--html and --json were given.", "Give one of them.")
    with client() as to:
        found = to.study_report(ref)
    if json:
        emit(found)
    elif html is not None:
        note(f"Wrote {write_report(found, html)}.")
    else:
        _show_report(found)


def _show_best(found: StudyReport, row: TrialRow) -> None:
    screen, goals = out(), found["study"]["objectives"]
    values = ", ".join(
        f"{goal['metric']} {value_text(value)}" for goal, value in zip(goals, row["values"] or (), strict=False)
    )
    state = "" if row["final"] else f", {row['state']} at step {row['step']}"
    screen.print(Text.assemble((f"trial {row['number']}", "bold"), f": {values}{state}"))
    for name, value in row["params"].items():
        screen.print(Text(f"  {name} = {str(value).lower() if isinstance(value, bool) else value}"))
    if found["front"]:
        others = ", ".join(map(str, found["front"]))
        screen.print(Text(f"no other trial is better in all objectives than one of: {others}"))
    if found["verdict"] is not None:
        screen.print(Text(f"with other seeds: {found['verdict']['text']}", style="green"))


def _show_report(found: StudyReport) -> None:
    screen, head = out(), found["study"]
    screen.print(status_screen(found, _ALL), soft_wrap=False)
    if found["verdict"] is not None:
        screen.print(Text.assemble("\n", ("winners with other seeds: ", "dim"), found["verdict"]["text"]))
    for one in found["parameters"]:
        if one["edge"] is not None:
            where = "lower" if one["edge"] == "low" else "upper"
            told = f"the best trials are at the {where} end of {one['name']}: widen it there"
            screen.print(Text(told, style="yellow"))
    ranked = [one for one in found["rows"] if one["rank"] is not None][:_BEST]
    if ranked:
        screen.print("")
        show_table(trials_table(ranked, head["objectives"], head["currency"]))
