"""Index of the free capacity of all nodes, on which a round plans, takes and undoes without changing the state.

The owner keeps it up to date: `set` for each node that changed in the state and for each `touched` node, then `settle`.
Results found between `mark` and `undo` must not be cached: `undo` also resets `grew`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from math import inf

from muster.core.entities import Node
from muster.core.entities.demand import UNKNOWN, TypicalWork
from muster.core.resources import WHOLE, Resources
from muster.core.rules import PoolRules
from muster.core.seat import Seat
from muster.sched.capacity.pool_index import PoolIndex
from muster.sched.capacity.slot import Saved, Slot, round_to_slice
from muster.sched.place import GangRequest

# `set` is a method below.
Names = set[str]


class Free:
    __slots__ = ("_done", "_grown", "_typical", "grown", "hardware", "pool_indexes", "slots")

    def __init__(self) -> None:
        self.pool_indexes: dict[str, PoolIndex] = {}  # by pool
        self.slots: dict[str, Slot] = {}  # by node
        self._done: list[tuple[Saved, int]] = []  # saved slots, with the value of `grew`
        self.grown: set[str] = set()  # pools in which something became free; the reader clears it
        self.hardware = 0  # a counter that rises when a node comes, goes, falls ill, recovers or closes otherwise
        self._typical = UNKNOWN  # what work asks for
        self._grown = 0  # the highest `grew` so far: no value is used twice

    def set(self, node: Node, rules: PoolRules, closes: float = inf) -> None:
        """Adds or updates a node. An unhealthy node can hold nothing. `closes`: when its maintenance begins."""
        slot = self.slots.get(node.name)
        if slot is not None and not slot.same(node):
            self.drop(node.name)
            slot = None
        pool_index = self.pool_indexes.get(node.pool)
        if pool_index is None:
            pool_index = self.pool_indexes[node.pool] = PoolIndex(node.pool, rules)
            pool_index.set_typical(self._typical)
        elif pool_index.rules is not rules:
            self.hardware += 1
            pool_index.set_rules(rules)
        if slot is None:
            slot = self.slots[node.name] = Slot(node)
            slot.update(node, closes)
            pool_index.add(slot)
            self.hardware += 1
            self._grow(pool_index)
            return
        cpu, memory, mask, room, closed, ill = slot.cpu, slot.memory, slot.mask, slot.room, slot.closes, slot.bucket < 0
        # What a spare has left is open to all once it is used.
        kept = pool_index.spares and slot in pool_index.kept()
        if slot.update(node, closes):
            if closed != closes:
                pool_index.update_closing(slot)
            if closed != closes or ill == slot.healthy:
                self.hardware += 1
            pool_index.refresh(slot)
            if (
                slot.cpu > cpu or slot.memory > memory or slot.mask & ~mask or slot.room > room or closes > closed
                or (ill and slot.healthy) or kept
            ):  # fmt: skip
                self._grow(pool_index)

    def set_typical(self, typical: TypicalWork) -> None:
        """What work typically asks for from now on: it changes where single workers go, and not what fits."""
        if typical is not self._typical:
            self._typical = typical
            for pool_index in self.pool_indexes.values():
                pool_index.set_typical(typical)

    def drop(self, name: str) -> None:
        slot = self.slots.pop(name, None)
        if slot is not None:
            self.hardware += 1
            self.pool_indexes[slot.pool].remove(slot)

    def take(self, seats: Iterable[Seat], ask: Resources) -> None:
        slots, done = self.slots, self._done
        for seat in seats:
            slot = slots.get(seat.node)
            if slot is not None:
                pool_index = self.pool_indexes[slot.pool]
                done.append((slot.save(), pool_index.grew))
                kept = pool_index.spares and slot in pool_index.kept()
                slot.take(seat, ask)
                pool_index.refresh(slot)
                if kept:
                    self._grow(pool_index)

    def hold(self, name: str, mask: int, milli_cpus: int, memory: int) -> None:
        """Takes what several gangs will have on a node, whole accelerators as a mask, at once."""
        slot = self.slots.get(name)
        if slot is not None:
            pool_index = self.pool_indexes[slot.pool]
            self._done.append((slot.save(), pool_index.grew))
            kept = pool_index.spares and slot in pool_index.kept()
            slot.cpu -= milli_cpus
            slot.memory -= memory
            slot.mask &= ~mask
            pool_index.refresh(slot)
            if kept:
                self._grow(pool_index)

    def give(self, seats: Iterable[Seat], ask: Resources) -> None:
        """Frees the seats, as if the gang there had left."""
        slots, done = self.slots, self._done
        for seat in seats:
            slot = slots.get(seat.node)
            if slot is not None:
                pool_index = self.pool_indexes[slot.pool]
                done.append((slot.save(), pool_index.grew))
                slot.give(seat, ask)
                pool_index.refresh(slot)
                self._grow(pool_index)

    @contextmanager
    def fixed_spares(self) -> Iterator[None]:
        """Within it, nodes that become free do not join the spares: a preemption clears no more nodes than it needs."""
        fixed = [one for one in self.pool_indexes.values() if one.spares and not one.fixed]
        for pool_index in fixed:
            pool_index.fix_spares(True)
        try:
            yield
        finally:
            for pool_index in fixed:
                pool_index.fix_spares(False)

    def mark(self) -> int:
        return len(self._done)

    def undo(self, mark: int) -> None:
        """Rolls back all `take` and `give` calls since the mark. A `set` in between invalidates the mark."""
        done = self._done
        while len(done) > mark:
            saved, grew = done.pop()
            slot = saved[0]
            slot.restore(saved)
            pool_index = self.pool_indexes[slot.pool]
            pool_index.grew = grew
            if self.slots.get(slot.name) is slot:
                pool_index.refresh(slot)

    def touched(self) -> Names:
        """Nodes changed by `take` and `give` since the last `settle`."""
        return {saved[0].name for saved, _ in self._done}

    def settle(self) -> None:
        """The state has caught up: earlier `take` and `give` calls can no longer be undone."""
        self._done.clear()

    def could(self, gang: GangRequest) -> bool:
        """A quick check before placement: whether enough nodes of a pool, or of a required domain, have free units."""
        for pool in gang.pools:
            pool_index = self.pool_indexes.get(pool)
            if pool_index is not None and self._could(gang, pool_index):
                return True
        return False

    def grew(self, pool: str) -> int:
        """A counter that rises when anything in the pool becomes free. While it is unchanged, what did not fit still
        does not."""
        pool_index = self.pool_indexes.get(pool)
        return pool_index.grew if pool_index else 0

    def accelerators(self, pool: str) -> tuple[float, float]:
        """Accelerators of the pool's healthy nodes: free, and all."""
        pool_index = self.pool_indexes.get(pool)
        return (pool_index.room / WHOLE, pool_index.total / WHOLE) if pool_index else (0.0, 0.0)

    def kept(self, pool: str, spares: str = "") -> frozenset[Slot]:
        """The spares of the pool, unless `spares` names it: nodes that a gang may not use."""
        pool_index = self.pool_indexes.get(pool)
        return pool_index.kept(spares) if pool_index else frozenset()

    def fitting(self, ask: Resources, pool: str) -> int:
        """Nodes of the pool with enough wholly free accelerators; CPUs and memory are not checked."""
        pool_index = self.pool_indexes.get(pool)
        return sum([sum(group.counts[need:]) for group, need in pool_index.wanted(ask)]) if pool_index else 0

    def _could(self, gang: GangRequest, pool_index: PoolIndex) -> bool:
        wanted, missing = pool_index.wanted(gang.ask), gang.nodes
        share = round_to_slice(gang.ask.share, pool_index.rules.slices) if gang.ask.share < WHOLE else WHOLE
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
        if not pool_index.index_label(gang.require):
            return False
        return share < WHOLE or pool_index.tally(pool_index.wanted(gang.ask), (gang.require,)).most() >= gang.nodes

    def _grow(self, pool_index: PoolIndex) -> None:
        self._grown += 1
        pool_index.grew = self._grown
        self.grown.add(pool_index.pool)
