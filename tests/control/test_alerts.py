"""Alerts on a store: what fires is told once and acted on once, whatever is killed; actions and their limits."""

from __future__ import annotations

from array import array
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.control.alerts import Alerts
from muster.control.metric_tap import MetricTap
from muster.control.outbox_rows import due
from muster.control.receivers import KIND, Receiver, Receivers
from muster.core.attempt_events import AttemptPlanned, AttemptRunning, WorkerRunning
from muster.core.entities.alert import (
    ALERTS,
    PENDING_ALERTS,
    AlertActed,
    AlertFired,
    AlertPending,
    AlertResolved,
    AlertRulesSet,
    AlertTold,
    SilenceSet,
)
from muster.core.entities.node import NodeJoined
from muster.core.entities.study import StudyStarted, TrialStarted
from muster.core.errors import Unavailable
from muster.core.event import Event
from muster.core.job_events import JobPriority
from muster.core.record_events import RunDamaged
from muster.core.resources import Resources
from muster.core.seat import Seat
from muster.monitor.alerts.figures import MachineFigures
from muster.store.base import Column, EventFilter, Proposal
from muster.store.direct import DirectCommit
from muster.store.registry import open_store
from scheduler_kit import job_event

OPS = Receivers({"ops": Receiver("webhook", "info", url="http://127.0.0.1/x")})
RULES = """
groups: {wait: 10s, interval: 60s, repeat: 4h}
rules:
  idle:
    signal: device_use
    below: 50%
    for: 30s
    keep: 30s
    owner: me
    runbook: device-idle
    action: {do: ACTION, dry_run: no, limit: 1, per: 1h}
    examples: {fires: 10% x5, quiet: 90%}
  device-idle: {enabled: no}
  device-underused: {enabled: no}
"""

LONG = RULES.replace("for: 30s", "for: 10m").replace("10% x5", "10% x12").replace("ACTION", "save")


class Rig:
    """A store with one running job on four nodes, and alerts on top of it that may be killed."""

    def __init__(self, url: str, action: str = "stop") -> None:
        self.store = open_store(url)
        self.time = 1000.0
        self.killed = 0  # 1: before the next write, 2: after it
        self.store.append([
            *(Event(NodeJoined(f"n{one}", "main", Resources(64_000, 2**40, 4, "H100"), {}), 1.0) for one in range(4)),
            job_event(1, gpus=4),
            Event(AttemptPlanned((Seat("n0", (0, 1, 2, 3)),)), 5.0, project="default", job="job-1", attempt=1),
            Event(WorkerRunning(0), 6.0, project="default", job="job-1", attempt=1),
            Event(AttemptRunning(), 6.0, project="default", job="job-1", attempt=1),
            Event(AlertRulesSet(RULES.replace("ACTION", action)), 7.0, "ada"),
        ])  # fmt: skip
        self.start()

    def start(self) -> None:
        """A new server."""
        self.tap = MetricTap()
        commit = DirectCommit(self.store, lambda events: None)
        inner = commit.submit

        def submit(proposal: Proposal) -> Any:
            if self.killed == 1:
                raise Unavailable("killed before it was written")
            done = inner(proposal)
            if self.killed == 2:
                raise Unavailable("killed after it was written")
            return done

        commit.submit = submit  # type: ignore[method-assign]
        self.alerts = Alerts(self.store, commit, self, self.tap, OPS, lambda: True, lambda: {})
        self.alerts.remember()

    def now(self) -> float:
        return self.time

    def look(self, use: float | None, passed: float = 10.0, kill: int = 0) -> None:
        self.time += passed
        if use is not None:
            column = Column(array("q", [1]), array("d", [self.time]), array("d", [use]))
            self.tap.publish("job-1", 1, 0, {"system/gpu": column})
        self.killed = kill
        if kill:
            with pytest.raises(Unavailable):
                self.alerts.look()
            self.killed = 0
            self.start()
        else:
            self.alerts.look()

    def data(self, kind: type) -> list[Any]:
        events = self.store.events(EventFilter(kind="alert.", limit=100_000))
        return [event.data for event in events if isinstance(event.data, kind)]

    def messages(self) -> list[dict[str, Any]]:
        assert self.store.database is not None
        return [one.doc["notice"] for one in due(self.store.database, f"{KIND} ops", 1e12, 10_000)]


@pytest.fixture
def rig(tmp_path: Path) -> Any:
    made = Rig(f"sqlite:///{tmp_path}/m.db")
    yield made
    made.store.close()


