"""What becomes of the findings of a submission: refused or told, as the guards for its project say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from muster.core.reasons import Reason, reason
from muster.core.rules import Check, GuardRule, Rules
from muster.core.units import format_size
from muster.scan.findings import Finding, Sort

CODES: Final[Mapping[Check, str]] = {
    "secrets": "secret_found", "notebooks": "notebook_outputs", "large_files": "file_too_large",
}  # fmt: skip
_SORTS: Final[Mapping[Sort, Check]] = {
    "secret": "secrets", "not_scanned": "secrets", "notebook": "notebooks", "large_file": "large_files",
}  # fmt: skip
_SHOWN: Final = 10  # findings that a message names


def against(
    findings: Sequence[Finding], rules: Rules, project: str, environment: str, checks: Sequence[Check] = tuple(CODES)
) -> list[Reason]:
    """A reason for each check that refuses. What could not be searched is told, and is no reason."""
    reasons = []
    for check in checks:
        rule = rules.guard(check, project, environment)
        found = [one for one in _counted(findings, rule) if one.sort != "not_scanned"]
        if rule.action == "refuse" and found:
            places = [one.place for one in found]
            reasons.append(reason(CODES[check], _listed(found), _hint(found[0], project), places=places))
    return reasons


def told(findings: Sequence[Finding], rules: Rules, project: str, environment: str) -> list[str]:
    """A sentence for each check that warns, or that could not look at everything."""
    lines = []
    for check in CODES:
        rule = rules.guard(check, project, environment)
        found = [one for one in _counted(findings, rule) if rule.action == "warn" or one.sort == "not_scanned"]
        if found:
            lines.append(f"{_listed(found)}. {_hint(found[0], project)}")
    return lines


def _counted(findings: Sequence[Finding], rule: GuardRule) -> list[Finding]:
    """The findings of the rule's check; without large files below its limit."""
    if rule.action == "off":
        return []
    limit = rule.limit or 0
    return [one for one in findings if _SORTS.get(one.sort) == rule.check and (one.size or limit + 1) > limit]


def _listed(found: Sequence[Finding]) -> str:
    more = f"; and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return "; ".join(f"{one}{f' ({format_size(one.size)})' if one.size else ''}" for one in found[:_SHOWN]) + more


def _hint(found: Finding, project: str) -> str:
    return found.hint.replace("{project}", project)
