"""A job that no set of nodes could ever hold is refused at once, with the nearest shape that would fit."""

from __future__ import annotations

from muster.control.admission.base import Context
from muster.core.reasons import Reason, reason
from muster.core.spec import JobSpec, ask


def check(spec: JobSpec, context: Context) -> Reason | None:
    state, wanted = context.state, ask(spec)
    if spec.pool is not None and spec.pool not in state.pools:
        known = ", ".join(sorted(state.pools)) or "none"
        return reason("unknown_pool", f"pool {spec.pool!r} does not exist; there are: {known}", pool=spec.pool)
    kinds = {total: count for (pool, total), count in state.kinds.items() if spec.pool in (None, pool)}
    fitting = sum(count for total, count in kinds.items() if total.holds(wanted))
    if fitting >= spec.num_nodes:
        return None
    if fitting:
        message = f"{spec.num_nodes} nodes with {wanted} each are asked for, and only {fitting} such exist"
        mend = f"Ask for `num_nodes: {fitting}` or fewer, or add nodes."
    elif kinds:
        nearest = min(kinds, key=lambda total: (len(total.lacks(wanted)), -total.accelerators, -total.milli_cpus))
        message = f"no node can hold a worker with {wanted}: {'; '.join(nearest.lacks(wanted))}"
        mend = f"The nearest node has {nearest}: ask for no more than that, or add nodes."
    else:
        message, mend = "there are no nodes", "Add nodes; see `muster nodes`."
    return reason("never_fits", message, mend, wanted=spec.num_nodes, fitting=fitting)
