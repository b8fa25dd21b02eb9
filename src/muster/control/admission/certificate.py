"""Refuses jobs that lack a certificate of preflight which a rule asks for, and rungs that are larger than a rung."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from muster.api.words import Rung
from muster.control.admission.base import Context
from muster.control.admission.budget import reserve_of
from muster.control.admission.pools import open_pools
from muster.control.admission.start import find_start
from muster.core.array import parse_array
from muster.core.entities.certificate import Certificate, certificates_of
from muster.core.entities.price_book import book_of
from muster.core.money import parse_amount
from muster.core.preflight import PROVES, SECONDS_MAX, changed, parts_of, rung_of
from muster.core.prices import environment_of
from muster.core.reasons import Reason, reason
from muster.core.rules import PreflightRule
from muster.core.spec import JobSpec
from muster.core.start import StartPoint
from muster.core.state import State

_NAMED: Final = 3  # people that a message names


def check(spec: JobSpec, context: Context) -> Reason | None:
    if rung_of(spec) is not None:
        return _too_large(spec, context)
    lacking = missing(spec, context, "refuse")
    if not lacking:
        return None
    words = "; ".join(f"{rung} ({_because(rule)}{_changed(rung, spec, context)})" for rung, rule in lacking.items())
    rungs = list(lacking)
    message = f"the rules ask for certificates of preflight that it has not: {words}"
    levels = " ".join(f"--level {rung}" for rung in rungs)
    hint = (
        f"`muster preflight JOB_FILE {levels}` runs them. {granters(context.state, spec.project)} can let it run "
        f"without: `muster preflight waive JOB_FILE {levels} --why ...`."
    )
    if not context.code:
        hint = f"Submit it from its `workdir`, with the snapshot of its code, which certificates name. {hint}"
    return reason("not_certified", message, hint, rungs=rungs)


def warnings(spec: JobSpec, context: Context) -> list[str]:
    """What the user should know of rules that only warn."""
    if rung_of(spec) is not None:
        return []
    return [
        f"It has no certificate of {rung} ({_because(rule)}): {PROVES[rung]} `muster preflight JOB_FILE --level {rung}`"
        for rung, rule in missing(spec, context, "warn").items()
    ]


def missing(spec: JobSpec, context: Context, action: str, *, held: bool = True) -> dict[Rung, PreflightRule]:
    """The rungs that a rule with this action asks for, and the job has no certificate of, unless `held` is False."""
    found: dict[Rung, PreflightRule] = {}
    for rule in context.state.rules.preflight:
        if rule.action == action and applies(rule, spec, context):
            for rung in rule.require:
                if rung not in found and not (held and _held(rung, rule.valid, spec, context)):
                    found[rung] = rule
    return found


def applies(rule: PreflightRule, spec: JobSpec, context: Context) -> bool:
    if rule.projects and spec.project not in rule.projects:
        return False
    if rule.environments and _environment(spec, context) not in rule.environments:
        return False
    if rule.devices is not None and devices_of(spec) < rule.devices:
        return False
    if rule.pools and not set(rule.pools) & ({spec.pool} if spec.pool else set(open_pools(context, spec))):
        return False
    if rule.cost is None:
        return True
    tasks = 1 if spec.array is None else len(parse_array(spec.array).indexes)
    return reserve_of(spec, context) * tasks >= parse_amount(rule.cost).micros


def certificate_for(rung: Rung, spec: JobSpec, code: str, state: State, since: float = 0.0) -> Certificate | None:
    """The newest certificate that covers the job."""
    parts = parts_of(spec, code)
    for one in certificates_of(state, spec.project, rung):
        if one.at >= since and not changed(rung, one.parts, parts):
            return one
    return None


def devices_of(spec: JobSpec) -> int:
    """Accelerators in all, at its largest; of a job without any, none."""
    return spec.num_nodes * spec.resources.accelerators


def granters(state: State, project: str) -> str:
    """Who may waive a rung, as the subject of a sentence."""
    known = state.projects.get(project)
    admins = [user for user, role in known.members.items() if role == "admin"] if known is not None else []
    if not admins:
        return "An administrator of the server"
    return f"{' or '.join(admins[:_NAMED])} ({'an admin' if len(admins) == 1 else 'admins'} of {project!r})"


def _held(rung: Rung, valid: float, spec: JobSpec, context: Context) -> bool:
    found = certificate_for(rung, context.template or spec, context.code, context.state, context.time - valid)
    return found is not None


def _too_large(spec: JobSpec, context: Context) -> Reason | None:
    wrong = list(_limits(spec, context))
    if not wrong:
        return None
    hint = "`muster preflight JOB_FILE` makes such jobs; a job without `preflight.rung` has no such limits."
    return reason("rung_too_large", f"a rung of preflight {' and '.join(wrong)}", hint)


def _limits(spec: JobSpec, context: Context) -> Iterator[str]:
    if spec.max_duration is None or spec.max_duration > SECONDS_MAX:
        yield f"has a `max_duration` of at most {SECONDS_MAX / 60:g} minutes"
    if spec.array is not None:
        yield "is no array"
    point = find_start(spec, context) if spec.start_from is not None else None
    source = context.job(point.run) if isinstance(point, StartPoint) else None
    if source is not None and rung_of(source.spec) is not None:  # else rungs in a row could be a whole training
        yield "does not start from the checkpoint of another rung"


def _because(rule: PreflightRule) -> str:
    """Why the rule applies."""
    said = [
        f"from {rule.cost} on" if rule.cost is not None else "",
        f"from {rule.devices} devices on" if rule.devices is not None else "",
        f"in {', '.join(rule.environments)}" if rule.environments else "",
        f"on {', '.join(rule.pools)}" if rule.pools else "",
    ]
    return ", ".join(filter(None, said)) or "every job"


def _changed(rung: Rung, spec: JobSpec, context: Context) -> str:
    """What has changed since the newest certificate of a job of this name."""
    parts = parts_of(context.template or spec, context.code)
    for one in certificates_of(context.state, spec.project, rung):
        if one.job == spec.name:
            found = changed(rung, one.parts, parts)
            return f"; since {one.id} its {' and '.join(found)} changed" if found else f"; {one.id} is too old"
    return ""


def _environment(spec: JobSpec, context: Context) -> str:
    return environment_of(book_of(context.state), spec, context.user)
