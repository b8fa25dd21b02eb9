"""Refuses a job when its user or its project has reached the limit of live jobs, jobs that have not ended."""

from __future__ import annotations

from muster.control.admission.base import Context
from muster.core.array import parse_array
from muster.core.reasons import Reason, reason
from muster.core.spec import JobSpec


def check(spec: JobSpec, context: Context) -> Reason | None:
    live, quota = context.state.live, context.quota
    count = 1 if spec.array is None else len(parse_array(spec.array).indexes)
    if quota.tasks_per_array is not None and count > quota.tasks_per_array:
        message = f"its array has {count:,} tasks, and may have {quota.tasks_per_array:,}"
        hint = "Make several arrays, or ask for a higher `tasks_per_array` in `[limits]` of the server's config.toml."
        return reason("over_quota", message, hint, used=count, limit=quota.tasks_per_array)
    limits = (
        ("user", context.user, quota.jobs_per_user, f"{context.user} has"),
        ("project", spec.project, quota.jobs_per_project, f"project {spec.project!r} has"),
    )
    for kind, name, most, whose in limits:
        used = live[(kind, name)] + context.pending.get((kind, name), 0) if most is not None else 0
        if most is not None and used + count > most:
            asked = f", asks for {count:,} more" if count > 1 else ""
            message = f"{whose} {used:,} jobs that are not over{asked}, and may have {most:,}"
            hint = "Wait until some are over or stop some, or ask for a higher limit of the server."
            return reason("over_quota", message, hint, used=used, limit=most, **{kind: name})
    return None
