"""Environments of Python: a lock file in the working directory that the policy approves, by name or by digest."""

from __future__ import annotations

from muster.control.admission.base import Context
from muster.control.admission.guarded import refusing
from muster.core.image_ref import matches
from muster.core.reasons import Reason, reason
from muster.core.rules import GuardRule
from muster.core.spec import JobSpec


def find(spec: JobSpec, context: Context, rule: GuardRule) -> Reason | None:
    found = context.inspected
    if not found.looked or not rule.approved:
        return None
    approved = ", ".join(f"`{one}`" for one in rule.approved[:5])
    if found.locks is None:
        message = "no snapshot of its working directory is known, so nobody can say which lock file it has"
        hint = f"Submit it from that directory with `muster submit` or `muster run`. Approved are {approved}."
        return reason("environment_not_approved", message, hint)
    good = [one for one in found.locks if not one.trouble]
    if any(matches(pattern, *lock.names) for pattern in rule.approved for lock in good):
        return None
    if not found.locks:
        message = "its working directory has no lock file"
    else:
        told = (f"{one.name} ({one.trouble or f'sha256:{one.digest[:12]}…'})" for one in found.locks)
        message = f"none of its lock files is approved for project {spec.project!r}: {', '.join(told)}"
    hint = f"Approved are {approved}: lock the environment with `uv lock`, or take the approved file."
    return reason("environment_not_approved", message, hint, locks=[one.names[-1] for one in found.locks])


check = refusing("environments", find)
