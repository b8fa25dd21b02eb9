"""Priority queues over sources of jobs, best first, whose order changes while a round starts jobs.

During a round, usage and quota use only grow, so a source only ever moves back. It is therefore enough to recompute the
key of the one on top. Under fair share, queues whose turn does not come are not looked into at all: their usage alone
says that others go before them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush
from typing import Protocol

from muster.sched.order import Key
from muster.sched.queued_jobs import Line, Stream
from muster.sched.shares import Shares

Source = Stream | str  # a stream of which any job that fits may start, or the name of a queue served in its order
KeyOf = Callable[[Source], Key]
Item = tuple[Key, int, int, Source]

UNREAD = 0  # the turn of a queue whose lanes are not made yet


class TurnOrder(Protocol):
    def push(self, source: Source) -> None: ...

    def pop(self) -> Source | None: ...


class ByRank:
    """The source with the best job first."""

    __slots__ = ("_heap", "_key")

    def __init__(self, key: KeyOf, sources: Iterable[Source] = ()) -> None:
        self._key = key
        self._heap = [self._item(source) for source in sources]
        heapify(self._heap)

    def push(self, source: Source) -> None:
        if isinstance(source, str) or source.entries:
            heappush(self._heap, self._item(source))

    def _item(self, source: Source) -> Item:
        if isinstance(source, str):
            return (self._key(source), 0, 0, source)
        return (self._key(source), source.entries[0][1], source.number, source)

    def pop(self) -> Source | None:
        heap = self._heap
        while heap:
            key, _, _, source = heappop(heap)
            if isinstance(source, Stream) and not source.entries:
                continue
            if heap and key < (fresh := self._key(source)) and fresh > heap[0][0]:
                self.push(source)
                continue
            return source
        return None

    @property
    def best(self) -> tuple[float, int] | None:
        """Standing and job number of the best source. It may be outdated: the source may have moved back since."""
        return (self._heap[0][0][0], self._heap[0][1]) if self._heap else None


class Lane:
    """The sources of one user in one queue. They are sorted only when the lane's turn comes, which is rare."""

    __slots__ = ("_key", "_ranked", "_standing", "sources")

    def __init__(self, key: KeyOf, standing: Callable[[Source], float]) -> None:
        self._key, self._standing = key, standing
        self._ranked: ByRank | None = None
        self.sources: list[Source] = []

    def push(self, source: Source) -> None:
        if self._ranked is not None:
            self._ranked.push(source)
        elif isinstance(source, str) or source.entries:
            self.sources.append(source)

    def pop(self) -> Source | None:
        if self._ranked is None:
            self._ranked, self.sources = ByRank(self._key, self.sources), []
        return self._ranked.pop()

    @property
    def best(self) -> tuple[float, int] | None:
        """Standing and job number of the best source; None when the lane is empty. It may be outdated."""
        if self._ranked is not None:
            return self._ranked.best
        return min([(self._standing(source), _number(source)) for source in self.sources], default=None)


