"""The queue must exist and belong to the job's project; the default queue is open to every project."""

from __future__ import annotations

from muster.control.admission.base import Context
from muster.core.reasons import Reason, reason
from muster.core.spec import JobSpec
from muster.core.suggest import did_you_mean

SHARED = "default"


def check(spec: JobSpec, context: Context) -> Reason | None:
    queue = context.state.queues.get(spec.queue)
    if queue is None:
        create = f"Create it with `muster queue create {spec.queue}`."
        hint = did_you_mean(spec.queue, context.state.queues, create, quote="'")
        return reason("unknown_queue", f"queue {spec.queue!r} does not exist", hint, queue=spec.queue)
    if queue.project != spec.project and queue.name != SHARED:
        own = [q.name for q in context.state.queues.values() if q.project == spec.project] or [SHARED]
        message = f"queue {spec.queue!r} belongs to project {queue.project!r}, the job to {spec.project!r}"
        return reason(
            "wrong_project", message, f"Use one of: {', '.join(own)}.", queue=spec.queue, project=queue.project
        )
    return None
