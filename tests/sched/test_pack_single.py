"""Single workers go where they take the least away from what typical work could still use."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from muster.core.entities import Node
from muster.core.entities.demand import Shape, TypicalWork
from muster.core.resources import WHOLE, Resources
from muster.core.rules import PoolRules
from muster.core.seat import Seat
from muster.sched.capacity.free import Free
from muster.sched.place import GangRequest
from muster.sched.placements import PLACEMENTS

GIB = 2**30
ROUND = Resources(8_000, 32 * GIB, 1, "GPU")


def machine(name: str, cpus: int, accelerators: int, kind: str = "A") -> Node:
    node = Node(name, "main", Resources(cpus * 1000, 256 * GIB, accelerators, kind if accelerators else ""))
    node.clear()
    return node


def placed(nodes: list[Node], ask: Resources, typical: TypicalWork | None = None) -> Seat | None:
    free = Free()
    for node in nodes:
        free.set(node, PoolRules())
    if typical is not None:
        free.set_typical(typical)
    seats = PLACEMENTS.get("pack").place(GangRequest(ask, 1, ("main",)), free)
    return seats[0] if seats else None


def test_work_without_accelerators_leaves_the_cpus_beside_free_ones() -> None:
    full, idle = machine("full", 64, 8), machine("idle", 64, 8)
    full.take(Seat("full", tuple(range(8))), Resources(32_000, 0, 8, "A"))
    seat = placed([idle, full], Resources(16_000, 8 * GIB))
    assert seat is not None
    assert seat.node == "full"


def test_work_with_many_cpus_goes_where_they_are_plentiful() -> None:
    tight, wide = machine("a-tight", 64, 8), machine("b-wide", 256, 8)
    tight.take(Seat("a-tight", (0, 1)), ROUND)  # the fuller one
    wide.take(Seat("b-wide", (0,)), ROUND)
    seat = placed([tight, wide], Resources(24_000, 8 * GIB, 1, "GPU"))
    assert seat is not None
    assert seat.node == "b-wide"


def test_without_a_difference_it_is_the_fullest_node() -> None:
    idle, used = machine("a", 64, 8), machine("b", 64, 8)
    used.take(Seat("b", (0, 1)), replace(ROUND, accelerators=2))
    seat = placed([idle, used], ROUND)
    assert seat is not None
    assert seat.node == "b"


def test_a_node_that_typical_work_needs_whole_is_left_whole() -> None:
    """Of two nodes with 4 and 5 free accelerators, the fuller one is just what typical work of 4 needs.

    The worker asks for more CPUs than a node has for each accelerator: otherwise the fullest node is taken.
    """
    four, five = machine("four", 64, 8), machine("five", 64, 8)
    four.take(Seat("four", (0, 1, 2, 3)), replace(ROUND, milli_cpus=24_000, accelerators=4))
    five.take(Seat("five", (0, 1, 2)), replace(ROUND, milli_cpus=20_000, accelerators=3))
    typical = TypicalWork((Shape(Resources(32_000, 0, 4, "GPU"), 90.0), Shape(ROUND, 10.0)), 1)
    seat = placed([four, five], replace(ROUND, milli_cpus=8_500), typical)
    assert seat is not None
    assert seat.node == "five"


def test_a_part_goes_where_what_is_left_over_is_of_use() -> None:
    """0.2 beside 0.5 leaves 0.3, for which there is no work; beside 0.3 it leaves 0.5."""
    node = machine("n", 64, 4)
    node.take(Seat("n", (0,), 500), replace(ROUND, milli_cpus=1_000, share=500))
    node.take(Seat("n", (1,), 300), replace(ROUND, milli_cpus=1_000, share=300))
    typical = TypicalWork(
        (Shape(Resources(1_000, 0, 1, "GPU", 500), 90.0), Shape(Resources(1_000, 0, 1, "GPU", 200), 1.0)), 1
    )
    seat = placed([node], Resources(1_000, 0, 1, "GPU", 200), typical)
    assert seat is not None
    assert seat.devices == (1,)


@pytest.mark.parametrize("seed", range(8))
def test_an_index_that_follows_changes_places_as_a_new_one(seed: int) -> None:
    """Whatever came, went, was undone or was learnt in between, and it places wherever a node holds the worker."""
    draw = random.Random(seed)
    nodes = {
        node.name: node
        for i in range(24)
        for node in [machine(f"n{i}", draw.choice([16, 64, 96]), draw.choice([0, 2, 4, 8]), draw.choice("AB"))]
    }
    asks = [
        Resources(draw.randrange(1, 24) * 1000, draw.randrange(1, 32) * GIB, count, "GPU" if count else "", share)
        for count, share in draw.choices([(0, WHOLE), (1, WHOLE), (1, 300), (1, 550), (2, WHOLE), (4, WHOLE)], k=12)
    ]
    free, rules, held = Free(), PoolRules(), list[tuple[Seat, Resources]]()
    typical = TypicalWork()
    for node in nodes.values():
        free.set(node, rules)
    for step in range(250):
        if step % 60 == 30:
            typical = TypicalWork(tuple(Shape(ask, draw.random() * 50) for ask in draw.sample(asks, 5)), step)
            free.set_typical(typical)
        if step % 50 == 49:
            gone = nodes.pop(draw.choice(sorted(nodes)))
            free.drop(gone.name)
            held = [(seat, ask) for seat, ask in held if seat.node != gone.name]
        ask = draw.choice(asks)
        gang = GangRequest(ask, 1, ("main",))
        anew = Free()
        for node in draw.sample(list(nodes.values()), len(nodes)):
            anew.set(node, rules)
        anew.set_typical(typical)
        seats = PLACEMENTS.get("pack").place(gang, free)
        assert seats == PLACEMENTS.get("pack").place(gang, anew)
        mark = free.mark()
        if seats is not None:
            free.take(seats, ask)
            PLACEMENTS.get("pack").place(gang, free)
            free.undo(mark)
            assert PLACEMENTS.get("pack").place(gang, free) == seats
            nodes[seats[0].node].take(seats[0], ask)
            held.append((seats[0], ask))
        else:
            assert not any(_holds(node, ask) for node in nodes.values())
        if held and draw.random() < 0.4:
            seat, ask = held.pop(draw.randrange(len(held)))
            nodes[seat.node].give(seat, ask)
            free.set(nodes[seat.node], rules)
        if seats is not None:
            free.set(nodes[seats[0].node], rules)


def _holds(node: Node, ask: Resources) -> bool:
    if node.free.milli_cpus < ask.milli_cpus or node.free.memory < ask.memory:
        return False
    whole = node.free_devices.bit_count()
    return whole >= ask.accelerators or (ask.share < WHOLE and any(left >= ask.share for left in node.parts.values()))
