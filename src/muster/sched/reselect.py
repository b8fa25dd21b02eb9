"""Rounds that select the running jobs from scratch, like Tiresias: a round counts accelerators, not nodes.

Running and queued jobs are selected in the order of their queues while the pool's accelerators last. A running job
that is not selected is preempted. A queued job that is selected starts if a placement is found; otherwise it waits for
another round. A round that changed nothing is not repeated until something changes: an event, or a job's position.

A round costs what runs and what is selected: of a stream of queued jobs it looks at the first ones alone, until one
wants more accelerators than are left.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import merge
from math import ceil, inf

from muster.core.job import Job
from muster.core.plan import Plan, Preempt, Start
from muster.core.reasons import reason
from muster.core.state import State
from muster.sched.board import Board
from muster.sched.order import Key
from muster.sched.placements import PLACEMENTS
from muster.sched.policies import policy_of
from muster.sched.queued_jobs import Queued, Stream
from muster.sched.running_gangs import Running

Ranked = tuple[Key, int, Queued | Running]  # the numbers differ: the last ones are never compared


@dataclass(slots=True)
class _Left:
    """Accelerators of the pool that are not given to anybody in this round."""

    open: float
    spare: float  # for jobs that lost a node alone


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
    spare = float(sum(slot.devices for slot in board.free.kept(pool)))
    left, chosen = _Left(board.free.accelerators(pool)[1] - spare, spare), list[Queued]()
    leaving = bool(board.gangs.leaving[pool])
    running, until = _running(state, board, pool, now)
    waiting = [_waiting(state, board, stream, left) for stream in _streams(board, pool)]
    for _, _, one in merge(running, *waiting):
        weight = one.weight if isinstance(one, Running) else one.stream.shape.weight
        if one.job.id in board.waiting.restarting:
            used = min(weight, left.spare)
            left.open, left.spare = left.open + used, left.spare - used
        if weight <= left.open:
            left.open -= weight
            chosen += [one] if isinstance(one, Queued) else []
        elif isinstance(one, Running) and not one.leaving:
            yields.append(Preempt(one.job.id, reason("preempted", "others were chosen this round"),
                                  _grace(state, one.job)))  # fmt: skip
            board.leave(one)
            leaving = True
    until = min(until, _queued_until(state, board, pool, now))
    if leaving:
        return until  # the selected jobs are placed once all leaving gangs have left, on everything that is free then
    for queued in chosen:
        gang = queued.stream.shape.gang.within(pool, queued.stream.shape.gang.nodes)
        seats = PLACEMENTS.get(gang.placement).place(gang, board.free) if board.free.could(gang) else None
        if seats is not None:
            starts.append(Start(queued.job.id, seats))
            board.begin(queued, seats, now)
    return until


def _running(state: State, board: Board, pool: str, now: float) -> tuple[list[Ranked], float]:
    """The jobs that run in the pool, in their order, and until when this order holds.

    Ties: the earlier submission first, then running before queued, then the longer run or wait.
    """
    found, until = list[Ranked](), inf
    for known in board.gangs.in_pool(pool):
        if known.turn is None or now >= known.turn[0]:
            job, queue = known.job, state.rules.queue(known.job.queue)
            policy = policy_of(queue)
            standing = policy.standing(job, state.rules, queue, now)
            rank = policy.rank(standing.band, standing.key, state.history)
            turn = (*rank[:-1], job.submitted_at, not job.active, _since(job))
            known.turn = (now if policy.learns else standing.until, standing.until, turn)
        until = min(until, known.turn[1])
        found.append((known.turn[2], known.job.number, known))
    found.sort()
    return found, until


def _since(job: Job) -> float:
    return job.attempt.planned_at if job.active and job.attempt is not None else job.since


def _streams(board: Board, pool: str) -> list[Stream]:
    # A start in another pool may have been the last job that waited here.
    return [stream for shape in board.waiting.shapes.get(pool, {}) for stream in shape.streams]


def _waiting(state: State, board: Board, stream: Stream, left: _Left) -> Iterator[Ranked]:
    """The jobs of a stream in their order, as long as one of them might be selected."""
    shape, queued, history = stream.shape, board.waiting.queued, state.history
    for place, number, name in stream.turns:
        if shape.weight > left.open and not board.waiting.restarting:
            return  # what is left only shrinks, except for jobs that get a spare
        one = queued[name]
        rank = stream.policy.rank(stream.band, one.entry[0], history)
        yield (*rank[:-1], place[-2], True, place[-1]), number, one


def _queued_until(state: State, board: Board, pool: str, now: float) -> float:
    """When time alone next changes the place of a queued job."""
    until = inf
    for name in board.waiting.timed:
        queued = board.waiting.queued[name]
        if pool in queued.stream.shape.gang.pools:
            policy, rules = queued.stream.policy, queued.stream.rules
            until = min(until, policy.standing(queued.job, state.rules, rules, now).until)
    return until


def _grace(state: State, job: Job) -> float:
    return min(job.spec.stop_grace, state.rules.preemption.grace)
