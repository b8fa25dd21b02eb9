"""Alerts: those that fire, one with its runbook, silences, and the rules."""

from __future__ import annotations

import secrets
from typing import Annotated, Any, Final, cast

from fastapi import Path
from pydantic import BaseModel, ConfigDict, Field

from muster.api.alerts import (
    AlertDetail,
    AlertList,
    AlertRulesSet,
    AlertRulesView,
    AlertRuleView,
    AlertSubject,
    AlertTest,
    AlertView,
    SilenceView,
    TestedRule,
)
from muster.control.alert_replay import replay_history
from muster.control.receivers import Receivers
from muster.core.document import MAX_BYTES
from muster.core.entities.alert import (
    ALERT_RULES,
    ALERTS,
    SILENCES,
    Alert,
    AlertAcknowledged,
    AlertActed,
    AlertFired,
    AlertResolved,
    AlertRules,
    Silence,
    SilenceEnded,
    SilenceSet,
)
from muster.core.entities.alert import (
    AlertRulesSet as RulesApplied,
)
from muster.core.errors import Conflict, Invalid, NotFound
from muster.core.event import Event
from muster.core.state import State
from muster.core.units import format_duration
from muster.monitor.alerts.evaluate import Pending, subject_doc, text_of, threshold_of
from muster.monitor.alerts.replay import UNKNOWN, Tested, step_of
from muster.monitor.alerts.rule import Reading, Rule, RuleSet
from muster.monitor.alerts.rule_file import default_rules, parse_alert_rules
from muster.monitor.alerts.runbooks import fill, runbooks
from muster.monitor.alerts.signals import SIGNALS
from muster.monitor.alerts.tell import muted
from muster.server.auth import Identity
from muster.server.context import HEAVY, Caller, Leading
from muster.server.leader import Leader
from muster.server.typed_routes import needs, typed_router
from muster.store.base import Entry, EventFilter

router = typed_router(prefix="/v1", tags=["alerts"])

SILENCE_MAX: Final = 90 * 86_400.0  # seconds
SILENCES_MAX: Final = 10_000
Name = Annotated[str, Field(max_length=100, pattern=r"^[^\x00]*$")]
Number = Annotated[int, Path(ge=1, le=2**53)]


class SilenceBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    why: str = Field(min_length=1, max_length=500, pattern=r"^[^\x00]*$")
    seconds: float = Field(gt=0, le=SILENCE_MAX)
    rule: Name = ""
    project: Name = ""
    run: Name = ""
    node: Name = ""


class AckBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    note: str = Field("", max_length=500, pattern=r"^[^\x00]*$", description="what you do about it")


class RulesFile(BaseModel):
    model_config = ConfigDict(extra="forbid")

    text: str = Field(max_length=MAX_BYTES, description="the whole file, as YAML; empty for the default rules")
    dry_run: bool = Field(False, description="only check it, and say what would change")
    source: str = Field("The rules", max_length=1000, description="what errors should call it")


class TestBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    text: str = Field("", max_length=MAX_BYTES, description="a file of rules, as YAML; empty for the default rules")
    since: float = Field(2_592_000, ge=60, le=315_360_000, description="seconds back from now")
    source: str = Field("The rules", max_length=1000, description="what errors should call it")


@router.get("/alerts", openapi_extra=needs("anyone"))
def list_alerts(leader: Leading, caller: Caller) -> AlertList:
    """Alerts that are pending or fire: those of your projects, and those of nodes and of the server."""
    now = leader.clock.now()
    pending = leader.alerts.pending()
    return leader.look(lambda state: _list(leader, state, caller, pending, now))


@router.get("/alerts/rules", openapi_extra=needs("anyone"))
def get_alert_rules(leader: Leading) -> AlertRulesView:
    """The rules in force."""
    return leader.look(lambda state: _rules_view(leader.alerts.rules(state), _text(state), leader.alerts.receivers))


