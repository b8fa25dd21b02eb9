"""Checks whose rule is a guard of the policy: they refuse, warn or are off by project and environment."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from muster.control.admission.base import Check, Context
from muster.core import rules
from muster.core.entities.price_book import book_of
from muster.core.prices import environment_of
from muster.core.reasons import Reason
from muster.core.rules import GuardRule
from muster.core.spec import JobSpec
from muster.core.state import State

Finder = Callable[[JobSpec, Context, GuardRule], Reason | None]


def rule_for(check: rules.Check, spec: JobSpec, user: str, state: State) -> GuardRule:
    return state.rules.guard(check, spec.project, environment_of(book_of(state), spec, user))


def refusing(check: rules.Check, find: Finder) -> Check:
    """The admission check: what `find` found, if the rule for the job says to refuse it."""

    def refuse(spec: JobSpec, context: Context) -> Reason | None:
        if not context.state.rules.guards and rules.USUAL_GUARDS[check].action != "refuse":
            return None  # most servers, and commits wait for this
        rule = rule_for(check, spec, context.user, context.state)
        return find(spec, context, rule) if rule.action == "refuse" else None

    return refuse


def warned(check: rules.Check, find: Finder, spec: JobSpec, context: Context) -> Iterator[str]:
    """What `find` found, if the rule for the job says to warn of it."""
    rule = rule_for(check, spec, context.user, context.state)
    found = find(spec, context, rule) if rule.action == "warn" else None
    if found is not None:
        yield f"{found.message[0].upper()}{found.message[1:]}. {found.hint}".rstrip()
