"""Budgets in the controller: what they refuse, reserve and release, and that a job's own budget stops it in time."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from rig import CRASHED, KILLED, OK, HandClock, Rig

from muster.control.admission.budget import warnings
from muster.control.budget_watch import budget_stops, reserve_changes
from muster.control.budgets import grant, remove_budget, set_budget
from muster.control.submit import Submission, submit, submit_together
from muster.core.budget_events import BudgetSet
from muster.core.entities.budget import Budget
from muster.core.entities.price_book import PricesSet
from muster.core.entities.project import ProjectSet
from muster.core.errors import Invalid, MusterError, Refused
from muster.core.event import Event
from muster.core.parse import parse_job
from muster.sched.explain import explain

START = datetime(2026, 11, 18, 12, tzinfo=UTC).timestamp()
HOURLY = {"pools": {"main": [{"accelerator": 3_600_000_000}]}}  # 1,000 millionths a second
USD = 1_000_000


@pytest.fixture
def rig() -> Iterator[Rig]:
    made = Rig(clock=HandClock(START))
    made.tell(
        Event(ProjectSet("default", "", {"eve": "admin", "ada": "member"}), START), Event(PricesSet(HOURLY), START)
    )
    yield made
    made.close()


def limit(rig: Rig, usd: float, mode: Any = "hard", **scope: str) -> None:
    rig.tell(Event(BudgetSet("team", round(usd * USD), "USD", scope, mode=mode), START))


def submission(key: str | None = None, **spec: Any) -> Submission:
    parsed = parse_job({"name": "job", "run": "true", "gpus": 1, "max_duration": "1000s", **spec})
    return Submission(parsed, "ada", key)


def team(rig: Rig) -> Budget:
    return rig.state.budgets["team"]


def test_a_thousand_submissions_at_once_do_not_pass_a_limit_together(rig: Rig) -> None:
    limit(rig, 40.5, project="default")
    one = submission()
    futures = [rig.commit.submit(submit(rig.store, one, START, local=False)) for _ in range(1000)]
    ends = [future.exception(60) for future in futures]
    assert sum(error is None for error in ends) == 40
    assert (team(rig).committed, team(rig).left("2026-11")) == (40 * USD, USD // 2)
    refused = next(error for error in ends if error is not None)
    assert isinstance(refused, Refused)
    (why,) = refused.reasons
    assert (why.code, why.data["left"], why.data["needs"]) == ("over_budget", USD // 2, USD)
    assert "has 0.50 USD left: of 40.50 USD, 0.00 USD is spent and 40.00 USD committed to other jobs" in why.message
    assert "ask eve (an admin of 'default') for `muster cost grant team \"0.50 USD\" --reason ...`" in why.hint


def test_one_proposal_of_many_jobs_is_held_to_the_same_limit(rig: Rig) -> None:
    limit(rig, 3.5)
    errors: dict[int, MusterError] = {}
    many = [submission() for _ in range(4)]
    rig._propose(submit_together(rig.store, many, START, False, {}, errors))
    assert len(errors) == 4
    assert not rig.state.jobs
    rig._propose(submit_together(rig.store, many[:3], START, False, {}, errors))
    assert (errors, team(rig).committed) == ({}, 3 * USD)


def test_an_array_reserves_for_all_of_its_tasks(rig: Rig) -> None:
    limit(rig, 3.5)
    with pytest.raises(Refused, match=r"projected to cost 4\.00 USD"):
        rig.submit(gpus=1, max_duration="1000s", array="1-4")
    rig.submit(gpus=1, max_duration="1000s", array="1-3")
    assert team(rig).committed == 3 * USD


def test_a_key_and_a_retry_reserve_once_and_the_end_releases_the_rest(rig: Rig) -> None:
    limit(rig, 10)
    for _ in range(2):
        rig._propose(submit(rig.store, submission("key"), START, local=False))
    assert team(rig).committed == USD
    rig.tick()
    rig.tick(seconds=100)
    rig.end("job-1", KILLED)
    rig.tick()
    assert rig.kinds("job-1").count("attempt.ended") == 1
    assert (team(rig).committed, team(rig).spent) == (900_000, {"2026-11": 100_000})
    rig.tick(seconds=60)
    rig.end("job-1", OK)
    rig.restart()
    rig.tick()
    assert rig.job("job-1").phase == "succeeded"
    assert (team(rig).committed, team(rig).spent) == (0, {"2026-11": rig.job("job-1").spent})


def test_a_resumed_job_reserves_again_and_must_be_covered(rig: Rig) -> None:
    limit(rig, 1.5)
    job = rig.submit(gpus=1, max_duration="1000s", retry=0)
    rig.tick()
    rig.tick(seconds=100)
    rig.end(job, CRASHED)
    rig.tick()
    assert team(rig).committed == 0
    rig.resume(job)
    assert team(rig).committed == USD
    rig.stop(job)
    rig.tick()
    limit(rig, 0.9)
    with pytest.raises(Refused, match="projected to cost"):
        rig.resume(job)


def test_soft_warns_and_other_scopes_do_not_count(rig: Rig) -> None:
    limit(rig, 0.5, "soft", user="ada")
    job = rig.state.jobs[rig.submit(gpus=1, max_duration="1000s")]
    (told,) = warnings(rig.state, job.spec, "ada", START)
    assert told == "Budget 'team' is overdrawn by 0.50 USD, with what its jobs are projected to cost."
    limit(rig, 0.5, "hard", user="bob")
    rig.submit(gpus=1)
    limit(rig, 0.5, "hard", family="job")
    with pytest.raises(Refused) as refused:
        rig.submit(gpus=1)
    (why,) = refused.value.reasons
    assert "spent" not in why.message, "a budget over projects does not tell what others spent"
    limit(rig, 0.5, "hard", family="other")
    rig.submit(gpus=1)


def test_a_clock_that_jumps_back_does_not_open_the_period_before(rig: Rig) -> None:
    rig.tell(Event(BudgetSet("team", 3 * USD // 2, "USD", {}, spent={"2026-11": USD}), START))
    for days in (0, -40):
        rig.clock.time = START + days * 86_400
        with pytest.raises(Refused, match=r"has 0\.50 USD left"):
            rig.submit(gpus=1, max_duration="1000s")
    rig.clock.time = START + 20 * 86_400
    rig.submit(gpus=1, max_duration="1000s")  # December has all of it


def test_another_currency_is_refused(rig: Rig) -> None:
    for field in ("budget", "max_hourly_cost"):
        with pytest.raises(Refused, match=rf"`{field}: 5 EUR` is in EUR, and the price book is in USD"):
            rig.submit(**{field: "5 EUR"})


def test_a_jobs_own_budget_stops_it_when_it_is_spent_also_after_a_restart(rig: Rig) -> None:
    job = rig.submit(gpus=2, budget="1 USD", max_duration="1h")  # 2,000 millionths a second: 500 s
    rig.tick()
    assert rig.controller.next_wake() == START + 500
    rig.tick(seconds=100)
    rig.end(job, KILLED)
    rig.tick()
    assert rig.job(job).spent == 200_000
    rig.tick(seconds=10)
    at = rig.clock.time
    rig.restart()
    rig.tick()
    assert rig.controller.next_wake() == at + 400
    rig.tick(seconds=399.9)
    assert "job.stopping" not in rig.kinds(job)
    rig.tick(seconds=0.1)
    rig.tick(times=4)
    assert (rig.job(job).phase, rig.job(job).reason.code) == ("stopped", "job_budget_spent")
    assert rig.job(job).spent == USD
    with pytest.raises(Refused, match=r"it has cost 1\.00, and its `budget` is 1 USD"):
        rig.resume(job)


def test_another_price_moves_the_time_at_which_the_money_is_spent(rig: Rig) -> None:
    job = rig.submit(gpus=1, budget="1 USD")
    rig.tick()
    dearer = {"pools": {"main": [{"accelerator": 3_600_000_000, "until": START + 100},
                                 {"since": START + 100, "accelerator": 36_000_000_000}]}}  # fmt: skip
    rig.tell(Event(PricesSet(dearer), START))
    rig.tick()
    assert rig.controller.next_wake() == START + 100
    rig.tick(seconds=100)
    assert rig.controller.next_wake() == START + 190
    rig.tick(seconds=90)
    assert "job.stopping" in rig.kinds(job)


def test_a_pool_above_the_hourly_limit_is_none_until_its_price_falls(rig: Rig) -> None:
    later = {"pools": {"main": [{"accelerator": 3_600_000_000, "until": START + 100},
                                {"since": START + 100, "accelerator": 1_800_000_000}]}}  # fmt: skip
    rig.tell(Event(PricesSet(later), START))
    job, cheap = rig.submit(gpus=2, max_hourly_cost="5 USD"), rig.submit(gpus=2, max_hourly_cost="7.20 USD")
    rig.tick()
    assert (rig.job(job).phase, rig.job(cheap).phase) == ("queued", "running")
    (why,) = explain(rig.state, rig.state.jobs[job], rig.clock.time)
    assert why.code == "too_dear"
    assert why.message == "pool 'main' costs 7.20 USD an hour for it, and its `max_hourly_cost` is 5 USD"
    assert rig.controller.next_wake() == START + 100
    rig.tick(seconds=100)
    assert rig.job(job).phase == "running"


def test_a_job_that_outlives_its_projection_is_reserved_for_again(rig: Rig) -> None:
    limit(rig, 10)
    job = rig.submit(gpus=1)  # an hour is assumed
    rig.tick()
    assert reserve_changes(rig.state, START + 3599) == []
    (event,) = reserve_changes(rig.state, START + 3700)
    assert event.data.amount == 3_700_000 + 1_850_000
    rig.tell(event)
    assert (rig.state.jobs[job].reserved, team(rig).committed) == (5_550_000, 5_550_000)
    assert reserve_changes(rig.state, START + 3800) == []


def test_a_spent_budget_of_mode_stop_stops_running_and_queued_jobs(rig: Rig) -> None:
    limit(rig, 10, "stop", project="default")
    running = [
        rig.submit(gpus=4, num_nodes=2, max_duration="1000s"),
        rig.submit(gpus=4, max_duration="100s", priority=1),
    ]
    rig.tick()
    assert budget_stops(rig.state, START + 1000) == [], "8 of 10 USD, and 40 s more cost 0.32"
    events = budget_stops(rig.state, START + 1249)
    assert [(event.job, event.kind) for event in events] == [(running[0], "job.stopping")]
    events = budget_stops(rig.state, START + 1251)
    assert [(event.job, event.kind) for event in events] == [(running[1], "job.stopped"), (running[0], "job.stopping")]
    assert {event.data.reason.code for event in events} == {"budget_spent"}
    rig.tell(*events)
    rig.tick(times=4, seconds=1251)
    assert not rig.state.jobs
    assert team(rig).committed == 0
    assert {rig.job(job).reason.code for job in running} == {"budget_spent"}


def test_a_budget_that_is_set_later_begins_with_what_was_spent_and_what_runs(rig: Rig) -> None:
    first, second = rig.submit(gpus=1, max_duration="1000s"), rig.submit(gpus=1, max_duration="1000s")
    rig.tick()
    rig.tick(seconds=100)
    rig.end(first)
    rig.tick()
    asked: list[Budget] = []
    made = Budget("team", 10, "USD", "default")
    rig._propose(set_budget(rig.store, None, made, "eve", rig.clock.time, lambda *about: None, asked, dry_run=True))
    assert (asked[0].spent, asked[0].committed, rig.state.budgets) == ({"2026-11": 100_000}, USD, {})
    rig._propose(set_budget(rig.store, None, made, "eve", rig.clock.time, lambda *about: None, asked))
    assert team(rig) == asked[0]
    assert second in rig.state.jobs
    rig._propose(grant("team", "5 USD", "a paper", "eve", rig.clock.time, lambda *about: None))
    assert team(rig).limit("2026-11") == 10 + 5 * USD
    for wrong in ("5 EUR", "-5", "0"):
        with pytest.raises(Invalid):
            rig._propose(grant("team", wrong, "a paper", "eve", rig.clock.time, lambda *about: None))
    rig._propose(remove_budget("team", "eve", rig.clock.time, lambda *about: None))
    assert rig.state.budgets == {}
