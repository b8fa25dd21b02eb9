"""Elastic gangs: start on as many nodes as fit, grow onto nodes that no other job wants, shrink when one does."""

from __future__ import annotations

from dataclasses import replace
from math import inf

from muster.core.job import Seat
from muster.core.rules import Rules
from muster.core.spec import fewest_nodes
from muster.sched.board import Board
from muster.sched.gate import allowance
from muster.sched.order import remaining
from muster.sched.place import GangRequest
from muster.sched.placements import PLACEMENTS
from muster.sched.quota import EPSILON
from muster.sched.running_gangs import Running

WORTH_IT = 10.0  # a gang is stopped to grow only after it has run this many times the restart cost
FRESH = 60.0  # maximum age in seconds of the checkpoint of a gang that is stopped to grow


def most_that_fit(board: Board, gang: GangRequest, fewest: int) -> tuple[Seat, ...] | None:
    """Seats for the largest gang from `fewest` to `gang.nodes` nodes; None when even `fewest` nodes don't fit."""
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
    """All seats that a running gang would have after growing onto free nodes; None when it should not grow."""
    job, spec = known.job, known.job.spec
    wanted = spec.num_nodes - len(known.seats)
    if wanted <= 0 or known.leaving or job.phase != "running" or job.checkpoint is None:
        return None
    if now - known.since < WORTH_IT * rules.preemption.restart_cost or job.checkpoint.time < known.since:
        return None
    if now - job.checkpoint.time > FRESH:
        return None
    sitting = frozenset(seat.node for seat in known.seats)
    # Nodes whose maintenance begins before its expected end are no gain.
    ends = now + remaining(job, rules) if rules.pool(known.pool).maintenance else -inf
    gang = GangRequest(job.ask, wanted, (known.pool,), "pack", prefer=spec.topology.prefer, avoid=sitting, ends=ends)
    if spec.topology.require is not None:
        return None  # new nodes would have to share a label with its present ones: such a gang never grows
    found = most_that_fit(board, gang, 1)
    more = [seat for seat in found or () if seat.node not in sitting]
    if job.ask.weight:
        room = allowance(board, rules, job, known.pool)
        more = more[: int(min(len(more), (room + EPSILON) // job.ask.weight))]
    return known.seats + tuple(more) if more else None


def smaller(known: Running, taken: set[str]) -> tuple[Seat, ...]:
    """The seats that a gang keeps when it gives up the nodes in `taken`; () when it can't run on fewer nodes."""
    rest = tuple(seat for seat in known.seats if seat.node not in taken)
    able = known.job.spec.min_nodes is not None and fewest_nodes(known.job.spec) <= len(rest) < len(known.seats)
    return rest if able else ()
