"""What it takes at least to clear a node by preemption, kept until something on the node becomes easier to preempt.

Most requests for a node are below it. For the others, the gangs on the node are looked at one by one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf

from muster.sched.capacity.slot import Slot, mask_of
from muster.sched.failed_preemptions import EVERYWHERE
from muster.sched.running_gangs import RunningGangs


@dataclass(slots=True)
class NodePrices:
    gangs: RunningGangs
    _known: dict[str, tuple[int, list[float]]] = field(default_factory=dict)  # node → position in the log, values
    # Pool → the end of its log, and until it grows: (position in the log, accelerators) → the lowest value.
    _cheapest: dict[str, tuple[int, dict[tuple[int, int], float]]] = field(default_factory=dict)

    def least(self, slot: Slot, need: int, now: float) -> float:
        """A job whose value, by the margin, is not above this can't clear the node for `need` accelerators by rank.

        It may be too low, never too high: values may have risen since, and there are more reasons not to preempt.
        """
        log = self.gangs.easier_nodes[slot.pool]
        known = self._known.get(slot.name)
        if known is None or known[0] < max(log.last.get(slot.name, 0), log.last.get(EVERYWHERE, 0)):
            known = self._known[slot.name] = log.end, self._look(slot, now)
        return known[1][need] if need < len(known[1]) else inf

    def cheapest(self, slots: Mapping[str, Slot], pool: str, seen: int, need: int, now: float) -> float:
        """The lowest `least` of the nodes that the pool's log names from position `seen` on; -inf where it does not say
        which nodes these are. It is found once for all streams that failed up to there."""
        log = self.gangs.easier_nodes[pool]
        known = self._cheapest.get(pool)
        if known is None or known[0] != log.end:
            known = self._cheapest[pool] = log.end, {}
        found = known[1].get((seen, need))
        if found is None:
            names = log.since(seen)
            if names is None or EVERYWHERE in names:
                found = -inf
            else:
                there = [slots[name] for name in dict.fromkeys(names) if name in slots]
                found = min([self.least(slot, need, now) for slot in there], default=inf)
            known[1][seen, need] = found
        return found

    def _look(self, slot: Slot, now: float) -> list[float]:
        """For each number of accelerators: the highest value of the gangs that have to leave, the lowest first."""
        mask, found = slot.mask, [-inf] * (slot.mask.bit_count() + 1)
        each = [
            (known.value, mask_of(seat.devices))
            for known in self.gangs.on_node(slot.name)
            if known.value < inf and known.exposed <= now and not known.leaving
            for seat in known.seats
            if seat.node == slot.name
        ]
        for value, held in sorted(each):
            mask |= held
            found += [value] * (mask.bit_count() + 1 - len(found))
        return found
