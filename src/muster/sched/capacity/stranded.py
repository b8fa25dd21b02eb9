"""Stranded accelerators: free ones that no typical request could use, by what is missing beside them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Literal

from muster.core.entities import Node
from muster.core.entities.demand import TypicalWork
from muster.core.resources import WHOLE, Resources

Missing = Literal["cpus", "memory", "accelerators"]  # of accelerators: more of them, or more of a shared one
RARE: Final = 0.01  # requests that make up less of the known ones are not typical

_Free = tuple[Resources, int, int, int, tuple[int, ...]]  # all of a node; free accelerators, CPUs, memory, parts


@dataclass(slots=True)
class Stranded:
    """Thousandths of accelerators that are stranded for want of each."""

    cpus: int = 0
    memory: int = 0
    accelerators: int = 0

    @property
    def all(self) -> int:
        return self.cpus + self.memory + self.accelerators

    def add(self, amount: int, missing: Missing) -> None:
        setattr(self, missing, getattr(self, missing) + amount)


class StrandedCounter:
    """Counts nodes one after the other; those with the same hardware and free capacity are looked at once."""

    def __init__(self, typical: TypicalWork) -> None:
        all_ = sum([shape.weight for shape in typical.shapes])
        self._asks = [shape.ask for shape in typical.shapes if shape.weight >= RARE * all_ and shape.ask.accelerators]
        self._known: dict[_Free, tuple[int, Missing]] = {}

    def count(self, node: Node) -> tuple[int, Missing]:
        """Thousandths of accelerators that are stranded on the node, and what is missing beside them."""
        if not node.free_devices and not node.parts:
            return 0, "accelerators"
        whole, parts = node.free_devices.bit_count(), tuple(sorted(node.parts.values()))
        free = (node.total, whole, node.free.milli_cpus, node.free.memory, parts)
        found = self._known.get(free)
        if found is None:
            found = self._known[free] = self._count(*free)
        return found

    def _count(
        self, total: Resources, whole: int, cpus: int, memory: int, parts: tuple[int, ...]
    ) -> tuple[int, Missing]:
        free = whole * WHOLE + sum(parts)
        best: tuple[int, Missing] = (free, "accelerators")
        # While nothing is known of what suits the hardware, work is assumed to ask for the node's own ratio.
        count = max(total.accelerators, 1)
        asks = [ask for ask in self._asks if total.suits(ask)]
        for ask in asks or [Resources(total.milli_cpus // count, total.memory // count, 1, total.accelerator)]:
            found = _left_by(ask, whole, cpus, memory, parts, free)
            if found[0] < best[0]:
                best = found
            if not best[0]:
                break
        else:
            if best[0] == free and asks:  # none of the requests fits: what the most frequent one lacks
                best = _left_by(asks[0], whole, cpus, memory, parts, free)
        return best


def stranded(nodes: Iterable[Node], typical: TypicalWork) -> dict[str, Stranded]:
    """By pool."""
    counter, found = StrandedCounter(typical), dict[str, Stranded]()
    for node in nodes:
        amount, missing = counter.count(node)
        found.setdefault(node.pool, Stranded()).add(amount, missing)
    return found


def _left_by(
    ask: Resources, whole: int, cpus: int, memory: int, parts: tuple[int, ...], free: int
) -> tuple[int, Missing]:
    """What remains of the free accelerators once the node is filled with one request, and what stops another one."""
    if ask.share < WHOLE:
        most = whole * (WHOLE // ask.share) + sum([left // ask.share for left in parts])
    else:
        most = whole // ask.accelerators
    by_cpus = max(cpus, 0) // ask.milli_cpus if ask.milli_cpus else most
    by_memory = max(memory, 0) // ask.memory if ask.memory else most
    fit = min(most, by_cpus, by_memory)
    missing: Missing = "accelerators" if fit == most else "cpus" if by_cpus <= by_memory else "memory"
    return free - fit * ask.accelerators * ask.share, missing
