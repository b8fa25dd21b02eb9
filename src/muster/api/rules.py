"""The rules in force."""

from typing import Literal

from muster.api.typed import Doc, TypedDict


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
