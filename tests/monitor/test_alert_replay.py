"""What rules would have raised on what happened: from events and metrics, for how long, at what cost."""

from __future__ import annotations

from muster.control.alert_replay import replay_history
from muster.core.attempt_events import AttemptEnded, AttemptPlanned, AttemptRunning, WorkerRunning
from muster.core.entities.alert import AlertRulesSet
from muster.core.entities.node import NodeJoined
from muster.core.event import Event
from muster.core.job_events import JobFailed, JobRequeued
from muster.core.reasons import reason
from muster.core.record_events import RunDamaged
from muster.core.resources import Resources
from muster.core.seat import Seat
from muster.monitor.alerts.replay import LOOKS, MOST, Point, replay, step_of
from muster.monitor.alerts.rule_file import default_rules
from muster.store.registry import open_store
from scheduler_kit import job_event

HOUR = 3600.0
ABOUT = {"project": "default", "job": "job-1", "attempt": 1}
LOG = [
    Event(NodeJoined("n0", "main", Resources(64_000, 2**40, 4, "H100"), {}), 1.0),
    job_event(1, gpus=4),
    Event(AttemptPlanned((Seat("n0", (0, 1, 2, 3)),)), 5.0, **ABOUT),
    Event(WorkerRunning(0), 6.0, **ABOUT),
    Event(AttemptRunning(), 6.0, **ABOUT),
    Event(AlertRulesSet("rules: {}"), 7.0),
]
END = [
    Event(AttemptEnded("failed", reason("user_error")), 2 * HOUR, **ABOUT),
    Event(JobFailed(reason("user_error")), 2 * HOUR, **ABOUT),
]


def stamped(events: list[Event]) -> list[Event]:
    return [event.stamped(seq) for seq, event in enumerate(events, start=1)]


def use(start: float, stop: float, value: float) -> list[Point]:
    return [
        Point(time, "job-1", 1, 0, "system/gpu", int(time), value) for time in range(int(start), int(stop), 10)
    ]  # fmt: skip


def test_idle_devices_for_how_long_and_at_what_cost() -> None:
    points = [*use(10, HOUR, 0.1), *use(HOUR, 2 * HOUR, 0.95)]
    found = replay(default_rules(), stamped([*LOG, *END]), points, 0.0, 3 * HOUR)
    idle = found.rules["device-idle"]
    assert (idle.fired, idle.subjects, dict(idle.projects)) == (1, {"job-1"}, {"default": 1})
    assert abs(idle.seconds - 3300) < 200  # an hour without its first ten minutes, and the five that it is kept
    assert idle.accelerator_seconds == 4 * idle.seconds
    assert "10%" in idle.first[0]
    assert found.rules["not-finite"].fired == 0
    assert found.events == len(LOG) + len(END)


def test_what_lasts_less_than_a_look_is_seen() -> None:
    lost = Event(RunDamaged("not_finite", "loss", 7, "loss is nan"), 20.0, "system", **ABOUT)
    ended = [
        Event(AttemptEnded("failed", reason("user_error")), 40.0, **ABOUT),
        Event(JobFailed(reason("user_error")), 40.0, **ABOUT),
    ]
    found = replay(default_rules(), stamped([*LOG, lost, *ended]), [], 0.0, 30 * 24 * HOUR)
    assert found.rules["not-finite"].fired == 1


def test_only_the_period_counts_and_the_state_before_it_is_known() -> None:
    requeued = [
        Event(AttemptEnded("failed", reason("node_lost")), HOUR, **ABOUT),
        Event(JobRequeued(reason("node_lost"), "node", HOUR), HOUR, **ABOUT),
    ]
    found = replay(default_rules(), stamped([*LOG, *requeued]), [], 3 * HOUR, 4 * HOUR)
    assert found.events == 0
    assert found.rules["job-waits-long"].fired == 1  # it waits since before


def test_it_ends_early_when_it_takes_too_long() -> None:
    found = replay(default_rules(), stamped(LOG), use(10, HOUR, 0.1), 0.0, HOUR, lambda: True)
    assert found.until < HOUR


def test_long_periods_are_looked_at_less_often() -> None:
    assert step_of(0, HOUR) == 60
    assert step_of(0, 30 * 24 * HOUR) == 30 * 24 * HOUR / LOOKS
    assert step_of(0, 3650 * 24 * HOUR) == MOST


def test_the_log_of_a_store_is_replayed() -> None:
    store = open_store("memory:")
    store.append([*LOG, Event(RunDamaged("not_finite", "loss", 7, "loss is nan"), 20.0, "system", **ABOUT)])
    found, runs = replay_history(store, None, default_rules(), 0.0, 100.0)
    assert (found.rules["not-finite"].fired, runs) == (1, 0)
