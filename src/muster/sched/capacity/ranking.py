"""The order of classes of nodes for one request: what it takes away from typical work there, the least first.

A ranking is in chunks, so that classes which have no nodes at present are passed over many at a time: classes fill and
empty with every placement, and what a request takes away in them stays the same.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from muster.core.resources import WHOLE
from muster.sched.capacity.usable import Levels, Need, NodeType

if TYPE_CHECKING:
    from muster.sched.capacity.cells import Cell, Group

RANKINGS: Final = 1024  # of one type
CHUNK: Final = 32  # entries of a ranking

Request = tuple[int, int, int]  # milli-CPUs, bytes of memory, thousandths of an accelerator
Rank = tuple[float, int, int, Levels]  # what is lost; left of a shared accelerator; free units; levels
Entry = tuple[Rank, "NodeClass"]
Ranked = tuple[tuple[float, int, int, int, tuple[int, ...], Levels], "NodeClass", "Ranking"]


class NodeClass:
    """Nodes of one type and levels that have this much left: of a shared accelerator, or WHOLE ones."""

    __slots__ = ("bit", "bucket", "changed", "cpu", "left", "levels", "masks", "memory", "nodes")

    def __init__(self, nodes: TypeNodes, levels: Levels, left: int, bit: int) -> None:
        self.nodes, self.levels, self.left, self.bit = nodes, levels, left, bit
        self.masks: dict[Cell, int] = {}  # its nodes, as bits
        self.bucket = levels[1] if nodes.type.plain else levels[0]  # free units, see `PoolIndex`
        self.changed = 0  # a counter that rises when one of them changes or joins
        self.cpu = self.memory = 0  # no node has more free than this, in milli-CPUs and bytes

    def join(self, cell: Cell, bit: int) -> None:
        if not self.masks:
            self.nodes.live |= self.bit
            self.cpu = self.memory = 0
        self.masks[cell] = self.masks.get(cell, 0) | bit

    def leave(self, cell: Cell, bit: int) -> None:
        rest = self.masks.get(cell, 0) & ~bit
        if rest:
            self.masks[cell] = rest
        elif self.masks.pop(cell, None) is not None and not self.masks:
            self.nodes.live ^= self.bit


class TypeNodes:
    """The classes of one type that have or had nodes, and the rankings of these classes."""

    __slots__ = ("_known", "_rankings", "all", "group", "live", "type")

    def __init__(self, type_: NodeType, group: Group) -> None:
        self.type, self.group = type_, group
        self.live = 0  # the classes with nodes, as bits
        self.all: list[NodeClass] = []
        self._known: dict[tuple[Levels, int], NodeClass] = {}
        self._rankings: dict[Need, Ranking] = {}

    def get(self, levels: Levels, left: int) -> NodeClass:
        found = self._known.get((levels, left))
        if found is None:
            found = self._known[levels, left] = NodeClass(self, levels, left, 1 << len(self.all))
            self.all.append(found)
        return found

    def dead(self) -> int:
        """How many classes have no nodes."""
        return len(self.all) - self.live.bit_count()

    def members(self, mask: int) -> Iterator[NodeClass]:
        while mask:
            low = mask & -mask
            yield self.all[low.bit_length() - 1]
            mask ^= low

    def use(self, type_: NodeType) -> None:
        """The same hardware and levels, with other typical requests."""
        self.type = type_
        self._rankings.clear()

    def ranking(self, need: Need) -> Ranking:
        found = self._rankings.get(need)
        if found is None:
            if len(self._rankings) >= RANKINGS:
                self._rankings.clear()
            found = self._rankings[need] = Ranking(self, need)
        return found


class Ranking:
    """The classes that may hold a request, in the order of what it takes away from typical work there."""

    __slots__ = ("_chunks", "_mask", "_parts", "_seen", "failed", "need", "nodes")

    def __init__(self, nodes: TypeNodes, need: Need) -> None:
        self.nodes, self.need = nodes, need
        self._parts = need[0] > 0 and need[1] < WHOLE
        self._chunks: list[Chunk] = []
        self._mask = 0  # its classes, as bits
        self._seen = 0  # classes that were looked at, as bits
        # Classes none of whose nodes could hold a request: when they last `changed`, and the request.
        self.failed: dict[NodeClass, tuple[int, int, int, int]] = {}

    def has_failed(self, one: NodeClass, request: Request) -> bool:
        """Whether none of the nodes of the class could hold this request, or a smaller one."""
        failed = self.failed.get(one)
        if failed is None or failed[0] != one.changed:
            return False
        return request[0] >= failed[1] and request[1] >= failed[2] and request[2] >= failed[3]

    def catch_up(self) -> int:
        """Ranks the classes that are new. Returns those that have nodes, as bits."""
        nodes = self.nodes
        new = nodes.live & ~self._seen
        if new:
            self._seen |= new
            self._add(nodes.members(new))
        return self._mask & nodes.live

    def first(self, group: int, more: float) -> Ranked:
        """The first of `live`, of which there is one."""
        live = self.nodes.live
        for chunk in self._chunks:
            if chunk.mask & live:
                for (lost, left, bucket, levels), one in chunk.entries:
                    if one.masks:
                        return (lost + more, group, left, bucket, self.nodes.type.order, levels), one, self
        raise AssertionError("no class of the ranking has nodes")

    def live(self, group: int, more: float) -> Iterator[Ranked]:
        """The classes with nodes; `group`: how expendable the hardware is, `more`: what it counts as lost besides."""
        nodes, order = self.nodes, self.nodes.type.order
        for chunk in self._chunks:
            if chunk.mask & nodes.live:
                for (lost, left, bucket, levels), one in chunk.entries:
                    if one.masks:
                        yield (lost + more, group, left, bucket, order, levels), one, self

    def _add(self, classes: Iterable[NodeClass]) -> None:
        parts, found = self._parts, []
        for one, lost in self.nodes.type.losses(classes, self.need):
            # Of shared accelerators the tightest fit, before whole ones.
            found.append(((lost, one.left if parts else 0, one.bucket, one.levels), one))
            self._mask |= one.bit
        if len(found) > CHUNK // 4:
            entries = sorted([entry for chunk in self._chunks for entry in chunk.entries] + found, key=_rank)
            self._chunks = [Chunk(entries[at : at + CHUNK]) for at in range(0, len(entries), CHUNK)]
            return
        for entry in found:
            self._insert(entry)

    def _insert(self, entry: Entry) -> None:
        chunks = self._chunks
        if not chunks:
            chunks.append(Chunk([entry]))
            return
        at = min(bisect_left(chunks, entry[0], key=_last), len(chunks) - 1)
        chunk = chunks[at]
        insort(chunk.entries, entry, key=_rank)
        chunk.mask |= entry[1].bit
        if len(chunk.entries) > 2 * CHUNK:
            chunks[at : at + 1] = [Chunk(chunk.entries[:CHUNK]), Chunk(chunk.entries[CHUNK:])]


class Chunk:
    """Successive entries of a ranking, which are passed over at once where none of their classes has nodes."""

    __slots__ = ("entries", "mask")

    def __init__(self, entries: list[Entry]) -> None:
        self.entries, self.mask = entries, 0
        for _, one in entries:
            self.mask |= one.bit


def _rank(entry: Entry) -> Rank:
    return entry[0]


def _last(chunk: Chunk) -> Rank:
    return chunk.entries[-1][0]
