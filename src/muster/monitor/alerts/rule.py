"""An alert rule: the signal that it reads, its threshold, how long it must hold, for whom, and what follows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, get_args

Severity = Literal["info", "warning", "critical"]
ActionKind = Literal["save", "stop", "restart", "lower_priority", "pause_study", "quarantine"]
SubjectKind = Literal["run", "node", "project", "budget", "server"]

SEVERITIES: Final[tuple[Severity, ...]] = get_args(Severity)
ACTIONS: Final[tuple[ActionKind, ...]] = get_args(ActionKind)
KEEP: Final = 300.0  # seconds for which an alert stays after its cause is gone, unless the rule says otherwise


@dataclass(frozen=True, slots=True)
class Subject:
    """What an alert is about. Fields that do not apply are empty."""

    kind: SubjectKind
    name: str  # the id of a job, the name of a node, a project or a budget
    title: str = ""  # for people; the name if it is empty
    project: str = ""
    queue: str = ""
    pool: str = ""
    nodes: tuple[str, ...] = ()
    tags: Mapping[str, str] = field(default_factory=dict)

    @property
    def key(self) -> str:
        return f"{self.kind}/{self.name}"


@dataclass(frozen=True, slots=True)
class Reading:
    """The value of a signal for one subject. `facts` fill the blanks of the runbook."""

    subject: Subject
    value: float
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Scope:
    """Which subjects a rule is for. An empty part covers all of them."""

    projects: tuple[str, ...] = ()
    queues: tuple[str, ...] = ()
    pools: tuple[str, ...] = ()
    tags: Mapping[str, str] = field(default_factory=dict)

    def covers(self, subject: Subject) -> bool:
        return (
            (not self.projects or subject.project in self.projects)
            and (not self.queues or subject.queue in self.queues)
            and (not self.pools or subject.pool in self.pools)
            and all(subject.tags.get(key) == value for key, value in self.tags.items())
        )


@dataclass(frozen=True, slots=True)
class Action:
    """What is done when an alert fires. `limit` times in `per` seconds for the whole rule; a dry run only says it."""

    do: ActionKind
    dry_run: bool = True
    limit: int = 3
    per: float = 3600.0


@dataclass(frozen=True, slots=True)
class Example:
    """Values of the signal, one every `every` seconds; None: the signal is absent."""

    values: tuple[float | None, ...]
    every: float = 60.0


@dataclass(frozen=True, slots=True)
class Rule:
    """Fires when the signal is above or below a value for `hold` seconds, and ends `keep` seconds after that ended."""

    name: str
    signal: str
    owner: str
    runbook: str  # a name in docs/runbooks, or an address
    fires: Example
    quiet: Example
    above: float | None = None
    below: float | None = None
    hold: float = 0.0
    keep: float = KEEP
    severity: Severity = "warning"
    scope: Scope = field(default_factory=Scope)
    notify: tuple[str, ...] = ()  # receivers; none: those of the settings that take every alert
    action: Action | None = None
    inhibits: tuple[str, ...] = ()  # rules whose alerts on the same subject, or on its nodes, are not told

    def is_met(self, value: float) -> bool:
        return (self.above is not None and value > self.above) or (self.below is not None and value < self.below)


@dataclass(frozen=True, slots=True)
class Groups:
    """When alerts of a rule and a project are told together, in seconds: as Alertmanager's options of these names."""

    wait: float = 30.0
    interval: float = 300.0
    repeat: float = 14_400.0


@dataclass(frozen=True, slots=True)
class RuleSet:
    rules: Mapping[str, Rule] = field(default_factory=dict)
    groups: Groups = field(default_factory=Groups)
