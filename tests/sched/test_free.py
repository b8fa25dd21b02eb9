"""The index of what is free: whatever was done to it, it is as if it had just been built from the nodes."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from clusters import GB, LEVELS, Cluster, busy, clusters, gangs, machine, machines
from muster.core.resources import Resources
from muster.core.rules import PoolRules
from muster.core.seat import Seat
from muster.sched.capacity.free import Free
from muster.sched.place import GangRequest
from muster.sched.placements import PLACEMENTS

ONE = Resources(1000, GB, 1, "H100")
RULES = PoolRules()
SHAPES = [
    GangRequest(Resources(1000, GB, count, kind, share), nodes, ("main", "other"), require=require)
    for count, kind, share in [(0, "", 1000), (1, "H100", 1000), (3, "GPU", 1000), (1, "A100", 250)]
    for nodes, require in [(1, None), (2, "rack"), (2, "switch"), (3, None)]
]


def picture(free: Free) -> dict[str, object]:
    """All that the index says, in a form that does not depend on what was done to it."""
    slots = {
        slot.name: (slot.cpu, slot.memory, slot.mask, slot.parts, slot.healthy, slot.closes, slot.bucket, slot.room)
        for slot in free.slots.values()
    }
    pools = {}
    for pool in ("main", "other"):
        pool_index = free.pool_indexes.get(pool)
        if pool_index is not None and pool_index.slots:
            parts = {(kind, part[:3]) for kind, group in pool_index.groups.items() for part in group.parts}
            closing = {slot.name for group in pool_index.groups.values() for slot in group.closing}
            pools[pool] = (free.accelerators(pool), parts, closing, {k for k, n in pool_index.labelled.items() if n})
    could = [free.could(gang) for gang in SHAPES]
    seats = [PLACEMENTS.get(name).place(gang, free) for gang in SHAPES for name in PLACEMENTS]
    return {"slots": slots, "pools": pools, "could": could, "seats": seats}


class InStep(RuleBasedStateMachine):
    """Sets, drops, takes and gives in any order, against nodes on which the same is done."""

    @initialize(there=clusters())
    def begin(self, there: Cluster) -> None:
        self.there, self.free = there, there.free()
        self.sitting: list[tuple[tuple[Seat, ...], Resources]] = []

    @rule(gang=gangs(), name=st.sampled_from(sorted(PLACEMENTS)))
    def take(self, gang: GangRequest, name: str) -> None:
        seats = PLACEMENTS.get(name).place(gang, self.free)
        if seats is not None:
            self.free.take(seats, gang.ask)
            for seat in seats:
                self.there.node(seat.node).take(seat, gang.ask)
            self.sitting.append((seats, gang.ask))

    @rule(which=st.integers(0, 20))
    def give(self, which: int) -> None:
        if self.sitting:
            seats, ask = self.sitting.pop(which % len(self.sitting))
            self.free.give(seats, ask)
            for seat in seats:
                for node in self.there.nodes:
                    if node.name == seat.node:
                        node.give(seat, ask)

    @rule(wanted=st.lists(gangs(), max_size=3))
    def try_and_undo(self, wanted: list[GangRequest]) -> None:
        grew = [self.free.grew(pool) for pool in ("main", "other")]
        mark = self.free.mark()
        for seats, ask in self.sitting:
            self.free.give(seats, ask)
        for gang in wanted:
            seats = PLACEMENTS.get("pack").place(gang, self.free)
            if seats is not None:
                self.free.take(seats, gang.ask)
        self.free.undo(mark)
        assert grew == [self.free.grew(pool) for pool in ("main", "other")]

    @rule(
        which=st.integers(0, 20), health=st.sampled_from(["healthy", "suspect"]), closes=st.sampled_from([inf, 100.0])
    )
    def turn(self, which: int, health: str, closes: float) -> None:
        if self.there.nodes:
            node = self.there.nodes[which % len(self.there.nodes)]
            node.health = health
            self.there.closes[node.name] = closes
            self.free.set(node, self.there.rules, closes)

    @rule(node=st.integers(0, 15).flatmap(lambda i: machines(f"n{i}")))
    def join(self, node) -> None:
        """Under a name that may be known: another machine then, on which nobody sits."""
        self.leave(node.name)
        self.there.nodes.append(node)
        self.free.set(node, self.there.rules)

    @rule(which=st.integers(0, 20))
    def drop(self, which: int) -> None:
        if self.there.nodes:
            name = self.there.nodes[which % len(self.there.nodes)].name
            self.leave(name)
            self.free.drop(name)

    @rule(levels=st.sampled_from([LEVELS, ("rack", "switch")]))
    def new_rules(self, levels: tuple[str, ...]) -> None:
        self.there.rules = PoolRules(levels=levels)
        for node in self.there.nodes:
            self.free.set(node, self.there.rules, self.there.closes.get(node.name, inf))

    def leave(self, name: str) -> None:
        self.there.nodes = [node for node in self.there.nodes if node.name != name]
        self.there.closes.pop(name, None)
        self.sitting = [(seats, ask) for seats, ask in self.sitting if name not in {seat.node for seat in seats}]

    @invariant()
    def as_if_built_anew(self) -> None:
        assert picture(self.free) == picture(self.there.free())


InStep.TestCase.settings = settings(max_examples=30, stateful_step_count=12, deadline=None)
TestInStep = InStep.TestCase


def two() -> Free:
    free = Free()
    free.set(machine("a"), RULES)
    free.set(busy(machine("b"), 0), RULES)
    return free


def test_what_is_touched_until_it_is_settled() -> None:
    free = two()
    mark = free.mark()
    free.take([Seat("a", (0,))], ONE)
    free.give([Seat("b", (0,)), Seat("nobody", (0,))], ONE)
    assert free.touched() == {"a", "b"}
    assert free.accelerators("main") == (15.0, 16.0)
    free.undo(mark)
    assert free.touched() == set()
    free.take([Seat("a", (1,), 250)], ONE)
    assert free.accelerators("main") == (14.75, 16.0)
    free.settle()
    assert free.touched() == set()
    assert free.accelerators("main") == (14.75, 16.0)
    assert free.accelerators("elsewhere") == (0.0, 0.0)


@pytest.mark.parametrize("change", ["free", "healthy", "joined", "closes", "give", "part", "memory"])
def test_it_grows_when_something_becomes_free(change: str) -> None:
    free, node = Free(), busy(busy(machine("a"), 0), 1, share=500)
    node.health = "suspect" if change == "healthy" else "healthy"
    free.set(node, RULES, 50.0)
    grew = free.grew("main")
    if change == "give":
        free.give([Seat("a", (0,))], ONE)
    elif change == "joined":
        free.set(machine("b"), RULES)
    else:
        node.health = "healthy"
        if change == "free":
            node.give(Seat("a", (0,)), ONE)
        elif change == "part":
            node.give(Seat("a", (1,), 250), replace(ONE, milli_cpus=0, memory=0))
        elif change == "memory":
            node.free = replace(node.free, memory=node.free.memory + 1)
        free.set(node, RULES, inf if change == "closes" else 50.0)
    assert free.grew("main") > grew


def test_what_a_used_spare_has_left_becomes_free() -> None:
    free, keeping = Free(), PoolRules(spares=1)
    free.set(machine("a"), keeping)
    assert [slot.name for slot in free.kept("main")] == ["a"]
    grew = free.grew("main")
    free.set(busy(machine("a"), 0), keeping)
    assert free.kept("main") == frozenset()
    assert free.grew("main") > grew
    grew = free.grew("main")
    free.set(busy(machine("a"), 0, 1), keeping)  # it was no spare any more
    assert free.grew("main") == grew


def test_it_does_not_grow_when_nothing_does() -> None:
    free = two()
    grew = free.grew("main")
    free.set(busy(machine("a"), 3), RULES)
    free.set(machine("c", pool="other"), RULES)
    free.take([Seat("b", (2,))], ONE)
    free.drop("a")
    free.drop("a")
    assert free.grew("main") == grew
    assert free.grew("elsewhere") == 0


def test_an_ill_node_holds_nothing_and_what_leaves_it_is_known_when_it_is_well() -> None:
    free, node = Free(), busy(machine("a"), 0)
    node.health = "draining"
    free.set(node, RULES)
    assert free.accelerators("main") == (0.0, 0.0)
    free.give([Seat("a", (0,))], ONE)
    node.give(Seat("a", (0,)), ONE)
    assert not free.could(GangRequest(ONE, 1, ("main",)))
    node.health = "healthy"
    free.set(node, RULES)
    assert free.accelerators("main") == (8.0, 8.0)


def test_could_is_told_by_domains_that_are_required() -> None:
    free = Free()
    for i in range(4):
        free.set(machine(f"n{i}", rack=f"r{i // 2}"), RULES)
    gang = GangRequest(ONE, 3, ("main",))
    assert free.could(gang)
    assert not free.could(replace(gang, require="rack"))
    assert free.could(replace(gang, require="rack", nodes=2))
    assert not free.could(replace(gang, require="nothing"))
    assert not free.could(replace(gang, require="node"))
    assert not free.could(replace(gang, pools=("other",)))


@given(there=clusters(), many=st.integers(1, 3000))
@settings(max_examples=5, deadline=None)
def test_long_use_changes_nothing(there: Cluster, many: int) -> None:
    free = there.free()
    before = picture(free)
    for _ in range(many):
        for node in there.nodes:
            seat = Seat(node.name, tuple(i for i in range(4) if node.free_devices >> i & 1))
            free.take([seat], ONE)
            free.give([seat], ONE)
    assert picture(free) == before