@router.put("/alerts/rules", openapi_extra=needs("superuser"))
def put_alert_rules(body: RulesFile, leader: Leading, caller: Caller) -> AlertRulesSet:
    """Applies a file of rules, all of it or nothing, over the default rules."""
    caller.need_superuser()
    receivers = leader.alerts.receivers
    made = parse_alert_rules(body.text or {}, source=body.source, receivers=receivers.names)
    before = leader.look(leader.alerts.rules)
    text = body.text if body.text.strip() else ""
    if not body.dry_run:
        event = Event(RulesApplied(text), leader.clock.now(), caller.user)
        leader.propose(lambda state: Entry([event] if _text(state) != text else []))
    old, new = before.rules, made.rules
    return {
        **_rules_view(made, text, receivers),
        "applied": not body.dry_run,
        "added": [name for name in new if name not in old],
        "removed": [name for name in old if name not in new],
        "changed": [name for name in new if name in old and new[name] != old[name]],
    }


@router.post("/alerts/test", dependencies=HEAVY, openapi_extra=needs("superuser"))
def try_alert_rules(body: TestBody, leader: Leading, caller: Caller) -> AlertTest:
    """What rules would have raised on what really happened: how often, for whom, and on what they would have acted."""
    caller.need_superuser()
    rules = parse_alert_rules(body.text or {}, source=body.source, receivers=leader.alerts.receivers.names)
    until = leader.clock.now()
    found, runs = replay_history(leader.store, leader.track, rules, until - body.since, until)
    tested = {name: one for name, one in found.rules.items() if rules.rules[name].signal not in UNKNOWN}
    return {
        "since": until - body.since,
        "until": found.until,
        "whole": found.until > until - 2 * step_of(until - body.since, until),
        "events": found.events,
        "runs": runs,
        "unknown": [name for name in found.rules if name not in tested],
        "rules": [_tested_view(rules.rules[name], one) for name, one in tested.items()],
    }


@router.get("/alerts/{number}", openapi_extra=needs("viewer"))
def get_alert(number: Number, leader: Leading, caller: Caller) -> AlertDetail:
    """One alert with its runbook, the values filled in. `number` is that of the event that fired it."""
    found = leader.store.events(EventFilter(kind="alert.fired", after=number - 1, limit=1))
    state = leader.store.state()
    visible = caller.projects(state)
    fired = cast("AlertFired", found[0].data) if found and found[0].seq == number else None
    if fired is None or not _sees(visible, found[0].project, fired.subject["kind"]):
        raise NotFound(f"There is no alert {number} that you can see.", "See `muster alerts`.")
    event = found[0]
    return leader.look(lambda state: _detail(leader, state, event, fired))


@router.post("/alerts/{number}/acknowledge", openapi_extra=needs("member"))
def acknowledge(number: Number, body: AckBody, leader: Leading, caller: Caller) -> AlertView:
    """Says that you look after an alert that fires: nobody is reminded of it any more, and its end is still told.

    An alert that belongs to no project needs an administrator.
    """

    def propose(state: State) -> Entry:
        alert = _alert(number, state, caller)
        _may_silence(alert.project, state, caller)
        if alert.resolved_at is not None:
            raise Conflict(f"Alert {number} does not fire any more.", "See `muster alerts`.")
        event = AlertAcknowledged(alert.key, number, body.note.strip())
        return Entry([Event(event, leader.clock.now(), caller.user, alert.project)])

    leader.propose(propose)

    def look(state: State) -> AlertView:
        rules, alerts, now = leader.alerts.rules(state), ALERTS.all(state), leader.clock.now()
        alert = _alert(number, state, caller)
        return _view(alert, muted(rules, alerts, SILENCES.all(state).values(), now).get(alert.key, ""))

    return leader.look(look)


