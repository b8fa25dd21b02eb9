"""An iterator over the jobs of one queue, in the order in which the queue is served."""

from __future__ import annotations

from heapq import heapify, heappop, heappush, heapreplace
from typing import TYPE_CHECKING

from muster.sched.order import Key
from muster.sched.queued_jobs import Queued, Stream

if TYPE_CHECKING:
    from muster.sched.fill import Filling


class QueueCursor:
    """The jobs of a queue in its order. A job that starts is removed from its stream; any other is passed over."""

    __slots__ = ("_bases", "_filling", "_heap", "_last", "_starts", "_unmoved")

    def __init__(self, filling: Filling, queue: str) -> None:
        self._filling = filling
        # Stream → the part of its key that all its jobs share. It changes with starts alone.
        self._bases: dict[Stream, Key] = {}
        self._starts = self._unmoved = len(filling.starts)  # when the bases were made, and the heap
        streams = [stream for stream in filling.board.waiting.streams[queue] if stream.not_before <= filling.now]
        self._heap = [(self._key(stream, 0), stream.number, 0, stream) for stream in streams]
        self._last: tuple[Stream, int, str] | None = None  # the job of the last step
        heapify(self._heap)

    @property
    def key(self) -> Key:
        """The sort key of the next job."""
        self._settle()
        self._look_again()
        return self._heap[0][0] if self._heap else (9.0,)

    def step(self) -> Queued | None:
        self._settle()
        self._look_again()
        if not self._heap:
            return None
        _, _, index, stream = heappop(self._heap)
        name = stream.entries[index][2]
        self._last = (stream, index, name)
        return self._filling.board.waiting.queued[name]

    def _settle(self) -> None:
        """Puts the stream of the last job back, after that job if it is still queued."""
        if self._last is None:
            return
        stream, index, name = self._last
        self._last = None
        if index < len(stream.entries) and stream.entries[index][2] == name:
            index += 1
        if index < len(stream.entries):
            heappush(self._heap, (self._key(stream, index), stream.number, index, stream))

    def _look_again(self) -> None:
        """Recomputes the key of the first stream: starts since then may have moved it back."""
        heap = self._heap
        if self._unmoved == len(self._filling.starts):
            return
        while len(heap) > 1:
            key, number, index, stream = heap[0]
            fresh = self._key(stream, index)
            if fresh <= key:
                return
            heapreplace(heap, (fresh, number, index, stream))

    def _key(self, stream: Stream, index: int) -> Key:
        rank = stream.policy.rank(stream.band, stream.entries[index][0], self._filling.state.history)
        if self._starts != len(self._filling.starts):
            self._starts = len(self._filling.starts)
            self._bases.clear()
        base = self._bases.get(stream)
        if base is None:
            base = self._bases[stream] = self._filling.place_in_queue(stream)
        return (*base, *rank)
