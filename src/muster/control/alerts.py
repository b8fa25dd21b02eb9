"""Raises alerts: gathers what signals read, evaluates the rules, and commits what follows in one transaction.

An alert that fires, the messages about it and the action of its rule are written together or not at all, so that a
server that is killed loses none of them and repeats none.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from math import inf
from typing import Any, Final

from muster.control.alert_actions import act
from muster.control.background import Background
from muster.control.clock import Clock
from muster.control.metric_tap import MetricTap
from muster.control.money_figures import money_of
from muster.control.outbox_rows import message_row
from muster.control.receivers import KIND, Receivers
from muster.core.entities.alert import (
    ALERT_RULES,
    ALERTS,
    PENDING_ALERTS,
    SILENCES,
    Alert,
    AlertRules,
    AlertTold,
    SilenceEnded,
)
from muster.core.errors import SpecError
from muster.core.event import SYSTEM, Event
from muster.core.state import State
from muster.monitor.alerts.evaluate import (
    Outcome,
    Pending,
    evaluate,
    exists_in,
    read_signals,
    remembered,
    revived,
)
from muster.monitor.alerts.figures import Figures, MachineFigures, RunFigures
from muster.monitor.alerts.recent import Recent
from muster.monitor.alerts.rule import RuleSet
from muster.monitor.alerts.rule_file import default_rules, parse_alert_rules
from muster.monitor.alerts.signals.base import View
from muster.monitor.alerts.tell import Notice, due, muted
from muster.monitor.alerts.track import GAP, Track
from muster.store.base import Entry, EventFilter, Rows, Store
from muster.store.commit import Commit
from muster.wire import Command

log = logging.getLogger("muster.control")

EVERY: Final = 5.0  # seconds between two looks
HELD: Final = 50_000  # documents of phases and events between two looks; what does not fit is passed over
PAST: Final = 10_000  # events of one kind that are read when the server starts
SHOWN: Final = 20  # alerts that one message describes
KINDS: Final = ("job.requeued", "attempt.hung", "run.damaged", "job.failed", "job.succeeded", "node.finding")

Docs = Iterable[tuple[int, dict[str, Any]]]


class Alerts:
    """A thread beside the control loop. `server`: its own figures. `machines`: those of nodes at a time. `usual_costs`:
    of projects, for an hour."""

    def __init__(
        self,
        store: Store,
        commit: Commit,
        clock: Clock,
        tap: MetricTap,
        receivers: Receivers,
        may_act: Callable[[], bool],
        server: Callable[[], Mapping[str, float]],
        machines: Callable[[float], Mapping[str, MachineFigures]] = lambda now: {},
        usual_costs: Callable[[float], Mapping[str, float]] = lambda now: {},
    ) -> None:
        self._store, self._commit, self._clock, self._tap, self._server = store, commit, clock, tap, server
        self.receivers, self._machines, self._usual_costs = receivers, machines, usual_costs
        self._subscription = tap.subscribe("alerts")
        self._figures, self._recent = Figures(), Recent()
        self._events: deque[Event] = deque(maxlen=HELD)
        self._phases: deque[tuple[str, int, int, dict[str, Any]]] = deque(maxlen=HELD)
        self._tracks: Mapping[str, Track] = {}
        self._pending: Sequence[Pending] = ()
        self._looked = self._began = -inf  # the last look, and the first one of those that came regularly
        self._saves: dict[tuple[str, int], float] = {}  # attempts that are to save → since when
        self._lock, self._figures_lock = threading.Lock(), threading.Lock()
        self._rules: tuple[str, RuleSet] | None = None
        self._thread = Background("alerts", self.look, may_act, lambda took: max(EVERY, 10 * took))

    def start(self) -> None:
        self.remember()
        self._thread.start()

    def close(self) -> None:
        self._tap.unsubscribe(self._subscription)
        self._thread.close()

    def remember(self) -> None:
        """Takes what happened before this server started."""
        past = [
            event
            for kind in KINDS
            for event in self._store.events(EventFilter(kind=kind, last=True, limit=PAST))
        ]  # fmt: skip
        for event in sorted(past, key=lambda event: event.seq):
            self._recent.take(event)
        last = max((event.seq for event in past), default=0)
        with self._lock:
            self._events = deque((event for event in self._events if event.seq > last), maxlen=HELD)

    # --- what arrives -------------------------------------------------------------------------------------------------
    def on_commit(self, events: Sequence[Event]) -> None:
        """Called by the thread that commits, so it must be quick."""
        wanted = [event for event in events if event.kind in KINDS]
        if wanted:
            with self._lock:
                self._events.extend(wanted)

    def take_phases(self, job_id: str, number: int, docs: Docs) -> None:
        """Takes documents of ranks that were stored."""
        for rank, doc in docs:
            if doc.get("type") == "phase":
                self._phases.append((job_id, number, rank, doc))

    def command(self, job_id: str, number: int) -> Command | None:
        """The request to save, for every worker that reports within a minute of it."""
        since = self._saves.get((job_id, number))
        return Command(int(since * 1000), "save") if since is not None else None

    # --- a look -------------------------------------------------------------------------------------------------------
    def look(self) -> None:
        """Evaluates all rules once, and writes what follows."""
        now = self._clock.now()
        self._gather(now)
        if not 0 <= now - self._looked <= GAP:
            self._tracks, self._began = {}, now
        server, usual = self._server(), self._usual_costs(now)
        found: list[tuple[Outcome, list[tuple[str, int]]]] = []

        def propose(state: State) -> Entry:
            entry, outcome, saves = self._evaluate(state, server, usual, now)
            found[:] = [(outcome, saves)]
            return entry

        self._commit.submit(propose).result()
        outcome, saves = found[0]
        self._tracks, self._pending, self._looked = outcome.tracks, outcome.pending, now
        self._saves = {key: at for key, at in self._saves.items() if now - at < 60} | dict.fromkeys(saves, now)

    def pending(self) -> Sequence[Pending]:
        """Conditions that hold since too short a time, as of the last look."""
        return self._pending

    def figures(self, job_id: str, number: int) -> RunFigures | None:
        """What is known of a running program, for readers: it changes with every look."""
        with self._figures_lock:
            found = self._figures.of(job_id, number)
            return deepcopy(found) if found is not None else None

    def rules(self, state: State) -> RuleSet:
        """The rules in force. A file that this version can't read counts as none, and is logged."""
        text = ALERT_RULES.all(state).get("rules", AlertRules()).text
        if self._rules is None or self._rules[0] != text:
            try:
                self._rules = text, parse_alert_rules(text) if text else default_rules()
            except SpecError as error:
                log.error("the alert rules can't be read, so the default rules are in force: %s", error)
                self._rules = text, default_rules()
        return self._rules[1]

    def _gather(self, now: float) -> None:
        points = self._subscription.take().points
        with self._figures_lock:
            for one in points:
                columns = (one.column.steps, one.column.times, one.column.values)
                self._figures.take(one.run, one.attempt, one.rank, one.name, columns, now)
            while self._phases:
                job_id, number, rank, doc = self._phases.popleft()
                self._figures.take_phases(job_id, number, [(rank, doc)])
        with self._lock:
            events, self._events = self._events, deque(maxlen=HELD)
        for event in events:
            self._recent.take(event)
        self._recent.forget(now)

    def _evaluate(
        self, state: State, server: Mapping[str, float], usual: Mapping[str, float], now: float
    ) -> tuple[Entry, Outcome, list[tuple[str, int]]]:
        rules, alerts = self.rules(state), ALERTS.all(state)
        view = View(state, now, self._figures, self._recent, server, self._machines(now), money_of(state, usual, now))
        pending, complete = PENDING_ALERTS.all(state), now - self._began > GAP
        tracks = self._tracks if complete else {**revived(pending, now), **self._tracks}
        outcome = evaluate(rules, read_signals(rules, view), tracks, alerts, exists_in(state), now)
        after = _after(alerts, outcome, now)
        quiet = muted(rules, after, SILENCES.all(state).values(), now)
        events = [_about(one, one.subject, now) for one in outcome.fired]
        events += [_about(one, alerts[one.key].subject, now) for one in outcome.resolved]
        events += [Event(one, now, SYSTEM) for one in remembered(rules, outcome, pending, complete, now)]
        acted, saves = self._act(rules, outcome, after, quiet, state, now)
        told, rows = self._tell(rules, alerts, quiet, now)
        over = [silence.id for silence in SILENCES.all(state).values() if silence.until <= now]
        ends = [Event(SilenceEnded(one), now, SYSTEM) for one in over]
        return Entry([*events, *acted, *told, *ends], rows=rows), outcome, saves

    def _act(
        self,
        rules: RuleSet,
        outcome: Outcome,
        after: Mapping[str, Alert],
        quiet: Mapping[str, str],
        state: State,
        now: float,
    ) -> tuple[list[Event], list[tuple[str, int]]]:
        events: list[Event] = []
        saves: list[tuple[str, int]] = []
        times: dict[str, int] = {}
        for one in outcome.fired:
            rule = rules.rules[one.rule]
            if rule.action is None or one.key in quiet:
                continue
            acted = act(rule, after[one.key], state, now, times.get(rule.name, 0))
            times[rule.name] = times.get(rule.name, 0) + bool(getattr(acted.events[0].data, "done", False))
            events += acted.events
            saves += [acted.save] if acted.save is not None else []
        return events, saves

    def _tell(
        self, rules: RuleSet, alerts: Mapping[str, Alert], quiet: Mapping[str, str], now: float
    ) -> tuple[list[Event], Rows]:
        """Alerts that were fired before this look: the number of one that fires now is not known yet."""
        events: list[Event] = []
        rows = []
        for notice in due(rules, alerts, quiet, now):
            first = (notice.firing or notice.resolved)[0]
            names = self.receivers.of(
                rules.rules.get(first.rule), [one.severity for one in notice.firing] or ["critical"]
            )
            if names or notice.resolved:
                events.append(Event(AlertTold(notice.group, notice.keys, names), now, SYSTEM, first.project))
            doc = notice_doc(rules, notice, now)
            rows += [message_row(KIND, {"receiver": name, "notice": doc}, now, name) for name in names]
        return events, rows


