"""Alerts, silences, alert rules, and what rules would have raised."""

from typing import Literal

from muster.api.typed import Doc, TypedDict


class AlertSubject(TypedDict):
    kind: Literal["run", "node", "project", "budget", "server"]
    name: str
    title: str
    project: str
    queue: str
    pool: str
    nodes: list[str]


class AlertView(TypedDict):
    """`number` is 0 while it is pending. `muted`: why nobody is told of it; "" if they are."""

    number: int
    state: Literal["pending", "firing", "resolved"]
    rule: str
    severity: Literal["info", "warning", "critical"]
    subject: AlertSubject
    value: float
    text: str
    since: float
    fired_at: float | None
    resolved_at: float | None
    told_at: float | None
    muted: str
    acked_at: float | None  # when somebody said that they look after it
    acked_by: str
    ack_note: str


class SilenceView(TypedDict):
    id: str
    rule: str
    project: str
    run: str
    node: str
    until: float
    by: str
    why: str


class AlertList(TypedDict):
    now: float
    alerts: list[AlertView]
    silences: list[SilenceView]


class AlertDetail(TypedDict):
    """One alert, with its runbook filled in. `actions`: what its rule did, or would have done."""

    alert: AlertView
    owner: str
    runbook: str
    runbook_text: str
    facts: Doc
    actions: list[str]


class AlertRuleView(TypedDict):
    name: str
    signal: str
    condition: str
    about: str
    severity: Literal["info", "warning", "critical"]
    owner: str
    runbook: str
    notify: list[str]
    action: str
    default: bool  # one of the rules that are in force without a file


class AlertRulesView(TypedDict):
    text: str  # the file that was applied; "" for none
    rules: list[AlertRuleView]
    receivers: list[str]


class AlertRulesSet(AlertRulesView):
    applied: bool
    added: list[str]
    removed: list[str]
    changed: list[str]


class TestedRule(TypedDict):
    """What one rule would have raised. `first`: some examples, as sentences."""

    rule: str
    severity: Literal["info", "warning", "critical"]
    fired: int
    subjects: int
    projects: dict[str, int]
    seconds: float  # together, for which alerts would have fired
    accelerator_hours: float  # held by the jobs of these alerts meanwhile
    first: list[str]


class AlertTest(TypedDict):
    since: float
    until: float  # the end of what was replayed
    whole: bool  # all of the time was replayed
    events: int
    runs: int  # whose metrics were replayed
    unknown: list[str]  # rules whose signals can't be replayed
    rules: list[TestedRule]
