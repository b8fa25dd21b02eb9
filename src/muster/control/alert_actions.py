"""What a rule does when it fires: save now, stop, restart, lower a priority, stop a study, take a node out. As events
of one commit.

A rule acts on the subject of its alert alone, as often as its limit allows. The breaker of node checks holds here too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from muster.control.node_health import may_take_out
from muster.core.entities.alert import ACTION_LOGS, ActionLog, Alert, AlertActed
from muster.core.entities.node import CHECKS, NodeHealth
from muster.core.entities.study import StudyStopped, trial_of_job
from muster.core.event import SYSTEM, Event
from muster.core.job import Job
from muster.core.job_events import JobPriority, JobStopping
from muster.core.reasons import reason
from muster.core.spec import ranks_per_node
from muster.core.state import State
from muster.core.units import PRIORITIES
from muster.monitor.alerts.rule import Action, Rule

LOW: Final = PRIORITIES["low"]
PAST_LIMIT: Final = "not done: the rule has acted {limit} times in {per:g} s"


@dataclass(frozen=True, slots=True)
class Acted:
    """Events of an action, and the attempt that is to save, if that is the action."""

    events: list[Event]
    save: tuple[str, int] | None = None


def act(rule: Rule, alert: Alert, state: State, now: float, before: int) -> Acted:
    """Acts on an alert that fires now. `before`: how often the rule has acted in this commit."""
    action = rule.action
    assert action is not None
    made = _plan(action, rule, alert, state, now)
    text, done = made if isinstance(made, str) else made.text, not isinstance(made, str)
    if done and action.dry_run:
        text, done = f"dry run: it would {text}", False
    elif done and _spent(state, rule.name, action, now) + before >= action.limit:
        text, done = f"{PAST_LIMIT.format(limit=action.limit, per=action.per)}; it would {text}", False
    told = AlertActed(alert.key, alert.number, rule.name, action.do, done, text)
    job = alert.subject["name"] if alert.subject["kind"] == "run" else ""
    acted = Event(told, now, SYSTEM, alert.project, job)
    if not done or isinstance(made, str):
        return Acted([acted])
    return Acted([acted, *made.events], made.save)


@dataclass(frozen=True, slots=True)
class _Plan:
    text: str
    events: list[Event]
    save: tuple[str, int] | None = None


def _plan(action: Action, rule: Rule, alert: Alert, state: State, now: float) -> _Plan | str:
    """What the action is on this subject; a text says why it can't be done."""
    if action.do == "quarantine":
        return _take_out(_node_of(alert, state), f"alert {rule.name}: {alert.text}", state, now)
    job = state.jobs.get(alert.subject["name"])
    if action.do == "lower_priority":
        return _lower(job, f"the alert {rule.name}: {alert.text}", now)
    if action.do == "pause_study":
        return _pause(alert.subject["name"], f"the alert {rule.name}: {alert.text}", state, now)
    if job is None or not job.active or job.attempt is None or job.stop is not None:
        return "not done: the job does not run"
    about = (now, SYSTEM, job.project, job.id, job.attempt.number)
    if action.do == "save":
        return _Plan(f"ask {job.id} to save", [], (job.id, job.attempt.number))
    grace, said = float(state.rules.preemption.grace), f"the alert {rule.name}: {alert.text}"
    if action.do == "stop":
        stopping = JobStopping(reason("alert_stopped", said), "stopped", grace)
        return _Plan(f"stop {job.id}, which saves first", [Event(stopping, *about)])
    stopping = JobStopping(reason("alert_restarted", said), "queued", grace)
    taken = _take_out(_rank_node(alert, job), f"alert {rule.name}: {alert.text}", state, now)
    where = f" and {taken.text}" if isinstance(taken, _Plan) else ""
    events = taken.events if isinstance(taken, _Plan) else []
    return _Plan(f"restart {job.id} from its checkpoint{where}", [*events, Event(stopping, *about)])


def _lower(job: Job | None, why: str, now: float) -> _Plan | str:
    if job is None:
        return "not done: the job is over"
    if job.priority <= LOW:
        return f"not done: the priority of {job.id} is {job.priority} already"
    lower = Event(JobPriority(LOW, why[:500]), now, SYSTEM, job.project, job.id)
    return _Plan(f"lower the priority of {job.id} from {job.priority} to {LOW}", [lower])


def _pause(run: str, why: str, state: State, now: float) -> _Plan | str:
    """The study of a trial, or the study itself, asks for no more trials until somebody resumes it."""
    trial = trial_of_job(state, run)
    study = state.studies.get(trial.study if trial is not None else run)
    if study is None:
        return "not done: the run belongs to no study"
    if study.stopped is not None or study.ended_at is not None:
        return f"not done: study {study.id} is stopped already"
    stopped = StudyStopped(reason("alert_stopped", why[:500], f"Continue it with `muster tune resume {study.id}`."))
    event = Event(stopped, now, SYSTEM, study.project, study.id)
    return _Plan(f"stop study {study.id}, whose trials save first", [event])


def _take_out(name: str, why: str, state: State, now: float) -> _Plan | str:
    node = state.find_node(name)
    if node is None:
        return "not done: the alert names no node"
    if node.health != "healthy":
        return f"not done: {name} is {node.health} already"
    if not may_take_out(state, node, ()):
        return f"not done: too much of pool {node.pool} is out already"
    return _Plan(f"take {name} out", [Event(NodeHealth(name, "quarantined", why[:500], CHECKS), now, SYSTEM)])


def _node_of(alert: Alert, state: State) -> str:
    if alert.subject["kind"] == "node":
        return str(alert.subject["name"])
    job = state.jobs.get(alert.subject["name"])
    return _rank_node(alert, job) if job is not None else ""


def _rank_node(alert: Alert, job: Job) -> str:
    """The node of the rank that the alert names; the only node, if there is one."""
    attempt, rank = job.attempt, alert.facts.get("rank", alert.facts.get("lowest_rank"))
    if attempt is None:
        return ""
    if isinstance(rank, int) and 0 <= (place := rank // max(1, ranks_per_node(job.spec))) < len(attempt.workers):
        return attempt.workers[place].node
    return attempt.workers[0].node if len(attempt.workers) == 1 else ""


def _spent(state: State, rule: str, action: Action, now: float) -> int:
    return sum(time > now - action.per for time in ACTION_LOGS.all(state).get(rule, ActionLog()).times)