def test_it_fires_is_told_acts_and_ends(rig: Rig) -> None:
    for _ in range(4):
        rig.look(0.1)
    (fired,) = rig.data(AlertFired)
    assert fired.rule == "idle"
    assert "10%" in fired.text
    assert rig.messages() == []
    assert rig.store.state().jobs["job-1"].stop is not None
    rig.look(0.1)
    (told,) = rig.messages()
    assert (told["rule"], told["firing_count"], told["status"]) == ("idle", 1, "firing")
    for _ in range(15):
        rig.look(0.9)
    assert len(rig.data(AlertResolved)) == 1
    assert [one["status"] for one in rig.messages()] == ["firing", "resolved"]
    assert not ALERTS.all(rig.store.state())


LOOKS = st.lists(
    st.tuples(st.sampled_from([0.1, 0.1, 0.9, None]), st.sampled_from([5.0, 10.0, 20.0, 40.0]), st.integers(0, 2)),
    max_size=40,
)


@settings(max_examples=30)
@given(LOOKS)
def test_no_alert_is_lost_or_doubled_when_the_server_is_killed_at_any_commit(
    tmp_path_factory: pytest.TempPathFactory, looks: list[tuple[float | None, float, int]]
) -> None:
    rig = Rig(f"sqlite:///{tmp_path_factory.mktemp('killed')}/m.db", "save")
    try:
        for use, passed, kill in looks:
            rig.look(use, passed, kill)
        numbers = [one.number for one in rig.data(AlertResolved)]
        fired = rig.store.events(EventFilter(kind="alert.fired", limit=100_000))
        assert len(numbers) == len(set(numbers))
        assert set(numbers) <= {event.seq for event in fired}
        assert len(fired) - len(numbers) <= 1  # one subject: it fires again only after its end
        told = Counter(key for one in rig.data(AlertTold) if one.receivers for key in one.keys)
        assert sum(told.values()) == sum(one["firing_count"] + one["resolved_count"] for one in rig.messages())
        for _ in range(8):  # and it still works
            rig.look(0.1)
        assert any(alert.told_at is not None for alert in ALERTS.all(rig.store.state()).values())
    finally:
        rig.store.close()


def test_a_silenced_alert_is_not_told_and_nothing_is_done(rig: Rig) -> None:
    rig.store.append([Event(SilenceSet("s1", rig.time + 100, "a test", "idle"), rig.time, "ada")])
    for _ in range(8):
        rig.look(0.1)
    assert len(rig.data(AlertFired)) == 1
    assert rig.data(AlertActed) == []
    assert rig.messages() == []
    for _ in range(6):
        rig.look(0.1)
    assert len(rig.messages()) == 1  # the silence is over


def test_a_rule_acts_as_often_as_its_limit_allows(tmp_path: Path) -> None:
    rig = Rig(f"sqlite:///{tmp_path}/m.db", "save")
    for use in (0.1, 0.9, 0.1):
        for _ in range(16):
            rig.look(use)
    first, second = rig.data(AlertActed)
    assert (first.done, second.done) == (True, False)
    assert "1 times" in second.text
    assert rig.alerts.command("job-1", 1) is None  # a minute has passed
    rig.store.close()


def test_a_request_to_save_reaches_the_workers(tmp_path: Path) -> None:
    rig = Rig(f"sqlite:///{tmp_path}/m.db", "save")
    for _ in range(4):
        rig.look(0.1)
    command = rig.alerts.command("job-1", 1)
    assert command is not None
    assert command.kind == "save"
    assert rig.alerts.command("job-1", 2) is None
    rig.store.close()


@pytest.mark.parametrize("action", ["quarantine", "restart"])
def test_a_node_is_taken_out_within_the_breaker(tmp_path: Path, action: str) -> None:
    rig = Rig(f"sqlite:///{tmp_path}/m.db", action)
    for _ in range(4):
        rig.look(0.1)
    state = rig.store.state()
    assert state.nodes["n0"].health == "quarantined"
    assert "idle" in state.nodes["n0"].why
    stop = state.jobs["job-1"].stop
    assert (stop is not None and stop.then == "queued") == (action == "restart")
    rig.store.close()


@pytest.mark.parametrize(
    ("before", "after", "said"), [(50, 20, "lower the priority of job-1 from 50 to 20"), (5, 5, "5 already")]
)
def test_a_priority_is_lowered_and_never_raised(tmp_path: Path, before: int, after: int, said: str) -> None:
    rig = Rig(f"sqlite:///{tmp_path}/m.db", "lower_priority")
    rig.store.append([Event(JobPriority(before), 9.0, "ada", "default", "job-1")])
    for _ in range(4):
        rig.look(0.1)
    job = rig.store.state().jobs["job-1"]
    assert (job.priority, job.stop) == (after, None)
    (acted,) = rig.data(AlertActed)
    assert said in acted.text
    assert acted.done == (before != after)
    rig.store.close()


