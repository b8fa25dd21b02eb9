"""Why a queued job waits: the dominant reason first, and what would change it."""

from __future__ import annotations

from itertools import islice

from muster.core.job import Job
from muster.core.reasons import Reason, reason
from muster.core.state import State
from muster.sched.place import Free
from muster.sched.placements import PLACEMENTS

_NAMED = 5  # how many jobs or nodes a reason names


def explain(state: State, job: Job, now: float, brief: bool = False) -> list[Reason]:
    """Every cause that holds the job back now, the dominant one first; only that one when it is to be brief."""
    if job.not_before > now:
        wait = job.not_before - now
        because = f" after: {job.reason.message}" if job.reason else ""
        return [reason("backing_off", f"the next attempt starts in {wait:.0f} s{because}", until=job.not_before)]
    ahead = state.lines[job.queue].ahead_of(job)
    reasons = []
    if (not brief or not ahead) and PLACEMENTS.get(job.spec.placement).place(job, Free(state)) is None:
        reasons.append(_capacity(state, job))
    if ahead:
        first = [state.jobs[name].id for name in islice(state.lines[job.queue], _NAMED)]
        first = [name for name in first if name != job.id]
        behind = reason(
            "behind_in_queue",
            f"{ahead} {'job goes' if ahead == 1 else 'jobs go'} first in {job.queue!r}, beginning with {first[0]}",
            ahead=ahead,
            first=first,
        )
        reasons.insert(0, behind)
    return reasons or [reason("about_to_start")]


def _capacity(state: State, job: Job) -> Reason:
    fitting = [n for n in state.nodes.values() if (job.spec.pool in (None, n.pool)) and n.total.holds(job.ask)]
    healthy = [n for n in fitting if n.health == "healthy"]
    wanted = job.spec.num_nodes
    if len(healthy) < wanted:
        words = ", ".join(f"{n.name} ({n.health})" for n in fitting if n.health != "healthy")
        return reason(
            "nodes_unhealthy",
            f"{wanted} nodes with {job.ask} are needed and {len(healthy)} are healthy"
            + (f"; not: {words}" if words else ""),
            wanted=wanted,
            healthy=len(healthy),
        )
    free = sum(1 for n in healthy if n.free.holds(job.ask))
    holders = sorted({name for n in healthy if not n.free.holds(job.ask) for name in n.jobs})
    held = f"; held by {', '.join(holders[:_NAMED])}" if holders else ""
    return reason(
        "no_capacity",
        f"needs {wanted} {'node' if wanted == 1 else 'nodes'} with {job.ask}; "
        f"{free} of {len(healthy)} nodes have it free{held}",
        wanted=wanted,
        free=free,
        holders=holders[:_NAMED],
    )
