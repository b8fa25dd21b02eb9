"""`muster tune ls` and `trials`: studies, and the trials of one, as tables, JSON or CSV."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final

import typer
from rich.text import Text

from muster.api.studies import TRIAL_STATES, StudyLine, TrialRow
from muster.cli import complete, format
from muster.cli.call import Json, Usage
from muster.cli.connect import client
from muster.cli.output import emit, note, phase_text, show_table, table
from muster.cli.terminal import stdout
from muster.cli.tune_csv import write_csv
from muster.cli.tune_format import money_text, value_text
from muster.cli.tune_words import trials_table
from muster.core.suggest import did_you_mean

StudyRef = Annotated[str, typer.Argument(metavar="STUDY", help="Id, number or name.", autocompletion=complete.studies)]


def ls(
    project: Annotated[str | None, typer.Option(help="Only of this project.", autocompletion=complete.projects)] = None,
    everything: Annotated[bool, typer.Option("--all", "-a", help="Also those that are over.")] = False,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="At most so many.")] = 50,
    json: Json = False,
) -> None:
    """List studies: those that are not over, or all."""
    with client() as to:
        found = to.studies(project=project, everything=everything, limit=limit)
    if json:
        emit({"studies": found})
    elif not found:
        over = "" if everything else " that is not over; --all lists the others"
        note(f"There is no study{over}. Start one with `muster tune FILE`.")
    else:
        now = time.time()
        made = table("id", "phase", "objective", "best", "trials", "live", "cost", "age", "", right=_NUMBERS)
        for one in found:
            made.add_row(Text(one["id"], style="bold"), *_cells(one, now))
        show_table(made)


def trials(
    ref: StudyRef,
    state: Annotated[str | None, typer.Option(help=f"Only in this state: {', '.join(TRIAL_STATES)}.")] = None,
    sort: Annotated[
        str, typer.Option("--sort", "-s", help="number, rank, cost, seconds, or a parameter; - is from high to low.")
    ] = "number",
    limit: Annotated[int | None, typer.Option("--limit", "-n", min=1, help="At most so many.")] = None,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    json: Json = False,
) -> None:
    """List the trials of a study; --sort rank begins with the best."""
    if json and as_csv:
        raise Usage("--json and --csv were both given.", "Give one of them.")
    if state is not None and state not in TRIAL_STATES:
        hint = did_you_mean(state, TRIAL_STATES, f"Expected one of {', '.join(TRIAL_STATES)}.")
        raise Usage(f"--state: got {state!r}.", hint)
    with client() as to:
        head = to.study_status(ref)["study"]
        wanted: Any = state
        found = _sorted(to.trials(head["id"], state=wanted), sort)[:limit]
    if json:
        emit({"study": head["id"], "trials": found})
    elif as_csv:
        write_csv(stdout(), head, found)
    elif not found:
        note(f"{head['id']} has no trials{f' that are {state}' if state else ''} yet.")
    else:
        show_table(trials_table(found, head["objectives"], head["currency"]))


_NUMBERS: Final = ("best", "trials", "live", "cost", "age")


def _cells(one: StudyLine, now: float) -> list[Text | str]:
    best = "-" if one["best"] is None else f"{value_text(one['best'])} (trial {one['best_trial']})"
    count = f"{one['trials']:,}" + (f"/{one['limit']:,}" if one["limit"] is not None else "")
    why = one["why"] if one["phase"] in ("stopped", "failed") or one["state"] == "stopping" else ""
    phase = Text("stopping", style="magenta") if one["state"] == "stopping" else phase_text(one["phase"])
    return [
        phase, Text(f"{one['direction']} {one['objective']}"), best, count, f"{one['live']:,}",
        money_text(one["cost"], one["currency"]), format.since(one["began"], now), Text(why, style="dim"),
    ]  # fmt: skip


def _sorted(rows: list[TrialRow], sort: str) -> list[TrialRow]:
    """Those without a value of it come last, whichever way."""
    name, down = sort.removeprefix("-"), sort.startswith("-")
    known = {"value": "rank"}.get(name, name)
    params = {key for one in rows for key in one["params"]}
    if known not in ("number", "rank", "cost", "seconds", "step") and known not in params and rows:
        hint = f"Expected number, rank, cost, seconds, step, or one of {', '.join(sorted(params))}."
        raise Usage(f"--sort: got {sort!r}.", did_you_mean(known, [*params, "number", "rank", "cost", "seconds"], hint))

    def of(row: Mapping[str, Any]) -> Any:
        return row["params"].get(known) if known in params else row.get(known)

    having = [one for one in rows if of(one) is not None]
    mixed = len({isinstance(of(one), str) for one in having}) > 1
    order: Callable[[Any], Any] = (lambda one: str(of(one))) if mixed else of
    return [*sorted(having, key=order, reverse=down), *(one for one in rows if of(one) is None)]
