"""Signals of money: budgets by their share, projects that cost more than usual, and runs that no longer improve."""

from __future__ import annotations

from datetime import UTC, datetime

from muster.control.money_figures import money_of
from muster.core.attempt_events import AttemptPlanned, AttemptRunning
from muster.core.budget_events import BudgetSet
from muster.core.entities.price_book import PricesSet
from muster.core.event import Event
from muster.core.seat import Seat
from muster.monitor.alerts.evaluate import evaluate, exists_in, read_signals
from muster.monitor.alerts.figures import Figures
from muster.monitor.alerts.rule_file import default_rules
from muster.monitor.alerts.runbooks import fill, runbooks
from muster.monitor.alerts.signals import costs
from muster.monitor.alerts.signals.base import Money, View
from scheduler_kit import entities, fold, job_event, node_event

START = datetime(2026, 11, 18, 12, tzinfo=UTC).timestamp()
ABOUT = {"project": "default", "job": "job-1", "attempt": 1}
EVENTS = [
    *entities(),
    node_event("n0", 8, 64),
    Event(PricesSet({"pools": {"main": [{"accelerator": 3_600_000_000}]}}), 1.0),
    Event(BudgetSet("team", 4_000_000, "USD", {"project": "default"}), 1.0),
    Event(BudgetSet("all", 400_000_000, "USD", {}), 1.0),
    job_event(1, resources={"accelerators": "H100:1"}),
    Event(AttemptPlanned((Seat("n0", (0,)),)), START, **ABOUT),
    Event(AttemptRunning(), START, **ABOUT),
]


def view(seconds: float, usual: dict[str, float] | None = None) -> View:
    state, figures = fold(EVENTS), Figures()
    figures.take("job-1", 1, 0, "val_loss", ([1], [0.0], [2.0]), START + 10)
    figures.take("job-1", 1, 0, "val_loss", ([2, 3], [0.0, 0.0], [1.0, 3.0]), START + 600)
    return View(state, START + seconds, figures, money=money_of(state, usual or {}, START + seconds))


def test_the_use_of_a_budget_fires_the_rule_of_its_share_and_fills_the_runbook() -> None:
    looked = view(3400)
    found = {one.subject.name: one for one in costs.budget_used(looked)}
    assert (found["team"].value, found["team"].subject.project, found["all"].subject.project) == (0.85, "default", "")
    rules = default_rules()
    out = evaluate(rules, read_signals(rules, looked), {}, {}, exists_in(looked.state), looked.now)
    fired = {one.key: one for one in out.fired}
    assert set(fired) == {"budget-half budget/team", "budget-most budget/team"}
    text = fill(runbooks()["budget"], fired["budget-most budget/team"].facts)
    assert "Of budget team 85% is used in 2026-11: 3.40 USD of 4.00 USD." in text
    assert {one.key for one in evaluate(rules, {}, {}, {}, lambda subject: True, looked.now).fired} == set()


def test_the_forecast_goes_on_at_the_pace_of_the_days_before() -> None:
    (team, _) = costs.budget_forecast(view(3600))
    assert 12.1 < team.value < 12.2, "3.60 USD in a day, and 12.5 days are left; of 4 USD"


def test_a_project_against_its_usual_hour() -> None:
    (found,) = costs.cost_spike(view(60, {"default": 0.9}))
    assert (found.value, found.facts["hourly"], found.facts["usual"]) == (4.0, "3.60", "0.90")
    assert list(costs.cost_spike(view(60))) == []


def test_what_a_run_cost_since_it_was_best() -> None:
    (found,) = costs.cost_without_improvement(view(4200))
    assert (found.value, found.facts["best_step"], found.facts["best"]) == (3.6, 2, 1.0)
    looked = view(4200)
    looked.money = Money()
    assert list(costs.cost_without_improvement(looked)) == []
