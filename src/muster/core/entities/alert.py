"""Alerts that fire, silences, and the alert rules in force."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from muster.core.entities.base import EntityType, from_fields
from muster.core.payload import Doc, Payload, payload

if TYPE_CHECKING:
    from muster.core.event import Event
    from muster.core.state_data import Changes, State


@dataclass(frozen=True, slots=True)
class Alert:
    """One firing of a rule for one subject. It leaves the state when its end was told, or if nobody was told of it."""

    key: str  # rule and subject: there is one alert of each at a time
    number: int  # of the event that fired it
    rule: str
    severity: str
    subject: Doc  # kind, name, title, project, queue, pool, nodes
    value: float
    text: str
    facts: Doc
    since: float  # when its condition began
    fired_at: float
    told_at: float | None = None  # when receivers were told last
    resolved_at: float | None = None
    acked_at: float | None = None  # when somebody said that they look after it
    acked_by: str = ""
    ack_note: str = ""

    @property
    def project(self) -> str:
        return str(self.subject["project"])

    @property
    def group(self) -> str:
        """Alerts of one group are told together."""
        return f"{self.rule} {self.project or self.subject['pool']}".strip()


@dataclass(frozen=True, slots=True)
class PendingAlert:
    """A condition that holds and has not fired, under the key of its alert."""

    held: float  # seconds for which it had held when that was written


@dataclass(frozen=True, slots=True)
class Silence:
    """Alerts that match all given parts are not told, and nothing is done about them."""

    id: str
    until: float
    by: str
    why: str
    rule: str = ""
    project: str = ""
    run: str = ""
    node: str = ""

    def covers(self, alert: Alert) -> bool:
        subject = alert.subject
        return (
            (not self.rule or self.rule == alert.rule)
            and (not self.project or self.project == subject["project"])
            and (not self.run or (subject["kind"], subject["name"]) == ("run", self.run))
            and (not self.node or self.node in subject["nodes"])
        )


@dataclass(frozen=True, slots=True)
class AlertRules:
    """The file that was applied last; "" for the default rules alone."""

    text: str = ""


@dataclass(frozen=True, slots=True)
class ActionLog:
    """When a rule acted, for its limit. The newest times."""

    times: list[float] = field(default_factory=list)


ALERTS = EntityType("alert", from_fields(Alert))
PENDING_ALERTS = EntityType("pending_alert", from_fields(PendingAlert))
SILENCES = EntityType("silence", from_fields(Silence))
ALERT_RULES = EntityType("alert_rules", from_fields(AlertRules))
ACTION_LOGS = EntityType("alert_actions", from_fields(ActionLog))
ACTIONS_KEPT = 1000


@payload("alert.fired")
class AlertFired(Payload):
    """A rule fires. `since`: when its condition began."""

    key: str
    rule: str
    severity: str
    subject: Doc
    value: float
    text: str
    facts: Doc
    since: float

    def fold(self, state: State, event: Event, changes: Changes) -> None:
        parts = (self.rule, self.severity, self.subject, self.value, self.text, self.facts, self.since, event.time)
        ALERTS.put(state, self.key, Alert(self.key, event.seq, *parts), changes)
        if self.key in PENDING_ALERTS.all(state):
            PENDING_ALERTS.drop(state, self.key, changes)

    def columns(self) -> tuple[str | None, ...]:
        return (self.key, self.rule)


@payload("alert.pending")
class AlertPending(Payload):
    """The condition of a rule with a long `for` has held for `held` seconds, half of it at least, so that a server that
    starts now does not count from 0. 0: it does not hold any more."""

    key: str
    rule: str
    held: float

    def fold(self, state: State, event: Event, changes: Changes) -> None:
        if self.held:
            PENDING_ALERTS.put(state, self.key, PendingAlert(self.held), changes)
        else:
            PENDING_ALERTS.drop(state, self.key, changes)

    def columns(self) -> tuple[str | None, ...]:
        return (self.key, self.rule)


@payload("alert.resolved")
class AlertResolved(Payload):
    """An alert has ended. `text` says why."""

    key: str
    number: int
    rule: str
    text: str

    def fold(self, state: State, event: Event, changes: Changes) -> None:
        alert = ALERTS.all(state).get(self.key)
        if alert is None or alert.number != self.number:
            return
        if alert.told_at is None:
            ALERTS.drop(state, self.key, changes)
        else:
            ALERTS.put(state, self.key, replace(alert, resolved_at=event.time), changes)

    def columns(self) -> tuple[str | None, ...]:
        return (self.key, self.rule)


@payload("alert.told")
class AlertTold(Payload):
    """Receivers were told of these alerts, in one message each. Alerts that have ended leave the state with it."""

    group: str
    keys: list[str]
    receivers: list[str]

    def fold(self, state: State, event: Event, changes: Changes) -> None:
        alerts = ALERTS.all(state)
        for alert in [alerts[key] for key in self.keys if key in alerts]:
            if alert.resolved_at is not None:
                ALERTS.drop(state, alert.key, changes)
            else:
                ALERTS.put(state, alert.key, replace(alert, told_at=event.time), changes)


@payload("alert.acknowledged")
class AlertAcknowledged(Payload):
    """Somebody looks after an alert: receivers are told of its end, and are not reminded of it before."""

    key: str
    number: int
    note: str = ""

    def fold(self, state: State, event: Event, changes: Changes) -> None:
        alert = ALERTS.all(state).get(self.key)
        if alert is not None and alert.number == self.number:
            acked = replace(alert, acked_at=event.time, acked_by=event.actor, ack_note=self.note)
            ALERTS.put(state, self.key, acked, changes)

    def columns(self) -> tuple[str | None, ...]:
        return (self.key,)


@payload("alert.acted")
class AlertActed(Payload):
    """A rule acted on what its alert is about, or would have, in a dry run or past its limit. `text` says what."""

    key: str
    number: int
    rule: str
    action: str
    done: bool
    text: str

    def fold(self, state: State, event: Event, changes: Changes) -> None:
        if self.done:
            before = ACTION_LOGS.all(state).get(self.rule, ActionLog())
            ACTION_LOGS.put(state, self.rule, ActionLog([*before.times[1 - ACTIONS_KEPT :], event.time]), changes)

    def columns(self) -> tuple[str | None, ...]:
        return (self.key, self.rule)


@payload("alert.rules_set")
class AlertRulesSet(Payload):
    """A file of alert rules was applied; empty for the default rules."""

    text: str

    def fold(self, state: State, event: Event, changes: Changes) -> None:
        if self.text:
            ALERT_RULES.put(state, "rules", AlertRules(self.text), changes)
        else:
            ALERT_RULES.drop(state, "rules", changes)


@payload("silence.set")
class SilenceSet(Payload):
    """Alerts that match are silent until then."""

    id: str
    until: float
    why: str
    rule: str = ""
    project: str = ""
    run: str = ""
    node: str = ""

    def fold(self, state: State, event: Event, changes: Changes) -> None:
        parts = (self.until, event.actor, self.why, self.rule, self.project, self.run, self.node)
        SILENCES.put(state, self.id, Silence(self.id, *parts), changes)


@payload("silence.ended")
class SilenceEnded(Payload):
    """A silence was taken back, or its time is over."""

    id: str

    def fold(self, state: State, event: Event, changes: Changes) -> None:
        SILENCES.drop(state, self.id, changes)