@router.post("/silences", status_code=201, openapi_extra=needs("member"))
def silence(body: SilenceBody, leader: Leading, caller: Caller) -> SilenceView:
    """Silences alerts for a time. Without a project or a run it needs an administrator."""
    now = leader.clock.now()
    ident = secrets.token_hex(4)

    def propose(state: State) -> Entry:
        project = _project_of(body, state, caller)
        rules = leader.alerts.rules(state).rules
        if body.rule and body.rule not in rules:
            raise NotFound(f"There is no alert rule {body.rule!r}.", "See `muster alerts rules`.")
        if len(SILENCES.all(state)) >= SILENCES_MAX:
            raise Invalid(f"There are {SILENCES_MAX:,} silences.", "End some: see `muster alerts`.")
        made = SilenceSet(ident, now + body.seconds, body.why, body.rule, project, body.run, body.node)
        return Entry([Event(made, now, caller.user, project)])

    leader.propose(propose)
    return leader.look(lambda state: _silence_view(SILENCES.all(state)[ident]))


@router.delete("/silences/{ident}", openapi_extra=needs("member"))
def end_silence(
    ident: Annotated[str, Path(max_length=20, pattern=r"^[^\x00]*$")], leader: Leading, caller: Caller
) -> SilenceView:
    """Ends a silence."""
    ended: list[Silence] = []

    def propose(state: State) -> Entry:
        found = SILENCES.all(state).get(ident)
        if found is None or not _sees(caller.projects(state), found.project):
            raise NotFound(f"There is no silence {ident!r} that you can see.", "See `muster alerts`.")
        _may_silence(found.project, state, caller)
        ended[:] = [found]
        return Entry([Event(SilenceEnded(ident), leader.clock.now(), caller.user, found.project)])

    leader.propose(propose)
    return _silence_view(ended[0])


# --- views ------------------------------------------------------------------------------------------------------------
def _list(leader: Leader, state: State, caller: Identity, pending: Any, now: float) -> AlertList:
    rules, visible, alerts = leader.alerts.rules(state), caller.projects(state), ALERTS.all(state)
    quiet = muted(rules, alerts, SILENCES.all(state).values(), now)
    views = [
        _view(alert, quiet.get(alert.key, ""))
        for alert in alerts.values()
        if _sees(visible, alert.project, alert.subject["kind"])
    ]
    views += [
        _pending_view(rules.rules[one.rule], one)
        for one in pending
        if one.rule in rules.rules and _sees(visible, one.subject.project, one.subject.kind)
    ]
    silences = [_silence_view(one) for one in SILENCES.all(state).values() if _sees(visible, one.project)]
    return {"now": now, "alerts": views, "silences": silences}


def _view(alert: Alert, quiet: str) -> AlertView:
    return {
        "number": alert.number,
        "state": "firing" if alert.resolved_at is None else "resolved",
        "rule": alert.rule,
        "severity": cast("Any", alert.severity),
        "subject": cast("AlertSubject", dict(alert.subject)),
        "value": alert.value,
        "text": alert.text,
        "since": alert.since,
        "fired_at": alert.fired_at,
        "resolved_at": alert.resolved_at,
        "told_at": alert.told_at,
        "muted": quiet,
        "acked_at": alert.acked_at,
        "acked_by": alert.acked_by,
        "ack_note": alert.ack_note,
    }


def _pending_view(rule: Rule, one: Pending) -> AlertView:
    return {
        "number": 0,
        "state": "pending",
        "rule": rule.name,
        "severity": rule.severity,
        "subject": cast("AlertSubject", subject_doc(one.subject)),
        "value": one.value,
        "text": text_of(rule, Reading(one.subject, one.value)),
        "since": one.since,
        "fired_at": None,
        "resolved_at": None,
        "told_at": None,
        "muted": "",
        "acked_at": None,
        "acked_by": "",
        "ack_note": "",
    }


def _detail(leader: Leader, state: State, event: Event, fired: AlertFired) -> AlertDetail:
    alert = ALERTS.all(state).get(fired.key)
    rule = leader.alerts.rules(state).rules.get(fired.rule)
    if alert is None or alert.number != event.seq:
        parts = (fired.rule, fired.severity, fired.subject, fired.value, fired.text, fired.facts, fired.since)
        end = _end_of(leader, event, fired)
        alert = Alert(fired.key, event.seq, *parts, event.time, resolved_at=end)
    quiet = muted(leader.alerts.rules(state), ALERTS.all(state), SILENCES.all(state).values(), leader.clock.now())
    runbook = rule.runbook if rule is not None else fired.rule
    acted = leader.store.events(EventFilter(kind="alert.acted", after=event.seq, limit=100))
    mine = [one.data for one in acted if isinstance(one.data, AlertActed) and one.data.key == fired.key]
    return {
        "alert": _view(alert, quiet.get(alert.key, "")),
        "owner": rule.owner if rule is not None else "",
        "runbook": runbook,
        "runbook_text": fill(runbooks().get(runbook, ""), fired.facts),
        "facts": dict(fired.facts),
        "actions": [f"{one.action}: {one.text}" for one in mine if one.number in (0, event.seq)],
    }


