"""Counts of nodes per domain that could hold an ask, sorted, and updated from the cells that have changed."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from muster.sched.capacity.cells import Cell, Wanted

Domain = tuple[str, ...]  # the values of the labels that its nodes share


class Tally:
    __slots__ = ("cells", "counts", "domains", "exact", "known", "needs", "order", "seen", "where")

    def __init__(self, wanted: Wanted, where: tuple[int, ...], exact: bool, cells: Iterable[Cell], seen: int) -> None:
        self.needs = dict(wanted)
        self.where = where  # indexes of the labels in `Cell.labels`
        # True: count nodes in exactly that bucket, also nodes that lack a label. False: in that bucket or a higher one.
        self.exact = exact
        self.seen = seen  # log entries already processed
        self.domains: dict[Cell, Domain | None] = {}
        self.known: dict[Cell, int] = {}
        self.counts: dict[Domain, int] = {}
        self.cells: dict[Domain, list[Cell]] = {}
        self.order: list[tuple[int, Domain]] = []  # domains with at least one, fewest first
        for cell in cells:
            self._count(cell)
        self.order = sorted((count, domain) for domain, count in self.counts.items() if count)

    def catch_up(self, log: Sequence[Cell]) -> None:
        for cell in set(log[self.seen :]):
            domain = self.domains.get(cell) if cell in self.domains else self._meet(cell)
            if domain is not None:
                before = self.counts[domain]
                self._count(cell)
                self._move(domain, before, self.counts[domain])
        self.seen = len(log)

    def tightest(self, wanted: int) -> int:
        """The index in `order` from which domains have at least `wanted` nodes."""
        return bisect_left(self.order, (wanted,))

    def most(self) -> int:
        return self.order[-1][0] if self.order else 0

    def _meet(self, cell: Cell) -> Domain | None:
        domain: Domain | None = None
        if cell.group in self.needs:
            domain = tuple([cell.labels[index] for index in self.where])
            if not self.exact and not all(domain):
                domain = None
        self.domains[cell] = domain
        if domain is not None:
            self.known[cell] = 0
            self.counts.setdefault(domain, 0)
            self.cells.setdefault(domain, []).append(cell)
        return domain

    def _count(self, cell: Cell) -> None:
        domain = self.domains[cell] if cell in self.domains else self._meet(cell)
        if domain is not None:
            need, masks = self.needs[cell.group], cell.masks
            if self.exact:
                count = masks[need].bit_count()
            else:
                count = 0
                for mask in masks[need:]:
                    count += mask.bit_count()
            self.counts[domain] += count - self.known[cell]
            self.known[cell] = count

    def _move(self, domain: Domain, before: int, after: int) -> None:
        if before != after:
            if before:
                del self.order[bisect_left(self.order, (before, domain))]
            if after:
                insort(self.order, (after, domain))