def test_the_study_of_a_trial_is_stopped_once_and_only_of_a_trial(tmp_path: Path) -> None:
    rig = Rig(f"sqlite:///{tmp_path}/m.db", "pause_study")
    rig.look(0.1)
    rig.store.append([
        Event(StudyStarted("lr", {"space": [], "objectives": []}, "", 1, []), 9.0, "ada", "default", "lr-7"),
        Event(TrialStarted("lr-7", 0, {}), 9.0, "muster", "default", "job-1"),
    ])  # fmt: skip
    for _ in range(4):
        rig.look(0.1)
    stopped = rig.store.state().studies["lr-7"].stopped
    assert stopped is not None
    assert stopped.code == "alert_stopped"
    (acted,) = rig.data(AlertActed)
    assert (acted.done, acted.text) == (True, "stop study lr-7, whose trials save first")
    assert rig.store.state().jobs["job-1"].stop is None, "its trials are told by the study"
    rig.store.close()


def test_what_was_pending_for_half_of_a_long_time_goes_on_after_the_server_was_killed(rig: Rig) -> None:
    rig.store.append([Event(AlertRulesSet(LONG), 8.0)])
    for _ in range(29):
        rig.look(0.1)
    assert rig.data(AlertPending) == [], "it may still pass"
    for _ in range(6):
        rig.look(0.1)
    (written,) = rig.data(AlertPending)
    assert (written.rule, written.held) == ("idle", 300.0)
    rig.look(0.1, kill=2)
    for passed in (400.0, 5.0, 5.0):  # it is down for long, and then hears nothing of the run for a moment
        rig.look(None, passed)
    for _ in range(30):
        rig.look(0.1)
        assert rig.data(AlertFired) == [], "the time in which nobody looked does not count"
    rig.look(0.1)
    assert len(rig.data(AlertFired)) == 1
    assert not PENDING_ALERTS.all(rig.store.state())


@pytest.mark.parametrize("heard", [True, False])
def test_what_is_not_pending_any_more_is_forgotten(rig: Rig, heard: bool) -> None:
    rig.store.append([Event(AlertRulesSet(LONG), 8.0)])
    for _ in range(32):
        rig.look(0.1)
    rig.start()
    rig.look(None, 200.0)
    assert PENDING_ALERTS.all(rig.store.state()), "nothing is known yet"
    rig.look(0.9 if heard else None)
    assert bool(PENDING_ALERTS.all(rig.store.state())) != heard
    for _ in range(20):  # of a run that says nothing any more, for a while
        rig.look(None)
    assert not PENDING_ALERTS.all(rig.store.state())
    assert [one.held for one in rig.data(AlertPending)] == [300.0, 0.0]


def test_a_full_disk_of_a_node_and_its_lost_packets_are_told(rig: Rig) -> None:
    machines = {"n1": MachineFigures(0.95, 500.0), "n2": MachineFigures(0.5, 0.0), "gone": MachineFigures(1.0, 1e6)}
    rig.alerts._machines = lambda now: machines
    for _ in range(32):
        rig.look(0.9)
    fired = {one.rule: one for one in rig.data(AlertFired)}
    assert {one.subject["name"] for one in fired.values()} == {"n1"}
    assert fired["node-disk-full"].text == "its fullest file system is 95% full (above 90% for 5m)"
    assert fired["node-network-errors"].text == "packets lost in a minute: 500 (above 100 for 5m)"


def test_a_dry_run_only_says_it(tmp_path: Path) -> None:
    rig = Rig(f"sqlite:///{tmp_path}/m.db")
    rig.store.append(
        [Event(AlertRulesSet(RULES.replace("ACTION", "stop").replace("dry_run: no", "dry_run: yes")), 8.0)]
    )
    for _ in range(4):
        rig.look(0.1)
    assert rig.data(AlertActed)[0].text.startswith("dry run: it would stop job-1")
    assert rig.store.state().jobs["job-1"].stop is None
    rig.store.close()


def test_what_happened_before_the_server_started_counts(rig: Rig) -> None:
    rig.store.append(
        [Event(RunDamaged("not_finite", "loss", 7, "loss is nan"), 990.0, "system", "default", "job-1", 1)]
    )
    rig.start()
    rig.look(None)
    assert [one.rule for one in rig.data(AlertFired)] == ["not-finite"]


def test_rules_that_this_version_can_not_read_give_way_to_the_default_ones(rig: Rig) -> None:
    rig.store.append([Event(AlertRulesSet("rules: {x: {signal: of_the_future}}"), 9.0)])
    assert "device-idle" in rig.alerts.rules(rig.store.state()).rules
