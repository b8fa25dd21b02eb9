"""Positions of queued jobs: how many jobs are ahead of one, and the jobs in the order in which they are served."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush

from muster.core.job import Job
from muster.core.state import State
from muster.sched.board import Board
from muster.sched.fill import Filling
from muster.sched.order import Key
from muster.sched.queued_jobs import Entry, Queued, Stream


def ahead_of(state: State, board: Board, job: Job, now: float) -> int:
    """How many jobs of its queue are ahead of a queued job. The cost grows with the number of streams, not of jobs."""
    return QueuePositions(state, board, now).ahead_of(job.id)


@dataclass(slots=True)
class QueuePositions:
    """Positions of queued jobs at one time. The board must be synced with the state; it is not changed."""

    state: State
    board: Board
    now: float
    _filling: Filling = field(init=False)
    _bases: dict[Stream, Key] = field(default_factory=dict)  # the part of the key before the job's rank

    def __post_init__(self) -> None:
        self._filling = Filling(self.state, self.board, self.now)

    @property
    def filling(self) -> Filling:
        """A `Filling` that starts nothing, used for its keys and gangs."""
        return self._filling

    def ahead_of(self, name: str) -> int:
        """How many jobs of its queue are ahead. Jobs whose earliest start is later than this one's do not count."""
        mine = self.board.waiting.queued[name]
        base, rank = self._base(mine.stream), self._rank(mine.stream, mine.entry)
        found = 0
        for stream in self.board.waiting.streams[mine.stream.queue]:
            if stream is mine.stream:
                found += bisect_left(stream.entries, mine.entry)
            elif stream.not_before <= max(self.now, mine.stream.not_before):
                found += self._before(stream, base, rank)
        return found

    def in_order(
        self, queue: str | None = None, include_held: bool = False, after: str | None = None
    ) -> Iterator[Queued]:
        """The jobs of a queue, or of all, next one first. `include_held`: those that may not start yet at the end.

        `after`: a queued job with which the list goes on; the cost does not grow with the number of jobs before it.
        """
        lines = self.board.waiting.streams
        streams = [s for of in lines.values() for s in of] if queue is None else list(lines.get(queue, ()))
        cursor = self.board.waiting.queued[after] if after is not None else None
        begins_late = cursor is not None and self._late(cursor.stream)
        for late in (False, True) if include_held else (False,):
            if begins_late and not late:
                continue
            heap = []
            for stream in streams:
                if self._late(stream) == late:
                    index = self._index_after(stream, cursor) if cursor is not None and late == begins_late else 0
                    if index < len(stream.entries):
                        heap.append((self._key(stream, stream.entries[index]), stream.number, index, stream))
            heapify(heap)
            while heap:
                _, number, index, stream = heappop(heap)
                yield self.board.waiting.queued[stream.entries[index][2]]
                if index + 1 < len(stream.entries):
                    heappush(heap, (self._key(stream, stream.entries[index + 1]), number, index + 1, stream))

    def streams_of(self, queue: str) -> int:
        return len(self.board.waiting.streams[queue]) if queue in self.board.waiting.streams else 0

    def key_of(self, queued: Queued) -> Key:
        return self._key(queued.stream, queued.entry)

    def _late(self, stream: Stream) -> bool:
        return stream.not_before > self.now

    def _index_after(self, stream: Stream, cursor: Queued) -> int:
        """The first entry of the stream that `in_order` gives after this job: of equal keys, older streams go first."""
        if stream is cursor.stream:
            return bisect_left(stream.entries, cursor.entry) + 1
        base, rank = self._base(cursor.stream), self._rank(cursor.stream, cursor.entry)
        if stream.number > cursor.stream.number:
            return self._before(stream, base, rank)
        other = self._base(stream)
        if other != base:
            return len(stream.entries) if other < base else 0
        return bisect_right(stream.entries, rank, key=lambda entry: self._rank(stream, entry))

    def _before(self, stream: Stream, base: Key, rank: Key) -> int:
        """How many jobs of the stream are ahead of a job with this base and rank."""
        other = self._base(stream)
        if other != base:
            return len(stream.entries) if other < base else 0
        return bisect_left(stream.entries, rank, key=lambda entry: self._rank(stream, entry))

    def _key(self, stream: Stream, entry: Entry) -> Key:
        return (*self._base(stream), *self._rank(stream, entry))

    def _base(self, stream: Stream) -> Key:
        found = self._bases.get(stream)
        if found is None:
            whole = self._filling.key(stream)
            found = self._bases[stream] = whole[: len(whole) - len(self._rank(stream, stream.entries[0]))]
        return found

    def _rank(self, stream: Stream, entry: Entry) -> Key:
        return stream.policy.rank(stream.band, entry[0], self.state.history)
