"""Refuses a gang that is larger than its queue, project or user may ever use: it would wait forever."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from math import floor
from typing import Any

from muster.control.admission.base import Context
from muster.control.admission.capacity import kinds
from muster.control.admission.pools import open_pools
from muster.core.reasons import Reason, reason
from muster.core.spec import JobSpec, ask, fewest_nodes
from muster.core.state import State


def check(spec: JobSpec, context: Context) -> Reason | None:
    each, fewest, state = ask(spec).weight, fewest_nodes(spec), context.state
    if not each or not (state.rules.queues or state.rules.projects or _limited(state)):
        return None
    for most, whose, what in _limits(spec, context):
        if each * fewest > most:
            message = f"it wants {each * fewest:g} accelerators, and {whose} may have {most:g} at most {what}"
            nearest = _nearest(each, most, spec)
            words = " and ".join(f"`{name}: {value}`" for name, value in _flat(nearest).items())
            hint = f"Ask for {words}, or for a higher limit; see `muster queue rules`." if words else ""
            return reason("never_allowed", message, hint, wanted=each * fewest, limit=most, nearest=nearest)
    return None


def _limited(state: State) -> bool:
    usual = state.rules.defaults
    return usual.borrow is not None or usual.max_accelerators_per_user is not None


def _limits(spec: JobSpec, context: Context) -> Iterator[tuple[float, str, str]]:
    """Each limit as: maximum number of accelerators, to whom it applies, and where."""
    rules = context.state.rules
    queue, project = rules.queue(spec.queue), rules.project(spec.project)
    if queue.max_accelerators_per_user is not None:
        yield queue.max_accelerators_per_user, f"a user of queue {spec.queue!r}", "at once"
    if project.max_accelerators is not None:
        yield project.max_accelerators, f"project {spec.project!r}", "at once"
    amounts = _by_pool(context, spec)
    if amounts:
        pool = max(amounts, key=lambda name: amounts[name])
        yield amounts[pool], f"queue {spec.queue!r}", f"in pool {pool!r}"


def _by_pool(context: Context, spec: JobSpec) -> dict[str, float]:
    """The maximum that the queue may use of each pool: with all that it may borrow, without what others never lend."""
    rules, pools, there = context.state.rules, open_pools(context, spec), Counter[str]()
    for (pool, total), count in kinds(context).items():
        there[pool] += total.accelerators * count if pool in pools and total.holds(ask(spec)) else 0
    lineage = list(rules.lineage(spec.queue))
    found: dict[str, float] = {}
    for pool in pools:
        kept = sum(r.quota.get(pool, 0) for name, r in rules.queues.items() if not r.lend and name not in lineage)
        own = max(rules.queue(name).quota.get(pool, 0) for name in lineage)
        found[pool] = float(max(there[pool] - kept, min(own, there[pool])))
        for name in lineage:
            borrow = rules.queue(name).borrow
            if borrow is not None:
                found[pool] = min(found[pool], rules.queue(name).quota.get(pool, 0) + borrow.get(pool, 0))
    return found


def _nearest(each: float, most: float, spec: JobSpec) -> dict[str, Any]:
    if each <= most:
        return {"num_nodes": int(most / each)}
    if floor(most) < 1:
        return {}
    wants = spec.resources
    shape: dict[str, Any] = {"resources": {"accelerators": f"{wants.accelerator or 'GPU'}:{floor(most)}"}}
    return shape if spec.num_nodes == 1 else {"num_nodes": 1, **shape}


def _flat(nearest: dict[str, Any]) -> dict[str, Any]:
    return {**{k: v for k, v in nearest.items() if k != "resources"}, **nearest.get("resources", {})}
