"""Free accelerators that no typical request could use, and what is missing beside them."""

from __future__ import annotations

from dataclasses import replace

from muster.core.entities import Node
from muster.core.entities.demand import Shape, TypicalWork
from muster.core.resources import Resources
from muster.core.seat import Seat
from muster.sched.capacity.stranded import Stranded, stranded

GIB = 2**30
ONE = Resources(8_000, 32 * GIB, 1, "GPU")


def node(name: str = "n") -> Node:
    made = Node(name, "main", Resources(64_000, 256 * GIB, 8, "A"))
    made.clear()
    return made


def of(there: Node, *typical: Resources) -> Stranded:
    return stranded([there], TypicalWork(tuple(Shape(ask, 10.0) for ask in typical)))["main"]


def test_nothing_is_stranded_on_a_full_or_an_idle_node() -> None:
    full = node()
    full.take(Seat("n", tuple(range(8))), ONE * 8)
    assert of(full, ONE) == of(node(), ONE) == of(node()) == Stranded()


def test_cpus_are_missing() -> None:
    there = node()
    there.take(Seat("n"), Resources(52_000, 0))
    assert of(there, ONE) == Stranded(cpus=7000)
    assert of(there) == Stranded(cpus=7000)  # nothing is known: the node's own ratio
    assert of(there, ONE, replace(ONE, milli_cpus=1_500)) == Stranded()
    assert of(there, ONE, replace(ONE, milli_cpus=2_000)) == Stranded(cpus=2000)


def test_memory_is_missing() -> None:
    there = node()
    there.take(Seat("n"), Resources(0, 240 * GIB))
    assert of(there, ONE) == Stranded(memory=8000)


def test_the_rest_of_a_device_is_missing() -> None:
    there = node()
    there.take(Seat("n", tuple(range(7))), replace(ONE, accelerators=7))
    there.take(Seat("n", (7,), 700), replace(ONE, milli_cpus=1_000, share=700))
    assert of(there, replace(ONE, share=500)) == Stranded(accelerators=300)
    assert of(there, replace(ONE, share=300)) == Stranded()


def test_rare_requests_and_those_for_other_hardware_do_not_count() -> None:
    there = node()
    there.take(Seat("n"), Resources(60_000, 0))
    small = replace(ONE, milli_cpus=100)
    typical = TypicalWork((Shape(ONE, 999.0), Shape(replace(small, accelerator="B"), 999.0), Shape(small, 1.0)))
    assert stranded([there], typical)["main"] == Stranded(cpus=8000)
