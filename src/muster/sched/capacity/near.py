"""Placement near given nodes: on them, then in the same narrow domain, then in wider domains, then anywhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from muster.core.resources import WHOLE
from muster.core.seat import Seat
from muster.sched.capacity.cells import Cell
from muster.sched.capacity.free import Free
from muster.sched.capacity.gather import gather, pack, routes, scopes
from muster.sched.capacity.pool_index import PoolIndex
from muster.sched.capacity.single import fullest, sharing, single
from muster.sched.capacity.slot import Slot
from muster.sched.capacity.view import View, views
from muster.sched.place import GangRequest

Scores = Mapping[Slot, int]  # node to be near to → its weight
Score = Callable[[PoolIndex, frozenset[str]], Scores]


def near(gang: GangRequest, free: Free, score: Score) -> tuple[Seat, ...] | None:
    if not gang.near:
        return pack(gang, free)
    if gang.nodes == 1:
        return single(gang, free, lambda view: _one(view, score(view.pool_index, gang.near)))
    for view in views(gang, free):
        scores = score(view.pool_index, gang.near)
        for labels in scopes(view.pool_index, gang):
            if labels:
                cells = _scope(view, gang, labels, scores)
                if cells:
                    return view.seats(_nearest(view, gang, cells, scores))
            elif view.enough(gang.nodes):
                return view.seats(_nearest(view, gang, None, scores))
    return None


def _one(view: View, scores: Scores) -> Iterator[Slot]:
    yield from _best([slot for slot in scores if view.reaches(slot)], view, scores)
    for around in _around(view, None, scores):
        if view.share < WHOLE:
            inside = set(around)
            yield from (slot for slot in sharing(view) if slot.cell in inside)
        yield from view.ranked(around)
    yield from fullest(view)


def _scope(view: View, gang: GangRequest, labels: tuple[str, ...], scores: Scores) -> Sequence[Cell]:
    """The domain that holds the gang and has the highest total score; of several, the tightest one."""
    totals: dict[tuple[str, ...], int] = {}
    for slot, score in scores.items():
        domain = tuple(slot.labels.get(label, "") for label in labels)
        totals[domain] = totals.get(domain, 0) + score
    found = [(-totals.get(domain, 0), count, domain) for count, domain in view.domains(labels, gang.nodes)]
    return view.within(labels, min(found)[2]) if found else ()


def _nearest(view: View, gang: GangRequest, cells: Sequence[Cell] | None, scores: Scores) -> list[Slot]:
    """Slots from these cells, or from all: the scored nodes themselves, then around them; the rest is packed."""
    inside = scores if cells is None else {slot for slot in scores if slot.cell in set(cells)}
    chosen = _best([slot for slot in inside if view.could_take(slot)], view, scores)[: gang.nodes]
    for slot in chosen:
        view.choose(slot)
    for around in _around(view, cells, scores):
        if len(chosen) < gang.nodes:
            found = gather(view, around, gang.nodes - len(chosen))
            for slot in found:
                view.choose(slot)
            chosen += found
    rest = gang.nodes - len(chosen)
    if rest and cells is None:
        # The pool has enough nodes, so at least the last route, anywhere, holds the rest.
        tightest = (view.tightest(labels, rest) for labels in routes(view.pool_index, gang))
        cells = next(domain for domain in tightest if domain is not None)
    return chosen + gather(view, cells or (), rest) if rest else chosen


def _best(slots: list[Slot], view: View, scores: Scores) -> list[Slot]:
    """Highest score first, then the fullest; nodes to avoid last."""
    avoid = view.gang.avoid
    return sorted(slots, key=lambda slot: (slot.name in avoid, -scores[slot], slot.bucket, slot.key))


def _around(view: View, cells: Sequence[Cell] | None, scores: Scores) -> Iterator[list[Cell]]:
    """The cells that share a topology level with one of the scored nodes, narrowest level first."""
    levels = view.pool_index.levels
    for depth in reversed(range(len(levels))):
        there = sorted({slot.cell.labels[depth] for slot in scores} - {""})
        if cells is None:
            known = view.pool_index.tally(view.wanted, (levels[depth],)).cells
            yield [cell for value in there for cell in known.get((value,), ())]
        else:
            yield [cell for cell in cells if cell.labels[depth] in there]
