"""Why a gang does not fit: too few healthy nodes, too little time before maintenance, or too few free nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from heapq import nsmallest
from math import inf
from typing import Any, Final

from muster.core.entities import Node
from muster.core.job import Job
from muster.core.reasons import Reason, reason
from muster.core.state import State
from muster.sched.board import Board
from muster.sched.elastic import most_that_fit
from muster.sched.likely_end import Ends, likely_end, quick_end
from muster.sched.place import GangRequest
from muster.sched.running_gangs import Running

NAMED: Final = 5  # jobs or nodes that a reason names at most
LOOKED_AT: Final = 512  # largest cluster, in nodes, for which a brief answer looks at every node

Named = Callable[[Job], str]  # job → the name shown to the user who asks; see `Explainer.named`


def shortage(
    state: State, board: Board, gang: GangRequest, fewest: int, now: float, named: Named, brief: bool, ends: Ends
) -> Reason:
    """Why a gang that needs at least `fewest` nodes does not fit now."""
    if gang.ends > -inf and most_that_fit(board, replace(gang, ends=-inf), fewest) is not None:
        return _maintenance(state, gang, now)
    if brief and len(state.nodes) > LOOKED_AT:
        return _roughly(board, gang, fewest)
    fitting = [node for node in state.nodes.values() if node.pool in gang.pools and node.total.holds(gang.ask)]
    healthy = [node for node in fitting if node.health == "healthy"]
    if len(healthy) < fewest:
        return _unhealthy(gang, fewest, fitting, len(healthy))
    if (kept := _spares(state, board, gang, fewest, fitting)) is not None:
        return kept
    return _full(state, board, gang, fewest, fitting, now, named, ends)


def _maintenance(state: State, gang: GangRequest, now: float) -> Reason:
    windows = [w for pool in gang.pools for w in state.rules.pool(pool).maintenance if w.end > now]
    first = min(windows, key=lambda window: window.start)
    why = f" ({first.why})" if first.why else ""
    message = f"nodes that are free go into maintenance{why} before it would be done"
    return reason("maintenance", message, begins=first.start, ends=first.end, would_end=gang.ends)


def _roughly(board: Board, gang: GangRequest, fewest: int) -> Reason:
    """An answer from the accelerator counts that the index keeps anyway, without a look at each node."""
    wanted = gang.ask.weight * fewest
    there = max([board.free.accelerators(pool)[1] for pool in gang.pools], default=0.0)
    free = max([_free_accelerators(board, pool, gang) for pool in gang.pools], default=0.0)
    if there < wanted:
        message = f"{wanted:g} accelerators are needed and {there:g} are on healthy nodes of one pool"
        return reason("nodes_unhealthy", message, wanted=fewest, accelerators=wanted, healthy_accelerators=there)
    message = f"needs {_nodes(fewest)} with {gang.ask}"
    message += f"; {free:g} of {there:g} accelerators are free" if gang.ask.accelerators else ", which are not free"
    return reason("no_capacity", message, wanted=fewest, free_accelerators=free)


def _free_accelerators(board: Board, pool: str, gang: GangRequest) -> float:
    return board.free.accelerators(pool)[0] - sum(slot.devices for slot in board.free.kept(pool, gang.spares))


def _unhealthy(gang: GangRequest, wanted: int, fitting: list[Node], healthy: int) -> Reason:
    ill = [node for node in fitting if node.health != "healthy"]
    message = f"{_nodes(wanted)} with {gang.ask} are needed and {healthy} are healthy"
    message += f"; not: {_ill(fitting)}" if ill else ""
    nodes = [{"node": node.name, "health": node.health, "why": node.why} for node in ill[:NAMED]]
    return reason("nodes_unhealthy", message, wanted=wanted, healthy=healthy, nodes=nodes)


def _spares(state: State, board: Board, gang: GangRequest, wanted: int, fitting: list[Node]) -> Reason | None:
    """The answer where it lacks nothing but the spares of a pool, now or whatever ends."""
    for pool in gang.pools:
        count = state.rules.pool(pool).spares if pool != gang.spares else 0
        there = sum(node.pool == pool and node.health == "healthy" for node in fitting)
        if not count or there < wanted:
            continue
        never = there - count < wanted
        if never or most_that_fit(board, replace(gang, spares=pool), wanted) is not None:
            kept = f"{count} {'is' if count == 1 else 'are'} kept free for jobs that lose a node"
            message = f"needs {_nodes(wanted)} with {gang.ask}; of {there} healthy nodes of pool {pool!r} {kept}"
            message += ", so it can't start there" if never else ""
            message += f"; there would be {_ill(fitting)}" if there < len(fitting) else ""
            return reason("spares_kept", message, wanted=wanted, pool=pool, spares=count, never=never)
    return None


def _full(
    state: State,
    board: Board,
    gang: GangRequest,
    wanted: int,
    fitting: list[Node],
    now: float,
    named: Named,
    ends: Ends,
) -> Reason:
    healthy = [node for node in fitting if node.health == "healthy"]
    pools = {node.pool: [n for n in healthy if n.pool == node.pool] for node in healthy}
    rooms = {pool: sum(_has_room(board, node, gang) for node in there) for pool, there in pools.items()}
    best = max(rooms, key=lambda pool: rooms[pool])
    free, there = rooms[best], len(pools[best])
    where = f" of pool {best!r}" if len(state.pools) > 1 else ""
    message = f"needs {_nodes(wanted)} with {gang.ask}; {free} of {there} nodes{where} have it free"
    if free >= wanted:
        label = gang.require or gang.prefer
        message += f", but no {wanted} with one {label!r}" if label else ", but not together"
    if len(healthy) < len(fitting):
        message += f", and there would be {_ill(fitting)}"
    holders = nsmallest(
        NAMED, _holders(state, board, gang), lambda one: (quick_end(one, state, now, ends), one.job.number)
    )
    if holders:
        message += f"; held by {', '.join(named(known.job) for known in holders)}"
    data: dict[str, Any] = {
        "wanted": wanted,
        "free": free,
        "pool": best,
        "holders": [named(known.job) for known in holders],
        "ends": [
            {
                "job": named(known.job),
                "ends_at": (end := likely_end(known, state, now, ends)).at,
                "evidence": end.evidence,
                "accelerators": known.weight,
                "leaving": known.leaving,
            }
            for known in holders
        ],
    }
    if gang.require:
        data["require"] = gang.require
    return reason("no_capacity", message, **data)


def _has_room(board: Board, node: Node, gang: GangRequest) -> bool:
    slot = board.free.slots.get(node.name)
    if slot is None or slot in board.free.kept(node.pool, gang.spares):
        return False
    if slot.closes < gang.ends or slot.cpu < gang.ask.milli_cpus or slot.memory < gang.ask.memory:
        return False
    parts = gang.ask.share < 1000 and any(left >= gang.ask.share for left in slot.parts.values())
    return slot.mask.bit_count() >= gang.ask.accelerators or parts


def _holders(state: State, board: Board, gang: GangRequest) -> Iterator[Running]:
    """Gangs on nodes whose hardware suits the gang."""
    for pool in gang.pools:
        for known in board.gangs.in_pool(pool):
            node = state.nodes.get(known.seats[0].node) if known.seats else None
            if node is not None and node.total.holds(gang.ask):
                yield known


def _ill(fitting: list[Node]) -> str:
    ill = [node for node in fitting if node.health != "healthy"]
    more = f" and {len(ill) - NAMED} more" if len(ill) > NAMED else ""
    told = [f"{node.name} ({node.health}{f': {node.why}' if node.why else ''})" for node in ill[:NAMED]]
    return ", ".join(told) + more


def _nodes(count: int) -> str:
    return f"{count} node{'' if count == 1 else 's'}"
