"""Evaluates the rules: readings and what was known before in, alerts that fire and end out. A pure function.

What fires is in the state and survives the server. What is pending is in memory. Of a rule with a long `for`, the state
also has how long its condition had held when half of that time was over, so that the rest follows after a restart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from muster.core.entities.alert import Alert, AlertFired, AlertPending, AlertResolved, PendingAlert
from muster.core.state import State
from muster.core.units import format_duration
from muster.monitor.alerts.rule import Reading, Rule, RuleSet, Subject
from muster.monitor.alerts.signals import SIGNALS
from muster.monitor.alerts.signals.base import View
from muster.monitor.alerts.track import GAP, Track, advance, firing_track

FIRED_MAX: Final = 1000  # alerts that one look may fire; the rest follows with the next looks
LONG: Final = 300.0  # seconds of `for` from which on it is remembered that a condition holds
FACT_MAX: Final = 500  # characters

Tracks = Mapping[str, Track]


@dataclass(frozen=True, slots=True)
class Pending:
    """A condition that holds and has not lasted long enough."""

    rule: str
    subject: Subject
    value: float
    since: float


@dataclass(slots=True)
class Outcome:
    fired: list[AlertFired] = field(default_factory=list)
    resolved: list[AlertResolved] = field(default_factory=list)
    pending: list[Pending] = field(default_factory=list)
    tracks: dict[str, Track] = field(default_factory=dict)
    over: set[str] = field(default_factory=set)  # what was pending and is not met any more


def read_signals(rules: RuleSet, view: View) -> dict[str, list[Reading]]:
    """The readings of the signals that the rules name, each read once."""
    return {name: list(SIGNALS[name].read(view)) for name in {rule.signal for rule in rules.rules.values()}}


def evaluate(
    rules: RuleSet,
    readings: Mapping[str, Sequence[Reading]],
    tracks: Tracks,
    alerts: Mapping[str, Alert],
    exists: Callable[[Mapping[str, Any]], bool],
    now: float,
    gap: float = GAP,
) -> Outcome:
    """One look. `tracks` are those of the last look, `alerts` those of the state; `exists`: whether a subject does.

    `gap`: seconds between two looks, from which on nothing is known of the time between.
    """
    out = Outcome()
    firing = {key: alert for key, alert in alerts.items() if alert.resolved_at is None}
    for rule in rules.rules.values():
        for reading in readings.get(rule.signal, ()):
            if rule.scope.covers(reading.subject):
                _look(rule, reading, tracks, firing, alerts, out, now, gap)
    ended = {one.key for one in out.resolved}
    for key, alert in firing.items():
        if key not in out.tracks and key not in ended:
            _absent(rules.rules.get(alert.rule), alert, tracks.get(key), exists(alert.subject), out, now, gap)
    return out


def revived(pending: Mapping[str, PendingAlert], now: float) -> dict[str, Track]:
    """The tracks of what was pending before this server started. The time in which nobody looked does not count."""
    return {key: Track(True, now - one.held, now) for key, one in pending.items()}


def remembered(
    rules: RuleSet, out: Outcome, pending: Mapping[str, PendingAlert], complete: bool, now: float
) -> list[AlertPending]:
    """What is written of the conditions that are pending after a look: long ones, once, and that they ended.

    `complete`: whether every signal that has a value was read. After a restart some come later.
    """
    found: list[AlertPending] = []
    for one in out.pending:
        rule, held = rules.rules[one.rule], now - one.since
        key = key_of(rule, one.subject)
        if rule.hold >= LONG and rule.hold / 2 <= held < rule.hold and key not in pending and len(found) < FIRED_MAX:
            found.append(AlertPending(key, rule.name, held))
    fired = {one.key for one in out.fired}
    for key in pending:
        if key not in fired and (key in out.over or (complete and key not in out.tracks)):
            found.append(AlertPending(key, key.partition(" ")[0], 0.0))
    return found


def exists_in(state: State) -> Callable[[Mapping[str, Any]], bool]:
    """Whether the subject of an alert is still there: a job that is not over, a node of the cluster."""

    def exists(subject: Mapping[str, Any]) -> bool:
        kind, name = subject["kind"], subject["name"]
        if kind == "run":
            return name in state.jobs
        if kind == "budget":
            return name in state.budgets
        return state.find_node(name) is not None if kind == "node" else kind != "project" or name in state.projects

    return exists


def key_of(rule: Rule, subject: Subject) -> str:
    return f"{rule.name} {subject.key}"


def text_of(rule: Rule, reading: Reading) -> str:
    """`its devices are in use 23% of the time (below 50% for 10m)`."""
    signal = SIGNALS[rule.signal]
    lasts = f" for {format_duration(rule.hold)}" if rule.hold else ""
    last = f"; {str(reading.facts['last'])[:FACT_MAX]}" if reading.facts.get("last") else ""
    return f"{signal.says.format(value=signal.show(reading.value))} ({threshold_of(rule)}{lasts}){last}"


def threshold_of(rule: Rule) -> str:
    """`below 50%`."""
    word, value = ("above", rule.above) if rule.above is not None else ("below", rule.below)
    return f"{word} {SIGNALS[rule.signal].show(value or 0.0)}"


def facts_of(rule: Rule, reading: Reading) -> dict[str, Any]:
    """What fills the blanks of the runbook."""
    subject, signal = reading.subject, SIGNALS[rule.signal]
    known = {
        "value": signal.show(reading.value),
        "threshold": threshold_of(rule),
        "title": subject.title or subject.name,
        "node": subject.nodes[0] if subject.nodes else "",
        "nodes": ", ".join(subject.nodes[:8]),
        **({"run": subject.name} if subject.kind == "run" else {}),
        **{name: getattr(subject, name) for name in ("project", "queue", "pool")},
        **reading.facts,
    }
    return {key: value[:FACT_MAX] if isinstance(value, str) else value for key, value in known.items()}


def subject_doc(subject: Subject) -> dict[str, Any]:
    return {
        "kind": subject.kind,
        "name": subject.name,
        "title": subject.title or subject.name,
        "project": subject.project,
        "queue": subject.queue,
        "pool": subject.pool,
        "nodes": list(subject.nodes),
    }


def _look(
    rule: Rule,
    reading: Reading,
    tracks: Tracks,
    firing: Mapping[str, Alert],
    alerts: Mapping[str, Alert],
    out: Outcome,
    now: float,
    gap: float,
) -> None:
    key, subject = key_of(rule, reading.subject), reading.subject
    before = tracks.get(key)
    if key in firing and (before is None or not before.firing):
        before = firing_track(now)
    track = advance(rule, before, reading.value, now, gap)
    if track is None:
        if key in firing:
            out.resolved.append(_resolved(firing[key], text_of(rule, reading)))
        elif before is not None:
            out.over.add(key)
        return
    if track.firing and key not in firing and (key in alerts or len(out.fired) >= FIRED_MAX):
        track = Track(track.met, track.since, track.seen)  # later: too many now, or the end of the last one is untold
    elif track.firing and key not in firing:
        told = (reading.value, text_of(rule, reading), facts_of(rule, reading), track.since)
        out.fired.append(AlertFired(key, rule.name, rule.severity, subject_doc(subject), *told))
    out.tracks[key] = track
    if not track.firing:
        out.pending.append(Pending(rule.name, subject, reading.value, track.since))


def _absent(
    rule: Rule | None, alert: Alert, before: Track | None, exists: bool, out: Outcome, now: float, gap: float
) -> None:
    """An alert that fires and whose signal has no value, or whose rule is gone or no longer covers it."""
    if rule is None:
        out.resolved.append(_resolved(alert, "the rule is no longer in force"))
    elif not exists:
        what = {"run": "the run is over", "node": "the node has left"}.get(alert.subject["kind"], "it is gone")
        out.resolved.append(_resolved(alert, what))
    else:
        track = advance(rule, before or firing_track(now), None, now, gap)
        if track is None:
            out.resolved.append(_resolved(alert, "the signal has no value any more"))
        else:
            out.tracks[alert.key] = track


def _resolved(alert: Alert, text: str) -> AlertResolved:
    return AlertResolved(alert.key, alert.number, alert.rule, text)
