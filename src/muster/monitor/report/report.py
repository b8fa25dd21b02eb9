"""Makes the report of a period from facts, with the same figures of the periods before it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from muster.api.report import FigureView, PeriodView, WasteView
from muster.monitor.report.capacity import capacity_figures
from muster.monitor.report.facts import Facts, Terms, split
from muster.monitor.report.figure import Figure
from muster.monitor.report.outcomes import failure_figures, run_figures, wait_figures
from muster.monitor.report.period import Period
from muster.monitor.report.spending import spending_figures
from muster.monitor.report.waste import wastes

CAUSES_MAX = 50  # causes of waste in an answer


@dataclass(frozen=True, slots=True)
class Report:
    figures: list[FigureView]
    waste: list[WasteView]


def make_report(facts: Facts, periods: Sequence[Period], terms: Terms) -> Report:
    """`periods`: those before, the oldest first, and the one of the report."""
    *earlier, mine = split(facts, periods)
    before = [
        {one.name: one for one in figures(each, terms, period)} for each, period in zip(earlier, periods, strict=False)
    ]
    found = [_figure_view(one, [past.get(one.name) for past in before]) for one in figures(mine, terms, periods[-1])]
    return Report(found, [{"cause": one.cause, "hours": one.hours} for one in wastes(mine, terms)[:CAUSES_MAX]])


def figures(facts: Facts, terms: Terms, period: Period) -> list[Figure]:
    """All figures of one period."""
    if period.end <= terms.first:
        return []  # before there was a server
    return [
        *capacity_figures(facts, terms, period),
        *wait_figures(facts, terms),
        *run_figures(facts, terms, period),
        *spending_figures(facts, terms),
        *failure_figures(facts, terms, period),
    ]


def period_view(period: Period, now: float) -> PeriodView:
    until = period.until(now)
    return {
        "name": period.name,
        "begin": period.begin,
        "end": period.end,
        "until": until,
        "hours": (period.end - period.begin) / 3600,
        "over": until >= period.end,
    }


def _figure_view(one: Figure, past: Sequence[Figure | None]) -> FigureView:
    before = [each.value if each is not None else None for each in past]
    last = before[-1] if before else None
    return {
        "name": one.name,
        "label": one.label,
        "measure": one.measure,
        "definition": one.definition,
        "value": one.value,
        "unknown": one.unknown or None if one.value is None else None,
        "target": one.target,
        "met": one.met,
        "better": one.better or None,
        "details": dict(one.details),
        "before": before,
        "change": one.value - last if one.value is not None and last is not None else None,
    }
