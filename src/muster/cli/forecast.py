"""`muster queue forecast`: when queued jobs will start, and how accurate such forecasts have been."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

import typer
from rich.text import Text

from muster.api.cost import CostEstimate
from muster.api.why import (
    Calibration,
    ForecastList,
    ForecastView,
    JobForecast,
    OfferView,
    RunEstimate,
    ScoreView,
)
from muster.cli import complete, format
from muster.cli.call import Json, Usage
from muster.cli.connect import client
from muster.cli.node_history import seconds
from muster.cli.output import emit, note, out, show_table, table
from muster.client import Client, Job, MusterError
from muster.core.money import format_amount

_CUT = {
    "jobs": "jobs far behind were left out",
    "rounds": "it was cut short",
    "horizon": "that is as far as was looked",
}
_NUMBERS = ("jobs", "by P50", "by P90", "error", "|error|", "wait")


def forecast(
    job: Annotated[
        str | None, typer.Argument(metavar="[JOB]", help="Only this job.", autocompletion=complete.jobs)
    ] = None,
    queue: Annotated[str | None, typer.Option(help="Only this queue.", autocompletion=complete.queues)] = None,
    calibration: Annotated[
        bool, typer.Option("--calibration", help="Show how many jobs started before what was said of them.")
    ] = False,
    since: Annotated[str, typer.Option(help="With --calibration: forecasts so long ago, or later.")] = "30d",
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=200, help="Jobs to show.")] = 20,
    json: Json = False,
) -> None:
    """Say when queued jobs will start, from how long finished work ran.

    Half of the jobs should start before their P50 and nine of ten before their P90; --calibration shows how many did.
    """
    if job and (calibration or queue):
        raise Usage("A job is given, and so is --calibration or --queue.", "Leave one of them out.")
    with client() as to:
        if calibration:
            scores = to.calibration(queue, seconds("--since", since))
            emit(scores) if json else _show_scores(scores, since)
        elif job:
            one = to.forecast(job)
            emit(one) if json else _show_job(one)
        else:
            found = to.forecasts(queue, limit)
            emit(found) if json else _show_jobs(found)


def show_offers(offers: Sequence[OfferView]) -> None:
    """One line for each pool: when the job would start there and at what price, or why it can't."""
    for one in offers:
        text = one["why_not"] or (when(one["forecast"]) if one["forecast"] else "not known")
        text += f", {one['per_hour']:.2f} an hour" if one["per_hour"] and not one["why_not"] else ""
        text += f"; {one['waiting']} wait in its own queue" if one["waiting"] else ""
        text += f"; open to it from {format.clock(one['opens_at'])} on" if one["opens_at"] else ""
        where = f"{one['pool']} ({one['engine']})"
        out().print(Text.assemble((f"  in pool {where}: ", "dim"), (text, "dim" if one["why_not"] else "")))


def start_and_cost(to: Client, job: Job) -> str:
    """When a job that was just submitted will start and what it will cost, as far as is known; empty if nothing is."""
    try:
        found = to.forecast(job.id, compare=False)
    except MusterError:  # it is submitted, whatever becomes of the forecast
        return ""
    parts = []
    if found["forecast"]:
        parts.append(f"starts {when(found['forecast'])}")
    elif found.get("engine_estimate") is not None:
        parts.append(_sentence(found))
    elif found["phase"] in ("starting", "running"):
        parts.append("starts now")
    cost = found.get("cost")
    told = [cost_sentence(cost, found["estimate"]["most"])] if cost is not None else []
    return "; ".join([*parts, *_run_time(found["estimate"]), *told])


def cost_sentence(cost: CostEstimate, most: float | None) -> str:
    """`most`: its `max_duration`."""
    this, currency = cost["choices"][0], cost["currency"]
    p50, p90, per_hour = this["p50"], this["p90"], this["per_hour"]
    if p50 is None or per_hour is None:
        return ", ".join(this["notes"]) or "its cost is not known"
    assumed = f" if it runs {format.span(cost['seconds_p50'])}, as is assumed" if cost["source"] != "learnt" else ""
    words = [f"expected {format_amount(p50, currency)}{assumed or ' (P50)'}"]
    if p90 is not None:
        by = "P90" if cost["source"] == "learnt" and p90 != p50 else "by its max_duration"
        words.append(f"at most {format_amount(p90)} ({by})")
    elif most is None:
        words.append("nothing limits its run time")
    each = f", for each of {cost['tasks']} tasks" if cost["tasks"] > 1 else ""
    return ", ".join([*words, f"{format_amount(per_hour)} an hour"]) + each