def notice_doc(rules: RuleSet, notice: Notice, now: float) -> dict[str, Any]:
    """A message about alerts of one group."""
    first = (notice.firing or notice.resolved)[0]
    rule = rules.rules.get(first.rule)
    return {
        "group": notice.group,
        "rule": first.rule,
        "severity": first.severity,
        "project": first.project,
        "status": "firing" if notice.firing else "resolved",
        "firing": [_alert_doc(alert) for alert in notice.firing[:SHOWN]],
        "firing_count": len(notice.firing),
        "resolved": [_alert_doc(alert) for alert in notice.resolved[:SHOWN]],
        "resolved_count": len(notice.resolved),
        "runbook": rule.runbook if rule is not None else "",
        "owner": rule.owner if rule is not None else "",
        "time": now,
    }


def _alert_doc(alert: Alert) -> dict[str, Any]:
    return {
        "number": alert.number,
        "title": alert.subject["title"],
        "subject": alert.subject,
        "value": alert.value,
        "text": alert.text,
        "fired_at": alert.fired_at,
        "resolved_at": alert.resolved_at,
    }


def _after(alerts: Mapping[str, Alert], outcome: Outcome, now: float) -> dict[str, Alert]:
    """The alerts as they will be after this look. Those that fire now have no number yet."""
    after = dict(alerts)
    for one in outcome.fired:
        parts = (one.rule, one.severity, one.subject, one.value, one.text, one.facts, one.since, now)
        after[one.key] = Alert(one.key, 0, *parts)
    for end in outcome.resolved:
        after[end.key] = replace(after[end.key], resolved_at=now)
    return after


def _about(data: Any, subject: Mapping[str, Any], now: float) -> Event:
    job = subject["name"] if subject["kind"] == "run" else ""
    return Event(data, now, SYSTEM, subject["project"], job)
