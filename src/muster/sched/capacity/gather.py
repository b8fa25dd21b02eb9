"""Keeps a gang together: which domains to try, and how to fill a domain with as few of its subdomains as possible."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from muster.core.seat import Seat
from muster.sched.capacity.cells import Cell
from muster.sched.capacity.free import Free
from muster.sched.capacity.pool_index import PoolIndex
from muster.sched.capacity.single import least_lost, single
from muster.sched.capacity.slot import Slot
from muster.sched.capacity.view import Labels, View, views
from muster.sched.place import GangRequest


def pack(gang: GangRequest, free: Free) -> tuple[Seat, ...] | None:
    """The node on which a worker takes the least away from typical work, or the tightest domain that holds the gang."""
    if gang.nodes == 1:
        return single(gang, free, least_lost)
    for view in views(gang, free):
        for labels in routes(view.pool_index, gang):
            cells = view.tightest(labels, gang.nodes)
            if cells is not None:
                return view.seats(gather(view, cells, gang.nodes))
    return None


def routes(pool_index: PoolIndex, gang: GangRequest) -> list[Labels]:
    """The label sets to share, best first: preferred before others, narrow before wide; () means anywhere."""
    narrow = [level for level in reversed(pool_index.levels) if pool_index.labelled[level]]
    must: Labels = (gang.require,) if gang.require and gang.require != "node" else ()
    found = []
    if gang.prefer and gang.prefer != "node" and pool_index.labelled[gang.prefer]:
        prefer = (*must, gang.prefer)
        found = [(*prefer, level) for level in _below(narrow, gang.prefer)] + [prefer]
    found += [(*must, level) for level in (_below(narrow, gang.require) if gang.require else narrow)]
    return [*found, must]


def scopes(pool_index: PoolIndex, gang: GangRequest) -> list[Labels]:
    """As `routes`, for placements that keep a gang no closer together than it requires or prefers."""
    must: Labels = (gang.require,) if gang.require and gang.require != "node" else ()
    if gang.prefer and gang.prefer != "node" and pool_index.labelled[gang.prefer]:
        return [(*must, gang.prefer), must]
    return [must]


def gather(view: View, cells: Sequence[Cell], count: int, depth: int = 0) -> list[Slot]:
    """`count` nodes that could hold a worker, from as few domains as possible on each level, widest level first.

    The remaining workers go to the tightest domain that holds all of them; if there is none, the domain with the most
    nodes is filled first.
    """
    cells = [cell for cell in cells if view.mask(cell)]
    if len(cells) == 1 or depth == len(view.pool_index.levels):
        return list(islice(view.ranked(cells), count))
    domains: dict[str, list[Cell]] = {}
    for cell in cells:
        domains.setdefault(cell.labels[depth], []).append(cell)
    if len(domains) == 1:
        return gather(view, cells, count, depth + 1)
    left = sorted((view.count(cells), domain) for domain, cells in domains.items())
    found: list[Slot] = []
    while len(found) < count and left:
        missing = count - len(found)
        index = next((i for i, (room, _) in enumerate(left) if room >= missing), None)
        if index is None:
            most = left[-1][0]
            index = next(i for i, (room, _) in enumerate(left) if room == most)
        room, domain = left.pop(index)
        found += gather(view, domains[domain], min(missing, room), depth + 1)
    return found


def _below(narrow: list[str], label: str) -> list[str]:
    """The levels narrower than a label, narrowest first; all levels where the label is no level itself."""
    return narrow[: narrow.index(label)] if label in narrow else narrow
