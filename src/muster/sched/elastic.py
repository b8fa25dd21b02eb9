"""Elastic gangs: start on as many nodes as fit, grow onto nodes that no other job wants, shrink when one does.

A cluster with its own queue chooses the machines. There a gang asks for no more nodes than are in service, and for
fewer if the cluster does not start it; it grows when the cluster has machines free.
"""

from __future__ import annotations

from dataclasses import replace
from math import inf

from muster.core.job import Job, Seat
from muster.core.rules import Rules
from muster.core.spec import fewest_nodes
from muster.core.units import format_duration
from muster.sched.board import Board
from muster.sched.gate import allowance
from muster.sched.order import remaining
from muster.sched.place import GangRequest
from muster.sched.placements import PLACEMENTS
from muster.sched.quota import EPSILON
from muster.sched.running_gangs import Running

WORTH_IT = 10.0  # a gang is stopped to grow only after it has run this many times the restart cost
FRESH = 60.0  # maximum age in seconds of the checkpoint of a gang that is stopped to grow
# Seconds that a cluster has to start a gang on as many nodes as it asks for; its room is not known before. Engines look
# at the use of machines every 15 s: by then what the gang's last attempt held counts as free.
START_WAIT = 20.0


def most_that_fit(board: Board, gang: GangRequest, fewest: int) -> tuple[Seat, ...] | None:
    """Seats for the largest gang from `fewest` to `gang.nodes` nodes; None when even `fewest` nodes don't fit."""
    seats = _seats(board, gang, gang.nodes, fewest)
    if seats is not None or fewest == gang.nodes:
        return seats
    low, high, best = fewest, gang.nodes - 1, None
    while low <= high:
        nodes = (low + high) // 2
        found = _seats(board, gang, nodes, fewest)
        if found is None:
            high = nodes - 1
        else:
            best, low = found, nodes + 1
    return best


def _seats(board: Board, gang: GangRequest, nodes: int, fewest: int) -> tuple[Seat, ...] | None:
    """Seats for this number of nodes. More than `fewest` are taken only in pools with so many machines in service."""
    if nodes > fewest and any(board.pools.usable(pool) < nodes for pool in gang.pools):
        gang = replace(gang, pools=tuple([pool for pool in gang.pools if board.pools.usable(pool) >= nodes]))
    wanted = gang if nodes == gang.nodes else replace(gang, nodes=nodes)
    place = PLACEMENTS.get(gang.placement).place
    return place(wanted, board.free) if gang.pools and board.free.could(wanted) else None


def growth(board: Board, rules: Rules, known: Running, now: float) -> tuple[Seat, ...] | None:
    """All seats that a running gang would have after growing onto free nodes; None when it should not grow."""
    if _missing(known) <= 0 or known.leaving or known.job.phase != "running" or too_early(rules, known, now):
        return None
    more = _more_seats(board, rules, known, now)
    return known.seats + more if more and not isinstance(more, str) else None


def waits_to_grow(board: Board, rules: Rules, known: Running, now: float) -> str:
    """What a running gang waits for, to grow to all nodes that it asked for. Empty if it has them, or leaves."""
    if _missing(known) <= 0 or known.leaving or known.job.phase != "running":
        return ""
    if known.pool in board.pools.away:
        return f"the engine of pool {known.pool}, which can't be reached"
    if known.job.spec.topology.require is None and known.pool in board.waiting.shapes:
        return f"the queued jobs that want nodes of pool {known.pool}: they go first"
    more = _more_seats(board, rules, known, now)
    return more if isinstance(more, str) else too_early(rules, known, now) or "the next round of the scheduler"


def too_early(rules: Rules, known: Running, now: float) -> str:
    """What a gang waits for before it may be stopped to grow; empty if it may be now."""
    saved, worth_it = known.job.checkpoint, known.since + WORTH_IT * rules.preemption.restart_cost
    if now < worth_it:
        return f"{format_duration(worth_it - now)} more of this attempt, so that a restart is worth it"
    if saved is None or saved.time < known.since or now - saved.time > FRESH:
        return "its next checkpoint"
    return ""


def _missing(known: Running) -> int:
    return known.job.spec.num_nodes - len(known.seats)


def _more_seats(board: Board, rules: Rules, known: Running, now: float) -> tuple[Seat, ...] | str:
    """Seats on free nodes for a running gang; or what it waits for."""
    job, spec, wanted = known.job, known.job.spec, _missing(known)
    if spec.topology.require is not None:  # new nodes would have to share a label with its present ones
        return f"nothing: a gang with `topology.require: {spec.topology.require}` never grows"
    if board.pools.delegated(known.pool):
        assert job.attempt is not None
        wanted = min(wanted, (job.attempt.room or 0) - len(known.seats))
        if wanted <= 0:
            return f"a free machine in the cluster of pool {known.pool}"
        if _others_pending(board, known):
            return f"other gangs in the queue of pool {known.pool}, for which the free machines may be"
    sitting = frozenset(seat.node for seat in known.seats)
    # Nodes whose maintenance begins before its expected end are no gain.
    ends = now + remaining(job, rules) if rules.pool(known.pool).maintenance else -inf
    gang = GangRequest(job.ask, wanted, (known.pool,), "pack", prefer=spec.topology.prefer, avoid=sitting, ends=ends)
    found = most_that_fit(board, gang, 1)
    more = [seat for seat in found or () if seat.node not in sitting]
    if not more:
        return f"a node of pool {known.pool} with room for one more worker"
    if job.ask.weight:
        room = allowance(board, rules, job, known.pool)
        more = more[: int(min(len(more), (room + EPSILON) // job.ask.weight))]
    return tuple(more) or f"room in the quotas and limits of queue {job.queue}"


def room_at_end(job: Job, now: float) -> float:
    """How many nodes the cluster had for the job's last attempt, if that has just ended; inf if that is not known."""
    last = job.attempt
    if last is None or last.room is None or last.ended_at is None or now - last.ended_at > FRESH:
        return inf
    return last.room


def fewer(known: Running) -> tuple[Seat, ...] | None:
    """The seats that a gang in a cluster's queue should ask for instead, because the cluster has no more nodes free;
    None when it should go on waiting."""
    job, attempt = known.job, known.job.attempt
    if job.phase != "starting" or known.leaving or attempt is None or attempt.number != known.attempt:
        return None
    room = attempt.room
    return known.seats[:room] if room is not None and fewest_nodes(job.spec) <= room < len(known.seats) else None


def smaller(known: Running, taken: set[str]) -> tuple[Seat, ...]:
    """The seats that a gang keeps when it gives up the nodes in `taken`; () when it can't run on fewer nodes."""
    rest = tuple(seat for seat in known.seats if seat.node not in taken)
    able = known.job.spec.min_nodes is not None and fewest_nodes(known.job.spec) <= len(rest) < len(known.seats)
    return rest if able else ()


def _others_pending(board: Board, known: Running) -> bool:
    """Whether another gang is in the queue of the pool's cluster, or leaves: the free machines may be for that one."""
    others = (one for one in board.gangs.running.values() if one.pool == known.pool and one is not known)
    return any(one.leaving or one.job.phase != "running" for one in others)
