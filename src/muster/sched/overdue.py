"""Overdue jobs go ahead of others, as long as such jobs hold no more than their share of a pool."""

from __future__ import annotations

from collections.abc import Set as AbstractSet

from muster.sched.board import Board
from muster.sched.limits import weight_of
from muster.sched.queued_jobs import Stream
from muster.sched.quota import EPSILON


def goes_first(board: Board, stream: Stream, pool: str | None = None) -> bool:
    """Whether the stream is overdue, and overdue jobs hold so little of a pool that it may go ahead of others."""
    if not stream.overdue:
        return False
    for name in stream.shape.gang.pools if pool is None else (pool,):
        limit = _limit(board, name)
        held = board.gangs.privileged(name, limit).weight + _promised(board, name)
        if not held or held + stream.shape.weight <= limit + EPSILON:
            return True
    return False


def privileged(board: Board, pool: str) -> AbstractSet[str]:
    """Running gangs of overdue jobs, oldest first, that can't be preempted by rank: up to the `overdue_share`."""
    return board.gangs.privileged(pool, _limit(board, pool)).jobs


def _promised(board: Board, pool: str) -> float:
    """Accelerators reserved by claims of overdue jobs."""
    if not board.claims.by_job:
        return 0.0
    queued = board.waiting.queued
    claims = [claim for claim in board.claims.by_job.values() if claim.pool == pool and claim.job.id in queued]
    return sum(weight_of(claim.seats) for claim in claims if queued[claim.job.id].stream.overdue)


def _limit(board: Board, pool: str) -> float:
    """Accelerators of the pool that overdue jobs may hold ahead of the others."""
    return board.free.accelerators(pool)[1] * board.rules.rules.overdue_share
