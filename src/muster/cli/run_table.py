"""`muster runs QUERY`: runs as a table with the columns that the query mentions, as JSON or as CSV."""

from __future__ import annotations

import csv
import re
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Final

import typer
from rich.text import Text

from muster.api.numbers import number
from muster.api.words import is_measurement
from muster.cli import complete, format
from muster.cli.call import Json, Usage
from muster.cli.connect import client
from muster.cli.output import emit, note, phase_text, show_table, table
from muster.cli.terminal import stdout

_SHOWN_METRICS, _SHOWN_PARAMS = 3, 4  # columns chosen by default
_WIDEST: Final = 32  # characters of a cell
_PAGE: Final = 1000
_MENTIONED: Final = re.compile(r"\b(metrics|params|tags)\.(?:`([^`]+)`|([^\s()<>=!~,'\"`]+))")
_TIMES: Final = ("created", "started", "ended")
_PARTS: Final = re.compile(r"\.(min|max|step|time|points|nans|last)$")


def find(
    query: Annotated[list[str] | None, typer.Argument(metavar="[QUERY]", help="In quotes; or @NAME.")] = None,
    sort: Annotated[
        str, typer.Option("--sort", "-s", help="Such as -metrics.val_loss,created; - is from high to low.")
    ] = "",
    columns: Annotated[
        str | None, typer.Option("--columns", "-c", help="Such as params.lr,metrics.val_loss.min,data.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, help="At most so many.")] = 30,
    everything: Annotated[bool, typer.Option("--all", "-a", help="All that there are.")] = False,
    project: Annotated[
        list[str] | None,
        typer.Option("--project", "-p", help="Only of these; else all you see.", autocompletion=complete.projects),
    ] = None,
    hidden: Annotated[bool, typer.Option("--hidden", help="Those that were taken out of every list.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    json: Json = False,
) -> None:
    """Find runs by what they were given and what came out of them; failed ones are found like any other."""
    if json and as_csv:
        raise Usage("--json and --csv were both given.", "Give one of them.")
    asked: dict[str, Any] = {"sort": sort, "projects": project or None, "hidden": hidden}
    asked["columns"] = [one.strip() for one in columns.split(",") if one.strip()] if columns is not None else None
    answer = _ask(" ".join(query or ()), asked, None if everything else limit)
    if json:
        emit(answer)
    elif as_csv:
        _print_csv(answer)
    else:
        _print_runs(answer)


def _ask(query: str, asked: dict[str, Any], limit: int | None) -> dict[str, Any]:
    """Fetches as many pages as needed and returns them as one response."""
    with client() as to:
        most = _PAGE if limit is None else min(limit, _PAGE)
        answer: dict[str, Any] = {**to.search_runs(query, **asked, limit=most, count=True)}
        while answer["next"] is not None and (limit is None or len(answer["runs"]) < limit):
            most = _PAGE if limit is None else min(limit - len(answer["runs"]), _PAGE)
            more = to.search_runs(query, **asked, limit=most, after=answer["next"])
            answer["runs"] += more["runs"]
            answer["next"] = more["next"]
    return answer


def _print_runs(answer: dict[str, Any]) -> None:
    runs = answer["runs"]
    if not runs:
        note("No runs", " match." if answer["query"] else ". Submit a job with `muster run`.")
        for hint in answer["hints"]:
            note(("  " + hint, "green"))
        return
    now = time.time()
    several = len({run["project"] for run in runs}) > 1
    chosen = (
        answer["columns"] if answer["columns"] is not None else _chosen(runs, f"{answer['query']} {answer['sort']}")
    )
    # The id of a job's run begins with its name; others, such as MLflow's, have ids that say nothing.
    named = any(run["name"] and not run["id"].startswith(run["name"]) for run in runs) and "name" not in chosen
    own = ["id", *(["name"] if named else []), "phase", *(["project"] if several else []), "user", "age"]
    heads = _heads(chosen, own)
    made = table(*own, *heads.values(), right=("age", *(heads[one] for one in chosen if _is_number(runs, one))))
    for run in runs:
        cells: list[Text | str] = [
            Text(run["id"], style="bold" if run["valid"] else "bold red"),
            *([Text(_cut(run["name"] or ""))] if named else []),
            phase_text(run["phase"]),
        ]
        cells += [*([run["project"]] if several else []), run["user"], format.since(run["created_at"], now)]
        made.add_row(*cells, *(Text(_cell(run, name, now)) for name in chosen))
    show_table(made)
    if answer["total"] > len(runs):
        note((f"{len(runs)} of {answer['total']:,} runs; --all shows them all", "dim"))


def _chosen(runs: Sequence[dict[str, Any]], asked: str) -> list[str]:
    """The columns that the query mentions, then metrics that most runs have, and parameters that differ."""
    # Of a metric only the last value is available, whichever of its numbers the query mentions.
    mentioned = [f"{space}.{quoted or _PARTS.sub('', plain)}" for space, quoted, plain in _MENTIONED.findall(asked)]
    metrics = Counter(name for run in runs for name in run["metrics"] if is_measurement(name))
    names = [f"metrics.{name}" for name, _ in sorted(metrics.items(), key=lambda item: (-item[1], item[0]))]
    values: dict[str, set[str | None]] = {}
    for name in dict.fromkeys(name for run in runs for name in run["params"]):
        values[name] = {run["params"].get(name) for run in runs}
    differ = [f"params.{name}" for name, found in values.items() if len(found) > 1 or len(runs) == 1]
    return list(dict.fromkeys([*mentioned, *names[:_SHOWN_METRICS], *differ[:_SHOWN_PARAMS]]))


def _value(run: dict[str, Any], name: str) -> Any:
    if "cells" in run:
        return run["cells"].get(name)
    space, _, key = name.partition(".")
    return run[space].get(key)


def _cell(run: dict[str, Any], name: str, now: float) -> str:
    value = _value(run, name)
    if value is None:
        return ""
    if name in _TIMES:
        return format.clock(value)
    if name == "duration":
        return format.span(value)
    if name.startswith("metrics.") and not name.endswith((".step", ".points", ".nans")):
        return format.clock(value) if name.endswith(".time") else f"{number(value):.5g}"
    return _cut(str(value))


def _cut(value: str) -> str:
    text = " ".join(value.split())
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 1]}…"


def _is_number(runs: Iterable[dict[str, Any]], name: str) -> bool:
    return name.startswith("metrics.") or all(_numeric(_value(run, name)) for run in runs)


def _numeric(value: Any) -> bool:
    try:
        return value is None or float(value) == float(value)
    except ValueError:
        return False


def _heads(chosen: Sequence[str], own: Sequence[str]) -> dict[str, str]:
    """Column → its title: without `metrics.` or `params.`, unless another column would have the same title."""
    short = {name: name.removeprefix("metrics.").removeprefix("params.") for name in chosen}
    count = Counter([*short.values(), *own])
    return {name: title if count[title] == 1 else name for name, title in short.items()}


def _print_csv(answer: dict[str, Any]) -> None:
    runs = answer["runs"]
    facts = [
        "id",
        "name",
        "project",
        "user",
        "kind",
        "source",
        "phase",
        "created_at",
        "started_at",
        "ended_at",
        "valid",
    ]
    if answer["columns"] is not None:
        facts, names = ["id"], answer["columns"]
    else:
        spaces = ("params", "metrics", "tags")
        names = [f"{space}.{key}" for space in spaces for key in sorted({key for run in runs for key in run[space]})]
    rows = csv.writer(stdout(), lineterminator="\n")
    rows.writerow([*facts, *names])
    for run in runs:
        rows.writerow([*(run[fact] for fact in facts), *(_value(run, name) for name in names)])
