"""One scheduling round: a state and a time in, a plan out.

1. Update the board with what changed.
2. Start jobs whose reserved seats (claims) are free now, then jobs that lost a node of a pool with spares.
3. Start what fits, best first: whole gangs only, within limits and quotas, without delaying reservations.
4. For jobs that still wait and have the right to preempt: preempt other gangs and reserve the seats.
5. Let elastic gangs grow into nodes that no other job wants.
"""

from __future__ import annotations

from math import ceil, inf

from muster.core.plan import Plan
from muster.core.state import State
from muster.sched.board import Board
from muster.sched.fill import Filling
from muster.sched.preemption import grow, preempt_for_queued
from muster.sched.quiet_pools import is_quiet
from muster.sched.reselect import reselect

SOON = 60.0  # seconds after a start within which waiting jobs are compared with the started ones


def schedule(state: State, now: float, board: Board | None = None) -> Plan:
    """`board` is the one from the last round, to save work; without it the plan is the same."""
    if board is None:
        board = Board()
    board.sync(state, now)
    every = state.rules.round
    if every and now % every:
        return Plan(state.version, wake_at=ceil(now / every) * every if board.waiting.queued else None)
    if state.rules.reselect:
        return reselect(state, board, now)
    # What has changed for preemption alone: most rounds after the end of a job, of which only some rules have a use.
    preempts = board.changes.pools and board.waiting.queued and state.rules.preemption.enabled
    idle = not board.changes.shapes and not board.claims.by_job and not preempts
    if idle and not board.gangs.elastic and not board.order_may_have_changed:
        return Plan(state.version, wake_at=board.wake_at())
    if not every and _nobody_starts_or_leaves(board, now):
        board.changes.pools = {}
        return Plan(state.version, wake_at=board.wake_at())
    filling = Filling(state, board, now)
    filling.start_claimed()
    filling.start_restarting()
    while filling.start_what_fits():
        pass  # the starts have changed the queue order and the reservations
    yields, claims = preempt_for_queued(state, board, filling, now)
    more_yields, more_claims = grow(state, board, now)
    wake = board.wake_at()
    if filling.starts and board.waiting.queued:
        wake = min(wake or inf, now + SOON)  # their rank as running gangs is known only once they run
    if every:
        wake = now + every if board.waiting.queued else None
    return Plan(
        state.version, tuple(filling.starts), wake, (*yields, *more_yields), (*filling.claims, *claims, *more_claims)
    )


def _nobody_starts_or_leaves(board: Board, now: float) -> bool:
    """Whether a whole round is known to decide nothing: no request may fit that did not, and nobody can preempt."""
    if board.changes.shapes or board.claims.by_job or board.waiting.restarting:
        return False
    if board.gangs.elastic or board.order_may_have_changed:
        return False
    return all(is_quiet(board, pool, now) for pool in board.changes.pools)