def _end_of(leader: Leader, event: Event, fired: AlertFired) -> float | None:
    """When an alert ended that has left the state. The log between is read a page at a time."""
    after = event.seq
    while page := leader.store.events(EventFilter(kind="alert.resolved", after=after, limit=1000)):
        for one in page:
            if isinstance(one.data, AlertResolved) and one.data.number == event.seq:
                return one.time
        after = page[-1].seq
    return None


def _rules_view(rules: RuleSet, text: str, receivers: Receivers) -> AlertRulesView:
    return {"text": text, "rules": [_rule_view(rule) for rule in rules.rules.values()], "receivers": receivers.names}


def _rule_view(rule: Rule) -> AlertRuleView:
    lasts = f" for {format_duration(rule.hold)}" if rule.hold else ""
    action = rule.action
    return {
        "name": rule.name,
        "signal": rule.signal,
        "condition": f"{threshold_of(rule)}{lasts}",
        "about": SIGNALS[rule.signal].about,
        "severity": rule.severity,
        "owner": rule.owner,
        "runbook": rule.runbook,
        "notify": list(rule.notify),
        "action": f"{action.do}{' (dry run)' if action.dry_run else ''}" if action is not None else "",
        "default": rule.name in default_rules().rules,
    }


def _tested_view(rule: Rule, found: Tested) -> TestedRule:
    return {
        "rule": rule.name,
        "severity": rule.severity,
        "fired": found.fired,
        "subjects": len(found.subjects),
        "projects": dict(found.projects),
        "seconds": found.seconds,
        "accelerator_hours": found.accelerator_seconds / 3600,
        "first": found.first,
    }


def _silence_view(one: Silence) -> SilenceView:
    return {
        "id": one.id,
        "rule": one.rule,
        "project": one.project,
        "run": one.run,
        "node": one.node,
        "until": one.until,
        "by": one.by,
        "why": one.why,
    }


def _alert(number: int, state: State, caller: Identity) -> Alert:
    """One that fires, or whose end is not told yet."""
    alert = next((one for one in ALERTS.all(state).values() if one.number == number), None)
    if alert is None or not _sees(caller.projects(state), alert.project, alert.subject["kind"]):
        raise NotFound(f"No alert {number} that you can see fires.", "See `muster alerts`.")
    return alert


# --- rights -----------------------------------------------------------------------------------------------------------
def _sees(visible: list[str] | None, project: str, kind: str = "") -> bool:
    """Alerts of nodes and of the server have no project, and everybody sees them; but not budgets over projects."""
    return visible is None or project in visible or (not project and kind != "budget")


def _project_of(body: SilenceBody, state: State, caller: Identity) -> str:
    """The project whose alerts would be silent; "" for all. Raises if the caller may not."""
    job = state.jobs.get(body.run) if body.run else None
    if body.run and job is None:
        raise NotFound(f"There is no job {body.run!r} that runs or waits.", "See `muster ls`.")
    project = job.project if job is not None else body.project
    if body.project and body.project != project:
        raise NotFound(f"There is no job {body.run!r} in project {body.project!r}.", "See `muster ls`.")
    _may_silence(project, state, caller)
    return project


def _may_silence(project: str, state: State, caller: Identity) -> None:
    if project:
        caller.need(state, project, "member")
    else:
        caller.need_superuser()


def _text(state: State) -> str:
    return ALERT_RULES.all(state).get("rules", AlertRules()).text