class ByShare:
    """Fair share: the project with the least usage for its weight, then its queues, their users, and the best job."""

    __slots__ = (
        "_key", "_lanes", "_listed", "_members", "_projects", "_shares", "_standing", "_turn", "_unread", "_where",
    )  # fmt: skip

    def __init__(
        self,
        shares: Shares,
        key: KeyOf,
        standing: Callable[[Source], float],
        where: Callable[[Source], tuple[str, str, str]],
        lines: Iterable[tuple[Line, float, Iterable[Source]]],
    ) -> None:
        """`lines`: each with its sources, and a standing than which none of them is better."""
        self._shares, self._key, self._standing, self._where = shares, key, standing, where
        self._members: dict[tuple[str, str], Lane] = {}  # by (queue, user)
        # Heaps of (key, name, turn). Of several entries with one name, the one whose turn is in `_listed` is valid.
        self._lanes: dict[str, list[tuple[Key, tuple[str, str], int]]] = {}  # by project
        self._projects: list[tuple[Key, str, int]] = []
        self._listed: dict[tuple[str, str] | str, tuple[int, float]] = {}  # name → turn and standing of its valid entry
        self._turn = UNREAD
        self._unread: dict[Line, Iterable[Source]] = {}
        for line, best, sources in lines:
            project, queue = line
            self._unread[line] = sources
            # Lower than any key of its streams, and the key of a queue that is served in its order.
            bound = (best, *shares.queue(queue), 0)
            self._lanes.setdefault(project, []).append((bound, (queue, ""), UNREAD))
        for project, found in self._lanes.items():
            heapify(found)
            self._list_project(project)

    def push(self, source: Source) -> None:
        project, queue, user = self._where(source)
        lane = self._members.get((queue, user))
        if lane is None:
            lane = self._members[queue, user] = Lane(self._key, self._standing)
        lane.push(source)
        self._list(project, (queue, user))

    def pop(self) -> Source | None:
        while self._projects:
            key, project, turn = heappop(self._projects)
            if self._listed.get(project, (0, 0.0))[0] != turn:
                continue
            del self._listed[project]
            found = self._best(project)
            if found is None:
                continue
            (standing, number), lane = found
            fresh = (standing, self._shares.project(project), number)
            if fresh > key and self._projects and fresh > self._projects[0][0]:
                self._list(project, lane)
                continue
            source = self._members[lane].pop()
            self._list(project, lane)
            if source is not None:
                return source
        return None

    def _read(self, project: str, queue: str) -> None:
        """Makes the lanes of a queue. The same result as pushing each source, but faster."""
        names: dict[tuple[str, str], None] = {}
        for source in self._unread.pop((project, queue)):
            name = (queue, "" if isinstance(source, str) else source.user)
            lane = self._members.get(name)
            if lane is None:
                lane = self._members[name] = Lane(self._key, self._standing)
            lane.sources.append(source)
            names[name] = None
        for name in names:
            best = self._members[name].best
            assert best is not None
            self._turn += 1
            self._listed[name] = (self._turn, best[0])
            heappush(self._lanes[project], (self._lane_key(name, best), name, self._turn))

    def _list(self, project: str, name: tuple[str, str]) -> None:
        """Adds heap entries for the lane and its project if their standing is better than in their valid entries."""
        best = self._members[name].best
        lanes = self._lanes.setdefault(project, [])
        if best is not None and best[0] < self._listed.get(name, (0, 9.0))[1]:
            self._turn += 1
            self._listed[name] = (self._turn, best[0])
            heappush(lanes, (self._lane_key(name, best), name, self._turn))
        self._list_project(project)

    def _list_project(self, project: str) -> None:
        lanes = self._lanes[project]
        if lanes and lanes[0][0][0] < self._listed.get(project, (0, 9.0))[1]:
            first = lanes[0][0]
            self._turn += 1
            self._listed[project] = (self._turn, first[0])
            heappush(self._projects, ((first[0], self._shares.project(project), first[-1]), project, self._turn))

    def _best(self, project: str) -> tuple[tuple[float, int], tuple[str, str]] | None:
        """Removes the project's next lane from its heap. Returns the lane's best standing and number, and its name."""
        lanes = self._lanes[project]
        while lanes:
            key, name, turn = heappop(lanes)
            if turn == UNREAD:
                self._read(project, name[0])
                continue
            if self._listed.get(name, (0, 0.0))[0] != turn:
                continue
            del self._listed[name]
            if name[1] and lanes:  # mostly, it is the usage of its queue that has moved it back
                bound = (key[0], *self._shares.queue(name[0]), *key[-2:])
                if bound > lanes[0][0]:
                    self._turn += 1
                    self._listed[name] = (self._turn, key[0])
                    heappush(lanes, (bound, name, self._turn))
                    continue
            best = self._members[name].best
            if best is None:
                continue
            fresh = self._lane_key(name, best)
            if fresh > key and lanes and fresh > lanes[0][0]:
                self._turn += 1
                self._listed[name] = (self._turn, best[0])
                heappush(lanes, (fresh, name, self._turn))
                continue
            return best, name
        return None

    def _lane_key(self, name: tuple[str, str], best: tuple[float, int]) -> Key:
        queue, user = name
        mine = (self._shares.user(queue, user),) if user else ()
        return (best[0], *self._shares.queue(queue), *mine, best[1])


def _number(source: Source) -> int:
    return 0 if isinstance(source, str) else source.entries[0][1]
