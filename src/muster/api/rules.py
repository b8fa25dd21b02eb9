"""The rules in force."""

from typing import Literal

from muster.api.typed import Doc, TypedDict
from muster.api.words import Phase


class RuleSection(TypedDict):
    """Rules in plain language. `name` is empty for all of them, or all others."""

    about: Literal["cluster", "queue", "pool", "project"]
    name: str
    title: str
    lines: list[str]


class RulesView(TypedDict):
    rules: Doc  # see the policy file's schema
    text: str
    described: list[RuleSection]


class RuleChange(TypedDict):
    title: str
    removed: list[str]
    added: list[str]


class RulesSet(RulesView):
    applied: bool
    created: list[str]  # queues that the policy names and that were missing, if they were to be created
    changes: list[RuleChange]


class PolicyExample(TypedDict):
    """A job that the proposed rules would refuse."""

    job: str
    user: str
    project: str
    queue: str
    phase: Phase
    submitted_at: float
    message: str
    hint: str


class PolicyEffect(TypedDict):
    """Jobs that the proposed rules would refuse for one reason, and the rules in force would not."""

    code: str
    jobs: int
    live: int  # of these, jobs that wait or run now
    users: dict[str, int]
    projects: dict[str, int]
    examples: list[PolicyExample]


class PolicyCursor(TypedDict):
    before: int
    live: bool  # only jobs that are not over are left


class PolicyReplay(TypedDict):
    """What proposed rules would have said about jobs of the past; one page of it from the server."""

    since: float
    judged: int
    live: int  # of these, jobs that wait or run now
    refused: int  # by the proposed rules, and not by those in force
    refused_live: int
    freed: int  # refused by the rules in force, as they are now, and not by the proposed ones
    effects: list[PolicyEffect]
    next: PolicyCursor | None
