"""The priority must lie in the queue's range."""

from __future__ import annotations

from muster.control.admission.base import Context
from muster.core.reasons import Reason, reason
from muster.core.spec import JobSpec


def check(spec: JobSpec, context: Context) -> Reason | None:
    queue = context.state.queues.get(spec.queue)
    if queue is None or queue.min_priority <= spec.priority <= queue.max_priority:
        return None
    span = f"{queue.min_priority} to {queue.max_priority}"
    return reason(
        "priority_out_of_range",
        f"queue {queue.name!r} admits priorities {span}, the job asks for {spec.priority}",
        priority=spec.priority,
        min=queue.min_priority,
        max=queue.max_priority,
    )
