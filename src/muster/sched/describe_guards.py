"""The guards of a policy in plain language: what each check does about a finding, for whose jobs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from muster.core.rules import USUAL_GUARDS, Check, GuardRule, Rules
from muster.core.units import format_size


def describe_guards(rules: Rules) -> Iterator[str]:
    """One line for each rule, in their order; then one for each check that has no rule for all jobs."""
    for rule in rules.guards:
        yield _sentence(_whose(rule), rule)
    for check, usual in USUAL_GUARDS.items():
        own = [rule for rule in rules.guards if rule.check == check]
        if not any(not rule.projects and not rule.environments for rule in own):
            other = "For all other jobs: " if own else ""
            yield _sentence(other, usual)


def _sentence(whose: str, rule: GuardRule) -> str:
    words = f"{whose}{_FOUND[rule.check]} {_does(rule)}."
    return words[0].upper() + words[1:] + _details(rule)


def _whose(rule: GuardRule) -> str:
    words = [f"of project {_listed(rule.projects)}"] if rule.projects else []
    words += [f"in the environment {_listed(rule.environments)}"] if rule.environments else []
    return f"For jobs {' '.join(words)}: " if words else ""


def _does(rule: GuardRule) -> str:
    if rule.check == "artifacts" and rule.action == "refuse":
        return "are quarantined"
    return {"off": "are not looked for", "warn": "are told to who submits", "refuse": "are refused"}[rule.action]


def _details(rule: GuardRule) -> str:
    words = ""
    if rule.approved:
        words += f" Approved: {', '.join(f'`{pattern}`' for pattern in rule.approved)}."
    if rule.limit is not None:
        words += f" The limit is {format_size(rule.limit)}."
    if rule.severity is not None:
        words += f" It counts from the severity {rule.severity} on."
    return words


def _listed(names: Sequence[str]) -> str:
    *before, last = names
    return f"{', '.join(before)} or {last}" if before else last


_FOUND: Final[Mapping[Check, str]] = {
    "secrets": "secrets in code, job files and environment variables",
    "large_files": "files above the limit in a working directory",
    "notebooks": "outputs in notebooks",
    "artifacts": "artifacts that could run code when they are loaded",
    "images": "images that are not approved",
    "environments": "environments that are not approved",
    "advisories": "packages with a known vulnerability",
    "memory": "trainings that need more memory than their accelerators have",
}
