"""Generated clusters with labels, use and faults, and what can be placed on them by trying everything."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from math import inf

from hypothesis import strategies as st

from muster.core.entities import Node
from muster.core.resources import WHOLE, Resources
from muster.core.rules import PoolRules
from muster.core.seat import Seat
from muster.sched.capacity.free import Free
from muster.sched.capacity.slot import round_to_slice
from muster.sched.place import GangRequest
from strategy_kit import pick

GB = 10**9
LEVELS = ("zone", "rack", "link")


@dataclass
class Cluster:
    nodes: list[Node]
    closes: dict[str, float]
    rules: PoolRules

    def free(self, order: Iterable[Node] | None = None) -> Free:
        free = Free()
        for node in order or self.nodes:
            free.set(node, self.rules, self.closes.get(node.name, inf))
        return free

    def node(self, name: str) -> Node:
        return next(node for node in self.nodes if node.name == name)

    def fits(self, node: Node, gang: GangRequest) -> bool:
        """Whether the node holds one worker, from the state alone."""
        ask, free = gang.ask, node.free
        if node.health != "healthy" or self.closes.get(node.name, inf) < gang.ends or node.pool not in gang.pools:
            return False
        if free.milli_cpus < ask.milli_cpus or free.memory < ask.memory:
            return False
        if not ask.accelerators:
            return True
        if not node.total.accelerators or not node.total.suits(ask):
            return False
        if node.free_devices.bit_count() >= ask.accelerators:
            return True
        return ask.share < WHOLE and any(left >= self.part(gang) for left in node.parts.values())

    def part(self, gang: GangRequest) -> int:
        return round_to_slice(gang.ask.share, self.rules.slices) if gang.ask.share < WHOLE else WHOLE

    def domains(self, gang: GangRequest, pool: str, labels: tuple[str, ...]) -> list[set[str]]:
        """The nodes that hold a worker, by what they share; enough of them in each."""
        found: dict[tuple[str, ...], set[str]] = {}
        for node in self.nodes:
            where = tuple(node.name if label == "node" else node.labels.get(label, "") for label in labels)
            if all(where) and node.pool == pool and self.fits(node, gang):
                found.setdefault(where, set()).add(node.name)
        return [names for names in found.values() if len(names) >= gang.nodes]

    def first_pool(self, gang: GangRequest) -> str | None:
        """The first pool that holds the gang."""
        must = (gang.require,) if gang.require else ()
        return next((pool for pool in gang.pools if self.domains(gang, pool, must)), None)

    def check(self, gang: GangRequest, seats: tuple[Seat, ...]) -> None:
        """Every seat is on a node of its own, and free."""
        assert len({seat.node for seat in seats}) == len(seats) == gang.nodes
        assert len({self.node(seat.node).pool for seat in seats}) == 1
        for seat in seats:
            node = self.node(seat.node)
            assert self.fits(node, gang)
            assert len(set(seat.devices)) == len(seat.devices) == gang.ask.accelerators
            assert seat.share == self.part(gang)
            if seat.share < WHOLE:
                assert node.parts.get(seat.devices[0], WHOLE) >= seat.share
                assert seat.devices[0] in node.parts or node.free_devices >> seat.devices[0] & 1
            else:
                assert all(node.free_devices >> device & 1 for device in seat.devices)


def machine(name: str, gpus: int = 8, pool: str = "main", kind: str = "H100", **labels: str) -> Node:
    total = Resources(96_000, 960 * GB, gpus, kind if gpus else "", accelerator_memory=80 * GB if gpus else 0)
    node = Node(name, pool, total, labels)
    node.clear()
    return node


def busy(node: Node, *devices: int, share: int = WHOLE, ask: Resources | None = None) -> Node:
    node.take(Seat(node.name, devices, share), ask or Resources(1000, GB, len(devices), "H100"))
    return node


@cache
def machine_called(name: str) -> st.SearchStrategy[Node]:
    return machines(name)


@st.composite
def machines(draw: st.DrawFn, name: str) -> Node:
    labels = {level: draw(pick("", "a", "b", "c")) for level in LEVELS}
    labels |= {"switch": draw(pick("", "s", "t")), "links": draw(pick("", "0-1,2-3", "x"))}
    labels["holds"] = draw(pick("", "c4", "c4, pile", "pile"))
    gpus = draw(pick(0, 2, 4, 4, 4))
    kind = draw(pick("H100", "H100", "A100")) if gpus else ""
    memory = draw(pick(40, 80)) * GB if gpus else 0
    total = Resources(draw(pick(4000, 8000, 8500)), 64 * GB, gpus, kind, accelerator_memory=memory)
    node = Node(name, draw(pick("main", "main", "other")), total, {k: v for k, v in labels.items() if v})
    node.clear()
    for device in range(gpus):
        use = draw(pick(0, 0, 250, 500, WHOLE))
        if use:
            node.take(Seat(name, (device,), use), Resources(250, GB, 1, kind))
    spare = draw(pick(0, 0, 1500, 3000))
    node.take(Seat(name), Resources(min(spare, node.free.milli_cpus), draw(pick(0, 50 * GB))))
    node.health = draw(pick("healthy", "healthy", "healthy", "draining"))
    return node


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    nodes = [draw(machine_called(f"n{i}")) for i in draw(st.permutations(range(draw(st.integers(1, 12)))))]
    closes = {node.name: 100.0 for node in nodes if draw(st.integers(0, 5)) == 0}
    levels = draw(pick(LEVELS, ("rack",), (), ("zone", "rack", "node")))
    return Cluster(nodes, closes, PoolRules(levels=levels, slices=draw(pick(1000, 7, 2))))


_NAMES = st.frozensets(pick("n0", "n1", "n4", "n9", "c4", "pile"), max_size=3)


@st.composite
def gangs(draw: st.DrawFn) -> GangRequest:
    kind = draw(pick("", "GPU", "H100", "H100", "A100"))
    share = draw(pick(WHOLE, WHOLE, 140, 250, 600)) if kind else WHOLE
    count = (draw(st.integers(1, 4)) if share == WHOLE else 1) if kind else 0
    memory = draw(pick(0, 0, 60 * GB)) if kind else 0
    ask = Resources(draw(pick(0, 500, 1000, 3000)), draw(pick(0, 20 * GB)), count, kind)
    labels = pick(None, None, *LEVELS, "switch", "node", "unheard")
    return GangRequest(
        replace(ask, share=share, accelerator_memory=memory),
        draw(st.integers(1, 4)),
        draw(pick(("main",), ("main", "other"), ("other", "main"), ("gone", "main"))),
        require=draw(labels),
        prefer=draw(labels),
        near=draw(_NAMES),
        avoid=draw(_NAMES),
        ends=draw(pick(-inf, 50.0, 150.0)),
    )
