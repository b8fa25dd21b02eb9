"""The pools that a job may go to: a pool that it names must exist, and the rules must allow at least one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from muster.control.admission.base import Context, Growth
from muster.core.reasons import Reason, reason
from muster.core.spec import JobSpec
from muster.core.state import State

_HERE: Final = ("local", "sim")  # engines that start workers on this machine, or simulate it


def check(spec: JobSpec, context: Context) -> Reason | None:
    state, rules = context.state, context.state.rules.queue(spec.queue)
    if spec.pool is not None and spec.pool not in state.pools and spec.pool not in context.growth:
        known = ", ".join(sorted({*state.pools, *context.growth})) or "none"
        return reason("unknown_pool", f"pool {spec.pool!r} does not exist; there are: {known}", pool=spec.pool)
    if not (state.kinds or context.growth) or open_pools(context, spec):
        return None
    named = f" named {spec.pool!r}" if spec.pool is not None else ""
    message = f"{spec.kind} jobs of queue {spec.queue!r} may use no pool{named}"
    changes: list[dict[str, Any]] = [{"use_spot": True}, {"pool": None}, {"pool": None, "use_spot": True}]
    nearest = next((one for one in changes if open_pools(context, spec.model_copy(update=one))), {})
    hints = {"use_spot": "set `use_spot: true`", "pool": "leave `pool` out"}
    hint = " and ".join(hints[name] for name in nearest) or "use another queue; see `muster queue rules`"
    data = {"pool": spec.pool, "queue_pools": list(rules.pools), "kind": spec.kind, "nearest": nearest}
    return reason("pool_not_allowed", message, f"{hint[0].upper()}{hint[1:]}.", **data)


def open_pools(context: Context, spec: JobSpec) -> set[str]:
    """Pools that have or may get nodes, and that the job and the rules allow."""
    return set(_open(context.state, spec, context.growth))


def here(spec: JobSpec, context: Context) -> bool:
    """Whether the job can only run on this machine."""
    pools = context.state.pools
    return context.local and all(
        name not in context.growth and (name not in pools or pools[name].engine in _HERE)
        for name in open_pools(context, spec)
    )


def _open(state: State, spec: JobSpec, growth: Growth) -> Iterator[str]:
    rules = state.rules.queue(spec.queue)
    for pool in dict.fromkeys([*(pool for pool, _ in state.kinds), *growth]):
        rule, known = state.rules.pool(pool), state.pools.get(pool)
        if spec.pool not in (None, pool) or (rules.pools and pool not in rules.pools):
            continue
        if rule.kinds and spec.kind not in rule.kinds:
            continue
        taken_away = (known is not None and known.spot) if rule.spot is None else rule.spot
        if spec.use_spot or not taken_away:
            yield pool
