"""Deals the workers of a gang out over domains, level by level; each worker goes to the domain with the lowest turn."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heapify, heappop, heapreplace
from itertools import islice
from operator import itemgetter

from muster.core.seat import Seat
from muster.sched.capacity.cells import Cell
from muster.sched.capacity.gather import scopes
from muster.sched.capacity.slot import Slot
from muster.sched.capacity.view import View
from muster.sched.place import GangRequest

Turn = Callable[["Branch"], tuple[float, float]]  # the lowest is next; ties by name
Rank = Callable[[View, Sequence[Cell]], Iterable[Slot]]  # order of nodes in a domain without subdomains


class Branch:
    """A domain, and how many workers it has received."""

    __slots__ = ("_count", "cells", "dealt", "each", "room", "total", "view")

    def __init__(self, view: View, cells: Sequence[Cell]) -> None:
        ask = view.gang.ask
        self.view, self.cells, self.dealt, self._count = view, cells, 0, -1
        self.room = sum([cell.room for cell in cells])
        self.total = sum([cell.total for cell in cells])
        self.each = ask.accelerators * view.share or ask.milli_cpus

    def count(self) -> int:
        """Nodes that could hold a worker before any was dealt."""
        if self._count < 0:
            self._count = self.view.count(self.cells)
        return self._count

    def part(self) -> float:
        """The fraction of the domain that stays free."""
        return (self.room - self.dealt * self.each) / self.total if self.total else 0.0


def deal(view: View, gang: GangRequest, turn: Turn, rank: Rank) -> tuple[Seat, ...] | None:
    """Seats in a required or, if possible, preferred domain; of several domains, the one with the lowest turn."""
    for labels in scopes(view.pool_index, gang):
        if labels:
            domains = sorted(view.domains(labels, gang.nodes), key=itemgetter(1))
            found = [view.within(labels, domain) for _, domain in domains]
        else:
            found = [view.cells()] if view.enough(gang.nodes) else []
        if len(found) > 1:
            found.sort(key=lambda cells: turn(Branch(view, cells)))
        if found:
            return view.seats(list(islice(dealt(view, found[0], turn, rank), gang.nodes)))
    return None


def dealt(view: View, cells: Sequence[Cell], turn: Turn, rank: Rank, depth: int = 0) -> Iterator[Slot]:
    """The nodes that could hold a worker, in the order in which workers are dealt."""
    if len(cells) == 1 or depth == len(view.pool_index.levels):
        yield from rank(view, cells)
        return
    domains: dict[str, list[Cell]] = {}
    for cell in cells:
        domains.setdefault(cell.labels[depth], []).append(cell)
    heap = []
    for name, within in domains.items():
        branch = Branch(view, within)
        heap.append((turn(branch), name, branch, dealt(view, within, turn, rank, depth + 1)))
    heapify(heap)
    while heap:
        _, name, branch, slots = heap[0]
        slot = next(slots, None)
        if slot is None:
            heappop(heap)
        else:
            branch.dealt += 1
            heapreplace(heap, (turn(branch), name, branch, slots))
            yield slot
