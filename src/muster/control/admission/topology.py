"""Refuses a gang whose nodes must share a label if no group of nodes with one label value is large enough."""

from __future__ import annotations

from collections import Counter

from muster.control.admission.base import Context
from muster.control.admission.capacity import fitting
from muster.control.admission.pools import open_pools
from muster.core.reasons import Reason, reason
from muster.core.spec import JobSpec, ask, fewest_nodes


def check(spec: JobSpec, context: Context) -> Reason | None:
    label, wanted, fewest = spec.topology.require, ask(spec), fewest_nodes(spec)
    if label is None:
        return None
    state = context.state
    pools = open_pools(context, spec)
    if max(fitting(context, pools, wanted).values(), default=0) < fewest:
        return None  # there are too few nodes in any case: the capacity check refuses it
    if any(pool in context.growth for pool in pools):
        return None  # the labels of nodes that don't exist yet are unknown
    sizes: Counter[tuple[str, str]] = Counter()
    for node in state.nodes.values():
        value = node.name if label == "node" else node.labels.get(label)
        if value and node.pool in pools and node.total.holds(wanted):
            sizes[node.pool, value] += 1
            if sizes[node.pool, value] >= fewest:
                return None
    if not sizes:
        message = f"no node that could hold a worker has the label {label!r}"
        hint = "Leave `topology.require` out, or name a label that nodes have; see `muster nodes`."
        return reason("never_near", message, hint, label=label, wanted=fewest, nearest={"topology": {"require": None}})
    (_, value), most = sizes.most_common(1)[0]
    message = (
        f"{fewest} nodes with one {label!r} are asked for, and the most that share one are the {most} of {value!r}"
    )
    hint = f"Ask for `num_nodes: {most}`, for a wider label, or for `topology: {{prefer: {label}}}`."
    return reason("never_near", message, hint, label=label, wanted=fewest, fitting=most, nearest={"num_nodes": most})