def _run_time(known: RunEstimate) -> Iterator[str]:
    p50, p90 = known["p50"], known["p90"]
    if p50 is not None:
        late = f", 9 times of 10 within {format.span(p90)}" if p90 is not None and p90 > p50 else ""
        yield f"such jobs ran about {format.span(p50)}{late}"


def _show_job(found: JobForecast) -> None:
    out().print(Text.assemble((found["id"], "bold"), f": {_sentence(found)}"))
    if (cost := found.get("cost")) is not None:
        out().print(Text(f"  {cost_sentence(cost, found['estimate']['most'])}"))
    show_offers(found["offers"])


def _sentence(found: JobForecast) -> str:
    if found["forecast"]:
        return when(found["forecast"])
    at = found.get("engine_estimate")
    if at is not None:
        return f"it waits in its engine's queue, which expects it to start about {format.clock(at)}"
    return f"it does not wait: it is {found['phase']}"


def when(forecast: ForecastView) -> str:
    """A forecast as a sentence; times are local."""
    now, p50, p90 = forecast["at"], forecast["p50"], forecast["p90"]
    notes = f" ({'; '.join(_CUT[word] for word in forecast['cut'])})" if forecast["cut"] else ""
    if p50 is None:
        if forecast["never"]:
            return f"not while nothing else changes{notes}"
        return f"not before {_moment(forecast['after'], now)}{notes}" if forecast["after"] else f"not known{notes}"
    if p50 <= now and (p90 is None or p90 <= now):
        return f"at once{notes}"
    late = f", and 9 times of 10 by {_moment(p90, now)}" if p90 is not None and p90 > p50 else ""
    return f"about {_moment(p50, now)}{late}{notes}"


def _moment(at: float, now: float) -> str:
    return f"{format.clock(at)} (in {format.span(at - now)})"


def _show_jobs(found: ForecastList) -> None:
    if not found["jobs"]:
        note("Nobody waits.")
        return
    made = table("place", "job", "queue", "user", "P50", "P90", "about", "", right=("place", "P50", "P90"))
    now = found["now"]
    for place, one in enumerate(found["jobs"], start=1):
        cells = [_cell(one["p50"], now), _cell(one["p90"], now), format.clock(one["p50"])]
        text = when(one) if one["p50"] is None else "; ".join(_CUT[word] for word in one["cut"])
        made.add_row(str(place), Text(one["job"], style="bold"), one["queue"], one["user"], *cells, Text(text, "dim"))
    show_table(made)


def _cell(at: float | None, now: float) -> str:
    if at is None:
        return "-"
    return "now" if at <= now else f"in {format.span(at - now)}"


def _show_scores(found: Calibration, since: str) -> None:
    if not found["all"]["jobs"]:
        note(f"No job was forecast within {since}: only those that wait longer than 5 s are.")
        return
    made = table("of", *_NUMBERS, right=_NUMBERS)
    made.add_row(Text("all", style="bold"), *_scores(found["all"]))
    for name, one in found["queues"].items():
        made.add_row(Text(f"queue {name}"), *_scores(one))
    for name, one in found["sizes"].items():
        made.add_row(Text(f"{name} accelerators" if name[:2] != "no" else name), *_scores(one))
    show_table(made)
    note(("Ideal are 50% by P50 and 90% by P90. Errors and waits are medians; above 0 is later than P50.", "dim"))


def _scores(one: ScoreView) -> list[str]:
    shares = ["-" if one[name] is None else f"{one[name]:.0%}" for name in ("before_p50", "before_p90")]
    error = one["error"]
    signed = "-" if error is None else f"{'-' if error < 0 else '+'}{format.span(abs(error))}"
    return [str(one["jobs"]), *shares, signed, format.span(one["size_of_error"]), format.span(one["wait"])]
