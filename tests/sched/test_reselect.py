"""Rounds that choose anew look at few of the jobs that wait, and choose as if they looked at all."""

from __future__ import annotations

from hypothesis import given, note, settings

from muster.core.job import Job
from muster.core.plan import Plan
from muster.core.state import State
from muster.sched.board import Board
from muster.sched.placements import PLACEMENTS
from muster.sched.policies import policy_of
from scheduler_kit import SchedulerLoop
from streams import Case, cases


@settings(max_examples=20, deadline=None)
@given(cases())
def test_chosen_as_if_all_were_looked_at(case: Case):
    note(str(case))
    case.rules = case.rules.model_copy(update={"reselect": True, "round": 5.0})
    loop = case.loop()
    loop.checks += [_as_by_the_plain_way]
    loop.run(until=400.0)


def _as_by_the_plain_way(loop: SchedulerLoop, plan: Plan) -> None:
    if loop.now % 5.0:
        return
    starts, yields = _plain(loop.state, loop.now)
    assert [(start.job, start.seats) for start in plan.starts] == starts
    assert [leave.job for leave in plan.yields] == yields


def _plain(state: State, now: float) -> tuple[list[tuple[str, object]], list[str]]:
    """All jobs of a pool in one sorted list."""
    board, starts, yields = Board(), list[tuple[str, object]](), list[str]()
    board.sync(state, now)
    for pool in sorted(board.waiting.shapes):
        spare = float(sum(slot.devices for slot in board.free.kept(pool)))
        left, leaving, chosen = board.free.accelerators(pool)[1] - spare, bool(board.gangs.leaving[pool]), list[str]()
        shapes = board.waiting.shapes.get(pool, {})
        names = [known.job.id for known in board.gangs.in_pool(pool)]
        names += [name for shape in shapes for stream in shape.streams for _, _, name in stream.entries]
        for job in sorted((state.jobs[name] for name in names), key=lambda job: _turn(state, job, now)):
            queued, known = board.waiting.queued.get(job.id), board.gangs.running.get(job.id)
            weight = queued.stream.shape.weight if queued is not None else known.weight if known is not None else 0.0
            if job.id in board.waiting.restarting:
                used = min(weight, spare)
                left, spare = left + used, spare - used
            if weight <= left:
                left -= weight
                chosen += [job.id] if queued is not None else []
            elif known is not None and not known.leaving:
                yields.append(job.id)
                board.leave(known)
                leaving = True
        for name in () if leaving else chosen:
            queued = board.waiting.queued[name]
            gang = queued.stream.shape.gang.within(pool, queued.stream.shape.gang.nodes)
            seats = PLACEMENTS.get(gang.placement).place(gang, board.free)
            if seats is not None:
                starts.append((name, seats))
                board.begin(queued, seats, now)
    return starts, yields


def _turn(state: State, job: Job, now: float) -> tuple[object, ...]:
    queue = state.rules.queue(job.queue)
    policy = policy_of(queue)
    standing = policy.standing(job, state.rules, queue, now)
    since = job.attempt.planned_at if job.active and job.attempt is not None else job.since
    rank = policy.rank(standing.band, standing.key, state.history)
    return (*rank[:-1], job.submitted_at, not job.active, since, job.number)
