"""The priority must lie in the queue's range."""

from __future__ import annotations

from muster.control.admission.base import Context
from muster.core.entities.queue import Queue
from muster.core.reasons import Reason, reason
from muster.core.spec import JobSpec


def check(spec: JobSpec, context: Context) -> Reason | None:
    return outside(context.state.queues.get(spec.queue), spec.priority)


def outside(queue: Queue | None, priority: int) -> Reason | None:
    """The refusal of a priority that the queue does not admit."""
    if queue is None or queue.min_priority <= priority <= queue.max_priority:
        return None
    span = f"{queue.min_priority} to {queue.max_priority}"
    return reason(
        "priority_out_of_range",
        f"queue {queue.name!r} admits priorities {span}, the job asks for {priority}",
        priority=priority,
        min=queue.min_priority,
        max=queue.max_priority,
    )
