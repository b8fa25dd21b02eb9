"""Rounds that choose anew who runs, as Tiresias and its kin do: a round counts accelerators and looks at no nodes.

In the order of their queues, running and queued jobs are chosen while the pool's accelerators last. Who runs and was
not chosen leaves; who was chosen and does not run is placed if a place is found, and waits for another round if not.
A round that changed nothing is not repeated before something did: an event, or a job that stands elsewhere by then.
"""

from __future__ import annotations

from math import ceil, inf

from muster.core.job import Job
from muster.core.plan import Plan, Start, Yield
from muster.core.reasons import reason
from muster.core.state import State
from muster.sched.board import Board
from muster.sched.order import Key
from muster.sched.placements import PLACEMENTS
from muster.sched.policies import policy_of
from muster.sched.queued_jobs import Queued

Ranked = tuple[Key, int, Job]


def reselect(state: State, board: Board, now: float) -> Plan:
    starts, yields = list[Start](), list[Yield]()
    until = min([_choose(state, board, pool, now, starts, yields) for pool in sorted(board.shapes)], default=inf)
    again = now + state.rules.round if starts or yields else _round_after(until, state.rules.round)
    return Plan(state.version, tuple(starts), again, tuple(yields))


def _round_after(at: float, every: float) -> float | None:
    """When the first round after that time is; None for never."""
    return None if at == inf else ceil(at / every) * every if every else at


def _choose(state: State, board: Board, pool: str, now: float, starts: list[Start], yields: list[Yield]) -> float:
    """Until when time alone changes nothing in the pool."""
    left, chosen = board.free.accelerators(pool)[1], list[Queued]()
    leaving = bool(board.leaving[pool])
    everyone, until = _all(state, board, pool, now)
    for _, _, job in sorted(everyone):
        queued, known = board.queued.get(job.id), board.running.get(job.id)
        weight = queued.stream.shape.weight if queued is not None else known.weight if known is not None else 0.0
        if weight <= left:
            left -= weight
            chosen += [queued] if queued is not None else []
        elif known is not None and not known.leaving:
            yields.append(Yield(job.id, reason("preempted", "others were chosen this round"), _grace(state, job)))
            board.leave(known)
            leaving = True
    if leaving:
        return until  # the chosen are placed when those who leave have left, on all that is free then
    for queued in chosen:
        gang = queued.stream.shape.gang.within(pool, queued.stream.shape.gang.nodes)
        seats = PLACEMENTS.get(gang.placement).place(gang, board.free) if board.free.could(gang) else None
        if seats is not None:
            starts.append(Start(queued.job.id, seats))
            board.begin(queued, seats, now)
    return until


def _all(state: State, board: Board, pool: str, now: float) -> tuple[list[Ranked], float]:
    """Who runs in the pool or waits for it, with where they stand, and until when they do. Of those who stand alike who
    runs goes first, and of those who has done so, or waited, for longer."""
    names = [known.job.id for known in board.running_in(pool)]
    names += [name for shape in board.shapes[pool] for stream in shape.streams for _, _, name in stream.entries]
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
