"""Warnings about a job that is accepted: what the policy says to warn of, and not to refuse."""

from __future__ import annotations

from typing import Final

from muster.control.admission import advisories, environments, images, memory
from muster.control.admission.base import Context
from muster.control.admission.budget import warnings
from muster.control.admission.guarded import Finder, warned
from muster.control.admission.leaks import leak_warnings
from muster.core import rules
from muster.core.spec import JobSpec

_GUARDS: Final[tuple[tuple[rules.Check, Finder], ...]] = (
    ("images", images.find),
    ("environments", environments.find),
    ("advisories", advisories.find),
    ("memory", memory.find),
)


def warnings_of(spec: JobSpec, context: Context) -> list[str]:
    """Of budgets that the job overdraws, of guards whose rule says `warn`, and of a company's own checks."""
    state, user = context.state, context.user
    leaks = leak_warnings(state, spec, user, context.findings)
    own = context.verdict.warnings
    return [*warnings(state, spec, user, context.time), *leaks, *guard_warnings(spec, context), *own]


def guard_warnings(spec: JobSpec, context: Context) -> list[str]:
    if not spec.num_nodes:
        return []
    return [told for check, find in _GUARDS for told in warned(check, find, spec, context)]
