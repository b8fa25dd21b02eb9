"""The goodput ledger in the database: each attempt once, by day, node, queue and project, and late reports count."""

from __future__ import annotations

import pytest

from muster.control.follow import Follower
from muster.control.goodput import GoodputLedger, live_jobs
from muster.monitor.goodput_shares import Held, Totals, totals
from muster.track.goodput_rows import GoodputFilter
from muster.wire import WorkerExit
from record_kit import Record

DAY = 86_400


@pytest.fixture
def ledger(record: Record) -> GoodputLedger:
    return GoodputLedger(record.store, record.track, lambda: record.moment[0])


def fold(record: Record, ledger: GoodputLedger) -> None:
    Follower("goodput", ledger.fold, record.store, record.commit, kind="attempt.ended").reach()


def read(record: Record, ledger: GoodputLedger, **want) -> Totals:
    chosen = GoodputFilter(**want)
    found = ledger.read(chosen, live_jobs(record.store.state(), chosen))
    return totals(Held(one.units, one.time.parts, one.time.waited, one.time.steps, one.time.repeats) for one in found)


def phase(at: float, name: str, **spent: float) -> dict:
    return {"type": "phase", "time": at, "name": name, **({"spent": spent} if spent else {})}


def run_until(record: Record, seconds: float) -> None:
    record.moment[0] += seconds


def test_an_attempt_counts_while_it_lives_and_once_when_it_has_ended(record, ledger):
    job = record.submit("x", num_nodes=2, resources={"cpus": 2})
    record.start(job, nodes=("n0", "n1"))
    begun = record.moment[0]
    record.report(job, phase(begun + 10, "build"), phase(begun + 15, "training"))
    run_until(record, 100)
    alive = read(record, ledger)
    assert alive.parts["starting.build"] == 4 * 5.0
    assert sum(alive.parts.values()) == alive.held
    fold(record, ledger)
    assert read(record, ledger) == alive, "a live attempt has no rows"

    record.end(job, 1)
    fold(record, ledger)
    done = read(record, ledger)
    (attempt,) = record.store.attempts(job)
    assert done.held == pytest.approx(4 * (attempt.ended_at - attempt.planned_at))
    fold(record, ledger)
    assert read(record, ledger) == done
    assert read(record, ledger, node="n1").held == done.held / 2
    assert read(record, ledger, run=job, queue="default", projects=["default"]) == done
    for nothing in ({"node": "n2"}, {"queue": "other"}, {"projects": ["other"]}, {"run": "other"}, {"projects": []}):
        assert read(record, ledger, **nothing).held == 0


def test_days_are_apart_and_add_up(record, ledger):
    job = record.submit("x", resources={"cpus": 1})
    record.start(job)
    run_until(record, 2 * DAY)
    record.end(job, 1)
    fold(record, ledger)
    whole = read(record, ledger)
    last = int(record.moment[0]) // DAY * DAY
    assert read(record, ledger, since=DAY).held == pytest.approx(
        whole.held - (DAY - record.store.attempts(job)[0].planned_at)
    )
    assert read(record, ledger, since=last).held == pytest.approx(record.store.attempts(job)[0].ended_at - last)
    assert read(record, ledger, since=last + DAY).held == 0


def test_reports_that_come_after_the_end_change_what_is_read(record, ledger):
    job = record.submit("x", resources={"cpus": 1})
    record.start(job)
    begun = record.moment[0]
    run_until(record, 100)
    record.end(job, 1)
    fold(record, ledger)
    before = read(record, ledger)
    assert before.parts["saving"] == 0
    exit = WorkerExit("succeeded", "completed", "", begun + 90)
    record.report(job, phase(begun + 20, "saving"), phase(begun + 30, "training"), exit=exit)
    after = read(record, ledger)
    assert after.parts["saving"] == 10.0
    assert after.held == before.held


def test_steps_that_are_repeated_after_restarts_count_against_the_furthest_attempt(record, ledger):
    job = record.submit("x", resources={"cpus": 1})
    for number, upto in ((1, 50), (2, 5), (3, 60)):
        record.start(job, number)
        record.report(job, phase(record.moment[0], "training"), attempt=number)
        for step in range(1, upto + 1):
            run_until(record, 1)
            record.report(job, rows=[(step, 0.5)], attempt=number)
        if number < 3:
            record.restart(job, number)
            run_until(record, 7)
    record.end(job, 3)
    fold(record, ledger)
    found = read(record, ledger)
    assert found.parts["done_again"] == pytest.approx(5 + 50, abs=1)
    assert found.parts["training"] == pytest.approx(50 + 10, abs=3)
    assert found.waited == 2 * 9.0  # and a second for each of two events
    assert found.iterations == pytest.approx(60 / (found.held + found.waited), abs=0.05)


def test_a_purged_run_leaves_nothing_and_comes_back_by_nothing(record, ledger):
    job = record.submit("x")
    record.start(job)
    record.report(job, phase(record.moment[0], "training"))
    run_until(record, 10)
    record.end(job, 1)
    fold(record, ledger)
    record.follower.reach()
    assert read(record, ledger).held > 0
    assert record.track.purge.purge(job, "alice").keys() >= {"goodput", "goodput_nodes", "run_phases"}
    assert read(record, ledger).held == 0
    Follower("again", ledger.fold, record.store, record.commit, kind="attempt.ended").reach()
    assert read(record, ledger).held == 0
