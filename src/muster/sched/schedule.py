"""One scheduling round: a state and a time in, a plan out.

1. Bring the board up to date with what changed.
2. Start those whose seats were kept for them and are free now.
3. Start what fits, best first: gangs whole or not at all, within limits and quotas, past nobody's reservation.
4. For those who still wait and have the right: ask others to leave, and keep the seats for them.
5. Let elastic gangs grow into what nobody wants.
"""

from __future__ import annotations

from math import ceil, inf

from muster.core.plan import Plan
from muster.core.state import State
from muster.sched.board import Board
from muster.sched.fill import Filling
from muster.sched.preemption import grow, make_way
from muster.sched.reselect import reselect

SOON = 60.0  # seconds after a start, at the latest, until those who wait are compared with who started


def schedule(state: State, now: float, board: Board | None = None) -> Plan:
    """`board` is what the last round left, to save work; without one the plan is the same."""
    if board is None:
        board = Board()
    board.sync(state, now)
    every = state.rules.round
    if every and now % every:
        return Plan(state.version, wake_at=ceil(now / every) * every if board.queued else None)
    if state.rules.reselect:
        return reselect(state, board, now)
    idle = not board.shapes_changed and not board.claims and not (board.pools_changed and board.queued)
    if idle and not board.elastic and not board.order_drifts and not (board.ordered and any(board.late.values())):
        return Plan(state.version, wake_at=board.wake_at())
    filling = Filling(state, board, now)
    filling.keep_promises()
    while filling.start_what_fits():
        pass  # what started has changed whose turn it is, and what is kept for whom
    yields, claims = make_way(state, board, filling, now)
    more_yields, more_claims = grow(state, board, now)
    wake = board.wake_at()
    if filling.starts and board.queued:
        wake = min(wake or inf, now + SOON)  # where they stand once they run is known when they do
    if every:
        wake = now + every if board.queued else None
    return Plan(
        state.version, tuple(filling.starts), wake, (*yields, *more_yields), (*filling.claims, *claims, *more_claims)
    )
