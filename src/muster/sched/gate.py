"""Whether a job may start where nodes are free: limits on running jobs, quotas, and idle quota that is not lent."""

from __future__ import annotations

from math import inf

from muster.core.job import Job
from muster.core.reasons import Reason, reason
from muster.core.rules import Rules
from muster.sched.board import Board
from muster.sched.quota import EPSILON


def gate(board: Board, rules: Rules, job: Job, pool: str, weight: float) -> Reason | None:
    """Why the job may not start with `weight` accelerators of the pool; None when it may."""
    return over_limit(board, rules, job, weight) or over_quota(board, job, pool, weight)


def gates(board: Board, rules: Rules, job: Job, pool: str, weight: float) -> list[Reason]:
    """Every reason of `gate`."""
    found = over_limit(board, rules, job, weight), over_quota(board, job, pool, weight)
    return [one for one in found if one is not None]


def allowance(board: Board, rules: Rules, job: Job, pool: str) -> float:
    """How many more accelerators of the pool the job may take, beyond what it and others hold; inf without a limit."""
    found, quotas = inf, board.limits.quotas
    if board.limits.limited:
        queue, project = rules.queue(job.queue), rules.project(job.project)
        if queue.max_accelerators_per_user is not None:
            found = queue.max_accelerators_per_user - board.limits.weights["user", job.queue, job.user]
        if project.max_accelerators is not None:
            found = min(found, project.max_accelerators - board.limits.weights["project", job.project])
    if quotas.any:
        for name in quotas.lineage(job.queue):
            borrow = rules.queue(name).borrow
            if borrow is not None:
                found = min(found, quotas.own(name, pool) + borrow.get(pool, 0) - quotas.used[name, pool])
        kept = quotas.kept_back(job.queue, pool)
        if kept:
            free = free_for(board, job, pool)
            found = min(found, max(free - kept, quotas.headroom(job.queue, pool)))
    return found


def free_for(board: Board, job: Job, pool: str) -> float:
    """Free accelerators of the pool, without its spares if the job may not use them."""
    free = board.free.accelerators(pool)[0]
    spares = () if job.id in board.waiting.restarting else board.free.kept(pool)
    return free - sum(slot.devices for slot in spares)


def over_limit(board: Board, rules: Rules, job: Job, weight: float) -> Reason | None:
    if not board.limits.limited:
        return None
    queue, project, counts = rules.queue(job.queue), rules.project(job.project), board.limits.counts
    # A job with a claim already counts as running.
    own = 1 if job.id in board.claims.by_job else 0
    checks = (
        (queue.max_running, counts["queue", job.queue] - own, f"queue {job.queue!r}", "jobs"),
        (queue.max_per_user, counts["user", job.queue, job.user] - own, f"{job.user!r} in queue {job.queue!r}", "jobs"),
        (project.max_running, counts["project", job.project] - own, f"project {job.project!r}", "jobs"),
    )
    for most, now, whose, what in checks:
        if most is not None and now + 1 > most:
            return reason(
                "limit_reached", f"{whose} runs {now} of {most} {what} that may run at once", limit=most, now=now
            )
    own_weight = weight if own else 0.0
    amounts = (
        (queue.max_accelerators_per_user, ("user", job.queue, job.user), f"{job.user!r} in queue {job.queue!r}"),
        (project.max_accelerators, ("project", job.project), f"project {job.project!r}"),
    )
    for most, name, whose in amounts:
        held = board.limits.weights[name] - own_weight if most is not None else 0.0
        if most is not None and held + weight > most + EPSILON:
            message = f"{whose} holds {held:g} accelerators, this job wants {weight:g}, and {most} are allowed"
            return reason("limit_reached", message, limit=most, now=held)
    return None


def over_quota(board: Board, job: Job, pool: str, weight: float) -> Reason | None:
    quotas = board.limits.quotas
    if not weight or not quotas.any or job.id in board.claims.by_job:  # claimed seats are counted already
        return None
    return over_borrowing(board, job, pool, weight) or kept_back(board, job, pool, weight, 0.0)


def over_borrowing(board: Board, job: Job, pool: str, weight: float) -> Reason | None:
    quotas = board.limits.quotas
    name = quotas.limit(job.queue, pool, weight) if quotas.any and job.id not in board.claims.by_job else None
    if name is not None:
        used, own = quotas.used[name, pool], quotas.own(name, pool)
        borrow = quotas.rules.queue(name).borrow or {}
        message = (
            f"queue {name!r} uses {used:g} of its {own:g} accelerators in {pool!r} and may borrow "
            f"{borrow.get(pool, 0)}; this job wants {weight:g}"
        )
        return reason("quota_reached", message, queue=name, pool=pool, used=used, quota=own)
    return None


def kept_back(board: Board, job: Job, pool: str, weight: float, freed: float) -> Reason | None:
    """Why the job may not use free accelerators that their owners do not lend; None when it may.

    `freed`: accelerators that preempted gangs leave to the job.
    """
    quotas = board.limits.quotas
    kept = quotas.kept_back(job.queue, pool) if quotas.any else 0.0
    if kept and not quotas.entitled(job.queue, pool, weight):
        free = free_for(board, job, pool) + freed
        if free - kept < weight - EPSILON:
            message = f"{free:g} accelerators of {pool!r} are free, and {kept:g} of them are kept by their owners"
            return reason("kept_by_owner", message, pool=pool, free=free, kept=kept)
    return None
