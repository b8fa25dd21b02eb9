"""Makes the report of a period from facts, with the same figures of the periods before it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from muster.api.report import FigureView, PeriodView, WasteView
from muster.core.period import Period
from muster.monitor.report.capacity import capacity_figures
from muster.monitor.report.facts import Facts, Terms, within
from muster.monitor.report.figure import Figure
from muster.monitor.report.outcomes import failure_figures, run_figures, wait_figures
from muster.monitor.report.spending import spending_figures
from muster.monitor.report.waste import wastes

CAUSES_MAX: Final = 50  # causes of waste in an answer

Values = Mapping[str, float | None]  # of figures, by name


@dataclass(frozen=True, slots=True)
class Report:
    figures: list[FigureView]
    waste: list[WasteView]


def make_report(facts: Facts, period: Period, terms: Terms, before: Sequence[Values]) -> Report:
    """`before`: the values of the periods before, the oldest first."""
    mine = within(facts, period)
    found = [_figure_view(one, [past.get(one.name) for past in before]) for one in figures(mine, terms, period)]
    return Report(found, [{"cause": one.cause, "hours": one.hours} for one in wastes(mine, terms)[:CAUSES_MAX]])


def values(facts: Facts, period: Period, terms: Terms) -> Values:
    return {one.name: one.value for one in figures(within(facts, period), terms, period)}


def figures(facts: Facts, terms: Terms, period: Period) -> list[Figure]:
    """All figures of one period."""
    if period.end <= terms.first:
        return []  # before there was a server
    return [
        *capacity_figures(facts, terms, period),
        *wait_figures(facts, terms),
        *run_figures(facts, terms, period),
        *spending_figures(facts, terms),
        *failure_figures(facts, terms),
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


def _figure_view(one: Figure, before: list[float | None]) -> FigureView:
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
