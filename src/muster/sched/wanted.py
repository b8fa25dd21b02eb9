"""Who waits for room, for engines that can have more nodes made: pools, what each worker takes, and how many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Container

from muster.core.resources import Resources
from muster.core.rules import Rules
from muster.sched.board import Board
from muster.sched.gate import gate
from muster.sched.queued_jobs import Shape


def wanted(board: Board, rules: Rules, now: float, pools: Container[str]) -> list[tuple[str, Resources, int]]:
    """In those of the pools that grow. A gang that may go to several is counted in the first: it starts in one."""
    found: Counter[tuple[str, Resources]] = Counter()
    for pool in sorted(name for name in board.shapes if name in pools):
        for shape in board.shapes[pool]:
            if next(name for name in shape.gang.pools if name in pools) == pool:
                found[pool, shape.gang.ask] += _waiting(board, rules, now, pool, shape) * shape.fewest
    kinds = sorted(found, key=lambda kind: (kind[0], str(kind[1])))
    return [(pool, ask, found[pool, ask]) for pool, ask in kinds if found[pool, ask]]


def _waiting(board: Board, rules: Rules, now: float, pool: str, shape: Shape) -> int:
    """Gangs of the shape that lack room alone: more nodes would not help who is at a limit."""
    count, weight = 0, shape.each * shape.fewest
    for stream in shape.streams:
        first = board.queued[stream.entries[0][2]].job
        if stream.resting <= now and gate(board, rules, first, pool, weight) is None:
            count += len(stream.entries)
    return count
