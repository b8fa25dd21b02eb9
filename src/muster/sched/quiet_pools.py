"""Whether anybody can preempt in a pool at all, answered at once for most rounds.

It is noted when every candidate of a pool has failed, and holds until something that it rests on changes: who waits,
what is claimed, which gangs are protected, or a node that has become easy enough to clear for one of the candidates.
A stream that may use several pools, quotas, time slices and escalation are not covered; there it is never noted.
"""

from __future__ import annotations

from math import inf

from muster.sched.board import Board
from muster.sched.failed_preemptions import EVERYWHERE, FailedCandidate, QuietPool
from muster.sched.overdue import goes_first, privileged
from muster.sched.queued_jobs import Stream


def note_quiet(board: Board, pool: str, candidates: list[Stream]) -> None:
    """All candidates of the pool have just failed."""
    if board.limits.quotas.any or board.rules.slices:
        return
    failed = list[FailedCandidate]()
    for stream in candidates:
        known = stream.failed_preemptions.get(pool)
        if known is None or stream.rules.escalation or len(stream.shape.gang.pools) > 1:
            return
        value = inf if goes_first(board, stream, pool) else stream.value
        failed.append(FailedCandidate(stream.shape.gang.ask.accelerators, value, known))
    least = board.gangs.least_value(pool) * board.rules.rules.preemption.margin
    end = board.gangs.easier_nodes[pool].end
    board.waiting.quiet[pool] = QuietPool(
        board.claims.version,
        board.free.accelerators(pool)[1],
        privileged(board, pool),
        board.limits.quotas.borrowers(pool).keys(),
        failed,
        least,
        next((-negative for negative, _, _ in board.waiting.most_valuable[pool] if -negative <= least), -inf),
        min([one.failed.seen for one in failed], default=end),
    )


def is_quiet(board: Board, pool: str, now: float) -> bool:
    """Whether nobody can preempt in the pool. False where it is not known."""
    quiet = board.waiting.quiet.get(pool)
    if quiet is None or quiet.claims != board.claims.version or quiet.accelerators != board.free.accelerators(pool)[1]:
        return False
    least = board.gangs.least_value(pool) * board.rules.rules.preemption.margin
    return (
        quiet.next_value <= least
        and quiet.protected is privileged(board, pool)
        and board.limits.quotas.borrowers(pool).keys() <= quiet.borrowers
        and _nodes_are_too_dear(board, pool, quiet, now)
    )


def _nodes_are_too_dear(board: Board, pool: str, quiet: QuietPool, now: float) -> bool:
    """Whether no node that has become easier to clear since then is easy enough for any of the candidates."""
    log = board.gangs.easier_nodes[pool]
    names = log.since(quiet.seen)
    if names is None:
        return False
    slots, prices, margin = board.free.slots, board.prices, board.rules.rules.preemption.margin
    for name in names:
        slot = slots.get(name)
        if slot is not None:
            for one in quiet.candidates:
                if prices.least(slot, one.need, now) * margin < one.value and name not in one.failed.counted:
                    return False
        elif name == EVERYWHERE:
            return False
    quiet.seen = log.end
    return True
