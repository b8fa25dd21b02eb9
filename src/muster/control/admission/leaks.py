"""What the scan of a submission's code and job file found, held against the guards of its project."""

from __future__ import annotations

from collections.abc import Sequence

from muster.control.admission.base import Context
from muster.core.entities.price_book import book_of
from muster.core.prices import environment_of
from muster.core.reasons import Reason
from muster.core.rules import Check as Guard
from muster.core.spec import JobSpec
from muster.core.state import State
from muster.scan.findings import Finding
from muster.scan.judge import against, told


def secrets(spec: JobSpec, context: Context) -> Reason | None:
    return _check("secrets", spec, context)


def large_files(spec: JobSpec, context: Context) -> Reason | None:
    return _check("large_files", spec, context)


def notebooks(spec: JobSpec, context: Context) -> Reason | None:
    return _check("notebooks", spec, context)


def leak_warnings(state: State, spec: JobSpec, user: str, findings: Sequence[Finding]) -> list[str]:
    """What the submission is told of."""
    if not findings:
        return []
    return told(findings, state.rules, spec.project, environment_of(book_of(state), spec, user))


def _check(guard: Guard, spec: JobSpec, context: Context) -> Reason | None:
    if not context.findings:
        return None
    state = context.state
    environment = environment_of(book_of(state), spec, context.user)
    return next(iter(against(context.findings, state.rules, spec.project, environment, (guard,))), None)
