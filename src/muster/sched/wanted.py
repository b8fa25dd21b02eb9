"""Unmet demand, for engines that can add nodes: pool, resources of each worker, and number of workers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container

from muster.core.resources import Resources
from muster.core.rules import Rules
from muster.sched.board import Board
from muster.sched.gate import gate
from muster.sched.queued_jobs import Shape


def wanted(board: Board, rules: Rules, now: float, pools: Container[str]) -> list[tuple[str, Resources, int]]:
    """Demand in the given pools, which can grow. A gang that may go to several of them is counted in the first only."""
    found: Counter[tuple[str, Resources]] = Counter()
    for pool in sorted(name for name in board.waiting.shapes if name in pools):
        for shape in board.waiting.shapes[pool]:
            if next(name for name in shape.gang.pools if name in pools) == pool:
                found[pool, shape.gang.ask] += _waiting(board, rules, now, pool, shape) * shape.fewest
    kinds = sorted(found, key=lambda kind: (kind[0], str(kind[1])))
    return [(pool, ask, found[pool, ask]) for pool, ask in kinds if found[pool, ask]]


def _waiting(board: Board, rules: Rules, now: float, pool: str, shape: Shape) -> int:
    """Gangs of the shape that lack only free nodes. More nodes would not help a job that is held back by a limit."""
    count, weight = 0, shape.each * shape.fewest
    for stream in shape.streams:
        first = board.waiting.queued[stream.entries[0][2]].job
        if stream.not_before <= now and gate(board, rules, first, pool, weight) is None:
            count += len(stream.entries)
    return count
