"""Refuses a job that asks for more output to be kept than the server's maximum."""

from __future__ import annotations

from muster.control.admission.base import Context
from muster.core.reasons import Reason, reason
from muster.core.spec import JobSpec
from muster.core.units import format_size


def check(spec: JobSpec, context: Context) -> Reason | None:
    most = context.log_limit_max
    if most is None or spec.log_limit is None or spec.log_limit <= most:
        return None
    given, allowed = format_size(spec.log_limit), format_size(most)
    message = f"`log_limit: {given}` is more output of each rank than this server keeps, {allowed} at most"
    hint = f"Ask for `log_limit: {allowed}` or less, or raise `log_limit_max` in the server's config.toml."
    return reason("log_limit_too_large", message, hint, limit=spec.log_limit, max=most)
