"""Rounds that select the running jobs from scratch, like Tiresias: a round counts accelerators, not nodes.

Running and queued jobs are selected in the order of their queues while the pool's accelerators last. A running job
that is not selected is preempted. A queued job that is selected starts if a placement is found; otherwise it waits for
another round. A round that changed nothing is not repeated until something changes: an event, or a job's position.
"""

from __future__ import annotations

from math import ceil, inf

from muster.core.job import Job
from muster.core.plan import Plan, Preempt, Start
from muster.core.reasons import reason
from muster.core.state import State
from muster.sched.board import Board
from muster.sched.order import Key
from muster.sched.placements import PLACEMENTS
from muster.sched.policies import policy_of
from muster.sched.queued_jobs import Queued

Ranked = tuple[Key, int, Job]


def reselect(state: State, board: Board, now: float) -> Plan:
    starts, yields = list[Start](), list[Preempt]()
    pools = sorted(board.waiting.shapes)
    until = min([_choose(state, board, pool, now, starts, yields) for pool in pools], default=inf)
    again = now + state.rules.round if starts or yields else _round_after(until, state.rules.round)
    return Plan(state.version, tuple(starts), again, tuple(yields))


def _round_after(at: float, every: float) -> float | None:
    """The time of the first round at or after `at`; None for never."""
    return None if at == inf else ceil(at / every) * every if every else at


def _choose(state: State, board: Board, pool: str, now: float, starts: list[Start], yields: list[Preempt]) -> float:
    """Selects the jobs of one pool. Returns the time until which time alone changes nothing in the pool."""
    left, chosen = board.free.accelerators(pool)[1], list[Queued]()
    spare = float(sum(slot.devices for slot in board.free.kept(pool)))
    left -= spare
    leaving = bool(board.gangs.leaving[pool])
    everyone, until = _all(state, board, pool, now)
    for _, _, job in sorted(everyone):
        queued, known = board.waiting.queued.get(job.id), board.gangs.running.get(job.id)
        weight = queued.stream.shape.weight if queued is not None else known.weight if known is not None else 0.0
        if job.id in board.waiting.restarting:
            used = min(weight, spare)
            left, spare = left + used, spare - used
        if weight <= left:
            left -= weight
            chosen += [queued] if queued is not None else []
        elif known is not None and not known.leaving:
            yields.append(Preempt(job.id, reason("preempted", "others were chosen this round"), _grace(state, job)))
            board.leave(known)
            leaving = True
    if leaving:
        return until  # the selected jobs are placed once all leaving gangs have left, on everything that is free then
    for queued in chosen:
        gang = queued.stream.shape.gang.within(pool, queued.stream.shape.gang.nodes)
        seats = PLACEMENTS.get(gang.placement).place(gang, board.free) if board.free.could(gang) else None
        if seats is not None:
            starts.append(Start(queued.job.id, seats))
            board.begin(queued, seats, now)
    return until


def _all(state: State, board: Board, pool: str, now: float) -> tuple[list[Ranked], float]:
    """The jobs that run in the pool or wait for it, with their sort keys, and until when these keys hold.

    Ties: the earlier submission first, then running before queued, then the longer run or wait.
    """
    names = [known.job.id for known in board.gangs.in_pool(pool)]
    shapes = board.waiting.shapes.get(pool, {})  # a start in another pool may have been the last that waited here
    names += [name for shape in shapes for stream in shape.streams for _, _, name in stream.entries]
    found, until = list[Ranked](), inf
    for name in names:
        job, queue = state.jobs[name], state.rules.queue(state.jobs[name].queue)
        policy = policy_of(queue)
        standing = policy.standing(job, state.rules, queue, now)
        until = min(until, standing.until)
        rank = policy.rank(standing.band, standing.key, state.history)
        since = job.attempt.planned_at if job.active and job.attempt is not None else job.since
        found.append(((*rank[:-1], job.submitted_at, not job.active, since), job.number, job))
    return found, until


def _grace(state: State, job: Job) -> float:
    return min(job.spec.stop_grace, state.rules.preemption.grace)
