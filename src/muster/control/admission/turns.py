"""A queue that runs jobs in turns accepts only jobs of one node."""

from __future__ import annotations

from muster.control.admission.base import Context
from muster.core.reasons import Reason, reason
from muster.core.spec import JobSpec


def check(spec: JobSpec, context: Context) -> Reason | None:
    rules = context.state.rules.queue(spec.queue)
    if rules.slice is None or spec.num_nodes == 1:
        return None
    message = (
        f"queue {spec.queue!r} runs jobs in turns of {rules.slice:g} s on one node; {spec.num_nodes} are asked for"
    )
    return reason("turns_need_one_node", message, wanted=spec.num_nodes, slice=rules.slice, nearest={"num_nodes": 1})
