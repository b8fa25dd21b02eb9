"""Refuses a job whose options for an engine are not allowed by the engine's settings, before anything is launched."""

from __future__ import annotations

from dataclasses import asdict

from muster.control.admission.base import Context
from muster.control.admission.pools import open_pools
from muster.core.reasons import Reason, reason
from muster.core.spec import JobSpec


def check(spec: JobSpec, context: Context) -> Reason | None:
    """Checks every pool that the job may go to: a job that would fail in one of them has to name another."""
    found = {pool: context.objections(spec, pool) for pool in sorted(open_pools(context, spec))}
    pools = [pool for pool, problems in found.items() if problems]
    if not pools:
        return None
    problems = list(dict.fromkeys(problem for pool in pools for problem in found[pool]))
    listed = "; ".join(f"{problem.where}: got {problem.given}, expected {problem.expected}" for problem in problems)
    hints = list(dict.fromkeys(problem.hint for problem in problems))
    if len(pools) < len(found):
        hints.append(f"Or name a pool of another engine: {', '.join(found.keys() - set(pools))}.")
    message = f"the settings of the engine of {', '.join(pools)} don't allow it: {listed}"
    data = {"pools": pools, "problems": [asdict(problem) for problem in problems]}
    return reason("engine_forbids", message, " ".join(hints), **data)
