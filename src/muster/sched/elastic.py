"""Elastic gangs: as many nodes as there are, more of them when nobody else wants them, fewer when somebody does."""

from __future__ import annotations

from dataclasses import replace
from math import inf

from muster.core.job import Seat
from muster.core.rules import Rules
from muster.core.spec import fewest_nodes
from muster.sched.board import Board, Running
from muster.sched.gate import allowance
from muster.sched.order import remaining
from muster.sched.place import Gang
from muster.sched.placements import PLACEMENTS
from muster.sched.quota import EPSILON

WORTH_IT = 10.0  # times the restart cost that a gang must have run before it is stopped to grow
FRESH = 60.0  # seconds that a checkpoint may be old for the gang to be stopped to grow


def most_that_fit(board: Board, gang: Gang, fewest: int) -> tuple[Seat, ...] | None:
    """Seats for the largest gang between the fewest nodes and all of them; None when even the fewest don't fit."""
    place = PLACEMENTS.get(gang.placement).place
    seats = place(gang, board.free) if board.free.could(gang) else None
    if seats is not None or fewest == gang.nodes:
        return seats
    low, high, best = fewest, gang.nodes - 1, None
    while low <= high:
        nodes = (low + high) // 2
        smaller = replace(gang, nodes=nodes)
        found = place(smaller, board.free) if board.free.could(smaller) else None
        if found is None:
            high = nodes - 1
        else:
            best, low = found, nodes + 1
    return best


def growth(board: Board, rules: Rules, known: Running, now: float) -> tuple[Seat, ...] | None:
    """All the seats that a running gang would have after growing into what is free; None when it should stay."""
    job, spec = known.job, known.job.spec
    wanted = spec.num_nodes - len(known.seats)
    if wanted <= 0 or known.leaving or job.phase != "running" or job.checkpoint is None:
        return None
    if now - known.since < WORTH_IT * rules.preemption.restart_cost or job.checkpoint.time < known.since:
        return None
    if now - job.checkpoint.time > FRESH:
        return None
    sitting = frozenset(seat.node for seat in known.seats)
    # Nodes that go away before it could be done are no gain.
    ends = now + remaining(job, rules) if rules.pool(known.pool).maintenance else -inf
    gang = Gang(job.ask, wanted, (known.pool,), "pack", prefer=spec.topology.prefer, avoid=sitting, ends=ends)
    if spec.topology.require is not None:
        return None  # its nodes would have to share a label with those that it has: it starts with what is there
    found = most_that_fit(board, gang, 1)
    more = [seat for seat in found or () if seat.node not in sitting]
    if job.ask.weight:
        room = allowance(board, rules, job, known.pool)
        more = more[: int(min(len(more), (room + EPSILON) // job.ask.weight))]
    return known.seats + tuple(more) if more else None


def smaller(known: Running, taken: set[str]) -> tuple[Seat, ...]:
    """The seats that a gang keeps when it gives up the nodes that are taken; none when it can't do with fewer."""
    rest = tuple(seat for seat in known.seats if seat.node not in taken)
    able = known.job.spec.min_nodes is not None and fewest_nodes(known.job.spec) <= len(rest) < len(known.seats)
    return rest if able else ()
