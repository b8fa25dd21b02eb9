"""Refuses a job on this machine that can't be isolated from the server, unless an administrator submits it."""

from __future__ import annotations

from muster.control.admission.base import Context
from muster.control.admission.pools import here
from muster.core.reasons import Reason, reason
from muster.core.spec import JobSpec


def check(spec: JobSpec, context: Context) -> Reason | None:
    if context.trusted or not context.isolation_error or not here(spec, context):
        return None
    return reason("isolation_missing", context.isolation_error)
