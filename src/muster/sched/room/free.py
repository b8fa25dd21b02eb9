"""What is free on every node, as an index on which a round plans, takes and undoes without touching the state.

The owner keeps it in step: `set` for each node that has changed in the state and each that is `touched`, then `settle`.
What is found between `mark` and `undo` is not to be remembered: `undo` takes `grew` back as well.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from math import inf

from muster.core.estate import Node
from muster.core.resources import WHOLE, Resources
from muster.core.rules import PoolRules
from muster.core.seat import Seat
from muster.sched.place import Gang
from muster.sched.room.slot import Saved, Slot, parcel
from muster.sched.room.yard import Yard

# `set` is a method below.
Names = set[str]


class Free:
    __slots__ = ("_done", "_grown", "grown", "slots", "yards")

    def __init__(self) -> None:
        self.yards: dict[str, Yard] = {}  # by pool
        self.slots: dict[str, Slot] = {}  # by node
        self._done: list[tuple[Saved, int]] = []  # slots as they were, with what `grew` said
        self.grown: set[str] = set()  # pools in which something became free; whoever looks clears it
        self._grown = 0  # the highest that any `grew` has been: none says the same twice

    def set(self, node: Node, rules: PoolRules, closes: float = inf) -> None:
        """A node that is new or has changed. One that is not healthy holds nothing. `closes`: when it goes away."""
        slot = self.slots.get(node.name)
        if slot is not None and not slot.same(node):
            self.drop(node.name)
            slot = None
        yard = self.yards.get(node.pool)
        if yard is None:
            yard = self.yards[node.pool] = Yard(node.pool, rules)
        elif yard.rules is not rules:
            yard.follow(rules)
        if slot is None:
            slot = self.slots[node.name] = Slot(node)
            slot.update(node, closes)
            yard.add(slot)
            self._grow(yard)
            return
        cpu, memory, mask, room, closed, ill = slot.cpu, slot.memory, slot.mask, slot.room, slot.closes, slot.bucket < 0
        if slot.update(node, closes):
            if closed != closes:
                yard.mind(slot)
            yard.refresh(slot)
            if (
                slot.cpu > cpu or slot.memory > memory or slot.mask & ~mask or slot.room > room or closes > closed
                or (ill and slot.healthy)
            ):  # fmt: skip
                self._grow(yard)

    def drop(self, name: str) -> None:
        slot = self.slots.pop(name, None)
        if slot is not None:
            self.yards[slot.pool].remove(slot)

    def take(self, seats: Iterable[Seat], ask: Resources) -> None:
        slots, done = self.slots, self._done
        for seat in seats:
            slot = slots.get(seat.node)
            if slot is not None:
                yard = self.yards[slot.pool]
                done.append((slot.save(), yard.grew))
                slot.take(seat, ask)
                yard.refresh(slot)

    def give(self, seats: Iterable[Seat], ask: Resources) -> None:
        """As if the one who sits there had left."""
        slots, done = self.slots, self._done
        for seat in seats:
            slot = slots.get(seat.node)
            if slot is not None:
                yard = self.yards[slot.pool]
                done.append((slot.save(), yard.grew))
                slot.give(seat, ask)
                yard.refresh(slot)
                self._grow(yard)

    def mark(self) -> int:
        return len(self._done)

    def undo(self, mark: int) -> None:
        """Rolls back what was taken and given since the mark. A `set` in between ends the mark."""
        done = self._done
        while len(done) > mark:
            saved, grew = done.pop()
            slot = saved[0]
            slot.restore(saved)
            yard = self.yards[slot.pool]
            yard.grew = grew
            if self.slots.get(slot.name) is slot:
                yard.refresh(slot)

    def touched(self) -> Names:
        """Nodes that takes and gives have changed since they were last settled."""
        return {saved[0].name for saved, _ in self._done}

    def settle(self) -> None:
        """Says that the state has caught up: what was done is no longer to be undone."""
        self._done.clear()

    def could(self, gang: Gang) -> bool:
        """Whether it is worth looking: enough nodes of a pool, and of a domain if one is required, have the units."""
        return any(pool in self.yards and self._could(gang, self.yards[pool]) for pool in gang.pools)

    def grew(self, pool: str) -> int:
        """Goes up when anything in the pool becomes free: what did not fit still does not while this is the same."""
        yard = self.yards.get(pool)
        return yard.grew if yard else 0

    def accelerators(self, pool: str) -> tuple[float, float]:
        """Those of healthy nodes: free, and all."""
        yard = self.yards.get(pool)
        return (yard.room / WHOLE, yard.total / WHOLE) if yard else (0.0, 0.0)

    def fitting(self, ask: Resources, pool: str) -> int:
        """Nodes of the pool that have the whole accelerators, if nothing else."""
        yard = self.yards.get(pool)
        return sum([sum(group.counts[need:]) for group, need in yard.wanted(ask)]) if yard else 0

    def _could(self, gang: Gang, yard: Yard) -> bool:
        wanted, missing = yard.wanted(gang.ask), gang.nodes
        share = parcel(gang.ask.share, yard.rules.slices) if gang.ask.share < WHOLE else WHOLE
        for group, need in wanted:
            missing -= sum(group.counts[need:])
            if share < WHOLE:
                missing -= len(group.parts) - bisect_left(group.parts, (share,))
        if missing > 0:
            return False
        if gang.require is None:
            return True
        if gang.require == "node":
            return gang.nodes == 1
        if not yard.know(gang.require):
            return False
        return share < WHOLE or yard.tally(yard.wanted(gang.ask), (gang.require,)).most() >= gang.nodes

    def _grow(self, yard: Yard) -> None:
        self._grown += 1
        yard.grew = self._grown
        self.grown.add(yard.pool)
