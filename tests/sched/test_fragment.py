"""The part of the free accelerators that typical gangs can use."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from functools import cache
from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from clusters import GB, busy, machine
from muster.core.resources import Resources
from muster.sched.capacity.fragment import fragmentation

ONE = Resources(1000, GB, 1, "H100")


def test_whole_nodes_are_all_usable_and_leftovers_are_not() -> None:
    whole = [machine("a"), machine("b")]
    found = fragmentation(whole, [(ONE * 8, 2)])
    assert (found.usable, found.free) == (1.0, 16.0)
    ragged = [busy(machine("a"), 0), busy(machine("b"), 1)]
    assert fragmentation(ragged, [(ONE * 8, 1)]).usable == 0.0
    assert fragmentation(ragged, [(ONE * 8, 1), (ONE, 1)]).usable == 0.5
    assert fragmentation(ragged, [(ONE * 8, 1), *[(ONE, 1)] * 3]).usable == 0.75


def test_gangs_need_nodes_of_their_own() -> None:
    assert fragmentation([machine("a"), busy(machine("b"), *range(6))], [(ONE, 2)]).usable == 4 / 10


def test_parts_of_accelerators() -> None:
    node = busy(machine("a", 2), 0, share=600)
    half = replace(ONE, share=500)
    assert fragmentation([node], [(half, 1)]).free == 1.4
    assert fragmentation([node], [(half, 1)]).usable == 1.0 / 1.4


def test_pools_are_told_apart_and_ill_nodes_left_out() -> None:
    ill = machine("c")
    ill.health = "quarantined"
    nodes = [machine("a"), busy(machine("b", pool="other", kind="A100"), 0), ill, machine("d", 0)]
    found = fragmentation(nodes, [(ONE * 8, 1), (replace(ONE, accelerator="A100") * 4, 1)])
    assert {pool: (there.usable, there.free) for pool, there in found.pools.items()} == {
        "main": (1.0, 8.0),
        "other": (4 / 7, 7.0),
    }
    assert found.usable == (8 + 4) / 15


def test_processors_bind() -> None:
    assert fragmentation([machine("a")], [(replace(ONE, milli_cpus=48_000), 1)]).usable == 0.25


def test_nothing_free_is_nothing_wasted() -> None:
    assert fragmentation([], []).usable == 1.0
    assert fragmentation([busy(machine("a"), *range(8))], [(ONE, 1)]).usable == 1.0


@settings(deadline=None)
@given(room=st.lists(st.integers(0, 3), min_size=1, max_size=5), workers=st.integers(1, 3))
def test_as_many_gangs_as_trying_everything_finds(room: list[int], workers: int) -> None:
    nodes = [busy(machine(f"n{i}", 3), *range(3 - free)) for i, free in enumerate(room)]
    found = fragmentation(nodes, [(ONE, workers)])
    assert (
        found.usable * found.free == 0
        if not sum(room)
        else round(found.usable * found.free) == (most(tuple(room), workers) * workers)
    )


@cache
def most(room: tuple[int, ...], workers: int) -> int:
    best = 0
    for chosen in combinations([i for i, free in enumerate(room) if free], workers):
        left = tuple(sorted(free - (i in chosen) for i, free in enumerate(room)))
        best = max(best, 1 + most(left, workers))
    return best


@settings(deadline=None)
@given(
    held=st.lists(st.lists(st.tuples(st.integers(0, 3), st.sampled_from([1000, 500, 250])), max_size=4), max_size=8),
    asks=st.lists(st.tuples(st.sampled_from([250, 500, 1000]), st.integers(1, 3)), min_size=1, max_size=3),
)
def test_nodes_that_are_alike_count_as_often_as_there_are_of_them(
    held: list[list[tuple[int, int]]], asks: list[tuple[int, int]]
) -> None:
    """Twice the cluster has twice the gangs of one worker, whether its nodes are one object's copies or not."""
    nodes = []
    for index, seats in enumerate(held):
        node = machine(f"n{index}", 4)
        for device, share in dict(seats).items():
            busy(node, device, share=share)
        nodes.append(node)
    typical = [(replace(ONE, share=share), workers) for share, workers in asks]
    one, two = fragmentation(nodes, typical), fragmentation([*nodes, *deepcopy(nodes)], typical)
    assert two.free == 2 * one.free
    single = [(ask, 1) for ask, _ in typical]
    assert fragmentation(nodes, single).usable == fragmentation([*nodes, *deepcopy(nodes)], single).usable
    assert two.usable >= one.usable - 1e-9
