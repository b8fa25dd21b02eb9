"""What every placement keeps: all or nothing, a node of its own for each worker, nothing that is not free, and no "no"
where trying everything finds a way; then what each of them is for."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clusters import GB, Cluster, busy, clusters, gangs, machine
from muster.core.entities import Node
from muster.core.resources import Resources
from muster.core.rules import PoolRules
from muster.sched.capacity.free import Free
from muster.sched.place import GangRequest
from muster.sched.placements import PLACEMENTS

ONE = Resources(1000, GB, 1, "H100")
ALL = Resources(8000, 8 * GB, 8, "H100")


def where(placement: str, gang: GangRequest, free: Free) -> list[str]:
    seats = PLACEMENTS.get(placement).place(gang, free)
    return [seat.node for seat in seats] if seats else []


def cluster(*nodes: Node, slices: int = 1000) -> Free:
    return Cluster(list(nodes), {}, PoolRules(slices=slices)).free()


def one_kind(gang: GangRequest, there: Cluster) -> bool:
    return len({(n.total.accelerator, n.total.accelerator_memory) for n in there.nodes if n.total.suits(gang.ask)}) < 2


@pytest.mark.parametrize("name", sorted(PLACEMENTS))
class TestPlacement:
    @settings(max_examples=40, deadline=None)
    @given(there=clusters(), gang=gangs())
    def test_all_or_nothing(self, name: str, there: Cluster, gang: GangRequest) -> None:
        free = there.free()
        seats = PLACEMENTS.get(name).place(gang, free)
        pool = there.first_pool(gang)
        if seats is None:
            assert pool is None
        else:
            there.check(gang, seats)
            assert there.node(seats[0].node).pool == pool
            assert free.could(gang)
            if gang.require not in (None, "node"):
                assert len({there.node(seat.node).labels.get(gang.require) for seat in seats} - {None}) == 1

    @settings(max_examples=40, deadline=None)
    @given(there=clusters(), gang=gangs())
    def test_what_is_preferred_is_had_where_it_can_be(self, name: str, there: Cluster, gang: GangRequest) -> None:
        gang = replace(gang, prefer="rack", avoid=frozenset(), nodes=max(gang.nodes, 2))
        seats = PLACEMENTS.get(name).place(gang, there.free())
        if seats is not None and gang.ask.accelerators and one_kind(gang, there):
            pool = there.node(seats[0].node).pool
            labels = (gang.require, "rack") if gang.require else ("rack",)
            if there.domains(gang, pool, labels):
                assert len({there.node(seat.node).labels.get("rack") for seat in seats} - {None}) == 1

    @settings(max_examples=40, deadline=None)
    @given(there=clusters(), gang=gangs())
    def test_nodes_to_avoid_are_taken_when_there_are_no_others(
        self, name: str, there: Cluster, gang: GangRequest
    ) -> None:
        seats = PLACEMENTS.get(name).place(gang, there.free())
        if seats is not None and gang.ask.accelerators and one_kind(gang, there):
            pool = there.node(seats[0].node).pool
            rest = Cluster([n for n in there.nodes if n.name not in gang.avoid], there.closes, there.rules)
            if rest.domains(gang, pool, (gang.require,) if gang.require else ()):
                assert not gang.avoid & {seat.node for seat in seats}

    @settings(max_examples=40, deadline=None)
    @given(there=clusters(), gang=gangs(), others=st.lists(gangs(), max_size=3), draw=st.randoms(use_true_random=False))
    def test_the_same_nodes_give_the_same_seats(
        self, name: str, there: Cluster, gang: GangRequest, others, draw
    ) -> None:
        place = PLACEMENTS.get(name).place
        expected = place(gang, there.free())
        shuffled = list(there.nodes)
        draw.shuffle(shuffled)
        free = there.free(shuffled)
        mark = free.mark()
        for other in others:
            seats = place(other, free)
            if seats is not None:
                free.take(seats, other.ask)
        free.undo(mark)
        assert place(gang, free) == expected

    @settings(max_examples=40, deadline=None)
    @given(there=clusters(), wanted=st.lists(gangs(), min_size=1, max_size=6))
    def test_one_after_the_other_never_takes_too_much(
        self, name: str, there: Cluster, wanted: list[GangRequest]
    ) -> None:
        free = there.free()
        for gang in wanted:
            seats = PLACEMENTS.get(name).place(gang, free)
            assert (seats is None) == (there.first_pool(gang) is None)
            if seats is not None:
                there.check(gang, seats)
                free.take(seats, gang.ask)
                for seat in seats:
                    there.node(seat.node).take(seat, gang.ask)

    def test_only_healthy_nodes_of_the_pool(self, name: str) -> None:
        nodes = [machine("a"), machine("b", pool="other")]
        gang = GangRequest(ONE, 1, ("main",))
        assert where(name, gang, cluster(*nodes)) == ["a"]
        nodes[0].health = "draining"
        assert where(name, gang, cluster(*nodes)) == []

    def test_two_parts_of_two_nodes(self, name: str) -> None:
        free = cluster(busy(machine("a"), 3, share=600), busy(machine("b"), 2, share=300), machine("c"))
        seats = PLACEMENTS.get(name).place(GangRequest(replace(ONE, share=500), 2, ("main",)), free)
        assert seats is not None
        assert len({seat.node for seat in seats}) == 2
        assert {seat.share for seat in seats} == {500}


class TestPack:
    def test_the_fullest_node_that_fits(self) -> None:
        free = cluster(machine("a"), busy(machine("b"), 0, 1), busy(machine("c"), *range(7)))
        assert where("pack", GangRequest(ONE * 2, 1, ("main",)), free) == ["b"]
        assert where("pack", GangRequest(ONE, 1, ("main",)), free) == ["c"]

    def test_whole_racks_stay_whole(self) -> None:
        nodes = [machine(f"n{i}", rack="r1" if i < 4 else "r2") for i in range(8)]
        busy(nodes[6], *range(8))
        assert where("pack", GangRequest(ONE, 1, ("main",)), cluster(*nodes)) == ["n4"]

    @settings(max_examples=40, deadline=None)
    @given(there=clusters(), gang=gangs())
    def test_the_tightest_domain_of_the_narrowest_level(self, there: Cluster, gang: GangRequest) -> None:
        gang = replace(gang, require=None, prefer=None, avoid=frozenset(), nodes=max(gang.nodes, 2))
        seats = PLACEMENTS.get("pack").place(gang, there.free())
        if seats is None or not one_kind(gang, there) or not gang.ask.accelerators:
            return
        pool = there.node(seats[0].node).pool
        for level in reversed([level for level in there.rules.levels if level != "node"]):
            found = there.domains(gang, pool, (level,))
            if found:
                used = {seat.node for seat in seats}
                assert any(used <= names and len(names) == min(map(len, found)) for names in found)
                return

    def test_a_gang_too_large_for_any_rack_takes_as_few_as_will_do(self) -> None:
        sizes = {"r1": 2, "r2": 4, "r3": 3, "r4": 1}
        nodes = [machine(f"{rack}-{i}", rack=rack) for rack, size in sizes.items() for i in range(size)]
        racks = {name.split("-")[0] for name in where("pack", GangRequest(ALL, 6, ("main",)), cluster(*nodes))}
        assert racks == {"r1", "r2"}

    def test_the_smaller_accelerator_does_for_who_takes_any(self) -> None:
        small = machine("z", kind="A100")
        small.total = small.free = replace(small.total, accelerator_memory=40 * GB)
        free = cluster(machine("a"), machine("b"), small)
        anything = replace(ALL, accelerator="GPU")
        assert where("pack", GangRequest(anything, 1, ("main",)), free) == ["z"]
        assert where("pack", GangRequest(anything, 2, ("main",)), free) == ["a", "b"]
        assert where("pack", GangRequest(anything, 3, ("main",)), free) == ["a", "b", "z"]

    def test_natural_order_of_names(self) -> None:
        free = cluster(*[machine(f"n{i}") for i in (10, 9, 2)])
        assert where("pack", GangRequest(ALL, 1, ("main",)), free) == ["n2"]


class TestParts:
    def seat(self, free: Free, share: int) -> tuple[str, tuple[int, ...], int]:
        (seat,) = PLACEMENTS.get("pack").place(GangRequest(replace(ONE, share=share), 1, ("main",)), free)
        return seat.node, seat.devices, seat.share

    def test_the_shared_one_with_the_least_left(self) -> None:
        a, b = busy(machine("a"), 3, share=300), busy(busy(machine("b"), 1, share=400), 5, share=700)
        assert self.seat(cluster(a, b), 300) == ("b", (5,), 300)
        assert self.seat(cluster(a, b), 500) == ("b", (1,), 500)
        assert self.seat(cluster(a, b), 700) == ("a", (3,), 700)

    def test_a_whole_one_is_broken_on_the_fullest_node(self) -> None:
        free = cluster(machine("a"), busy(machine("b"), 0, 1), busy(machine("c"), 3, share=900))
        assert self.seat(free, 500) == ("b", (2,), 500)

    def test_in_slices(self) -> None:
        free = cluster(machine("a", 1), slices=7)
        gang = GangRequest(replace(ONE, share=143), 1, ("main",))
        for _ in range(7):
            seats = PLACEMENTS.get("pack").place(gang, free)
            assert seats is not None
            free.take(seats, gang.ask)
        assert PLACEMENTS.get("pack").place(gang, free) is None
        assert self.seat(cluster(machine("a"), slices=2), 501) == ("a", (0,), 1000)


def test_linked_devices_go_together() -> None:
    free = cluster(busy(machine("a", links="0-3,4-7"), 1))
    for count, devices in {3: (0, 2, 3), 4: (4, 5, 6, 7), 5: (0, 2, 3, 4, 5)}.items():
        (seat,) = PLACEMENTS.get("pack").place(GangRequest(ONE * count, 1, ("main",)), free)
        assert seat.devices == devices


class TestSpread:
    def test_the_emptiest_node(self) -> None:
        assert where("spread", GangRequest(ONE, 1, ("main",)), cluster(busy(machine("a"), 0), machine("b"))) == ["b"]

    def test_as_many_domains_as_there_are(self) -> None:
        nodes = [
            machine(f"{zone}{rack}{i}", zone=zone, rack=zone + rack) for zone in "xy" for rack in "pq" for i in "12"
        ]
        assert where("spread", GangRequest(ALL, 2, ("main",)), cluster(*nodes)) == ["xp1", "yp1"]
        assert where("spread", GangRequest(ALL, 4, ("main",)), cluster(*nodes)) == ["xp1", "xq1", "yp1", "yq1"]
        assert len(where("spread", GangRequest(ALL, 7, ("main",)), cluster(*nodes))) == 7


class TestBalanced:
    def test_the_lowest_share_in_use(self) -> None:
        free = cluster(busy(machine("a", 8), 0, 1, 2), busy(machine("b", 4), 0))
        assert where("balanced", GangRequest(ONE, 1, ("main",)), free) == ["b"]

    def test_racks_stay_equally_free(self) -> None:
        nodes = [machine(f"{rack}{i}", rack=rack) for rack in "pqr" for i in range(3)]
        free = cluster(*nodes)
        gang = GangRequest(ALL, 1, ("main",))
        used = []
        for _ in range(6):
            seats = PLACEMENTS.get("balanced").place(gang, free)
            assert seats is not None
            used.append(seats[0].node[0])
            free.take(seats, gang.ask)
        assert used == ["p", "q", "r"] * 2
        assert where("balanced", GangRequest(ALL, 3, ("main",)), free) == ["p2", "q2", "r2"]


RACKED = [machine(f"n{i}", zone="z" if i < 6 else "y", rack=f"r{i // 2}") for i in range(8)]


class TestNear:
    @pytest.mark.parametrize("name", ["group", "locality"])
    def test_on_the_node_then_around_it(self, name: str) -> None:
        gang = GangRequest(ALL, 1, ("main",), near=frozenset({"n3"}))
        free = cluster(*RACKED)
        found = []
        for _ in range(4):
            seats = PLACEMENTS.get(name).place(gang, free)
            assert seats is not None
            found.append(seats[0].node)
            free.take(seats, gang.ask)
        assert found == ["n3", "n2", "n0", "n1"]

    @pytest.mark.parametrize("name", ["group", "locality"])
    def test_a_gang_around_a_full_node(self, name: str) -> None:
        free = cluster(*RACKED)
        gang = GangRequest(ALL, 2, ("main",), near=frozenset({"n6"}))
        assert where(name, gang, free) == ["n6", "n7"]
        assert where(name, replace(gang, near=frozenset({"n1"}), nodes=3), free) == ["n0", "n1", "n2"]
        assert where(name, replace(gang, near=frozenset({"n4"}), require="rack"), free) == ["n4", "n5"]

    def test_where_most_of_the_data_is(self) -> None:
        nodes = [machine("a", holds="c4"), machine("b", holds="c4, pile"), machine("c")]
        gang = GangRequest(ONE, 1, ("main",), near=frozenset({"c4", "pile"}))
        assert where("locality", gang, cluster(*nodes)) == ["b"]
        assert where("group", gang, cluster(*nodes)) == ["a"]
