"""Signals of money: budgets, the pace of a project, and runs that cost money and no longer improve."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from muster.monitor.alerts.rule import Reading, Subject
from muster.monitor.alerts.signals.base import View

HOUR: Final = 3600.0


def budget_used(view: View) -> Iterator[Reading]:
    """The part of the limit that is spent, with what running attempts have cost so far."""
    for name, one in view.money.budgets.items():
        yield Reading(Subject("budget", name, project=one.project), one.used, {"budget": name, **one.facts})


def budget_forecast(view: View) -> Iterator[Reading]:
    """The part of the limit that is used by the end of the period, at the pace of the last seven days."""
    for name, one in view.money.budgets.items():
        yield Reading(Subject("budget", name, project=one.project), one.forecast, {"budget": name, **one.facts})


def cost_spike(view: View) -> Iterator[Reading]:
    """What the running jobs of a project cost for an hour now, against its mean hour of the last seven days."""
    now: dict[str, float] = {}
    for name, hourly in view.money.hourly.items():
        if (job := view.state.jobs.get(name)) is not None:
            now[job.project] = now.get(job.project, 0.0) + hourly
    for project, usual in view.money.usual.items():
        if usual > 0:
            hourly = now.get(project, 0.0)
            facts = {"hourly": f"{hourly:,.2f}", "usual": f"{usual:,.2f}", "currency": view.money.currency}
            yield Reading(Subject("project", project, project=project), hourly / usual, facts)


def cost_without_improvement(view: View) -> Iterator[Reading]:
    """What a run has cost since its best evaluation, in this attempt."""
    for job, subject, figures in view.programs():
        hourly, attempt = view.money.hourly.get(job.id, 0.0), job.attempt
        if not hourly or not figures.evaluations or attempt is None:
            continue
        one = max(figures.evaluations.values(), key=lambda some: some.best_at)
        since = max(one.best_at, attempt.planned_at)
        facts = {"metric": one.metric, "best": one.best, "best_step": one.best_step, "hourly": f"{hourly:,.2f}"}
        cost = hourly * max(view.now - since, 0.0) / HOUR
        yield Reading(subject, cost, {**facts, "currency": view.money.currency})
