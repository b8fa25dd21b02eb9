"""The stored length of each stream, in memory so that a write needs no read; ensures that bytes are stored once."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from muster.core.errors import Conflict, Invalid
from muster.store.base import StreamWrite
from muster.store.codec import check_text
from muster.store.log_limit import parts
from muster.wire import Stream

_ATTEMPTS: Final = 16_384  # attempts in memory; the least recently written are dropped, and loaded again when needed
_OFFSET_MAX: Final = 2**63 - 1
_RANK_MAX: Final = 2**31 - 1


@dataclass(slots=True)
class Mark:
    acked: int = 0
    kept: int = 0  # bytes of a log that are stored, before compression
    edge: int | None = None  # id of the last chunk of a log before those that may be dropped; None: not determined yet


Marked = dict[tuple[int, Stream], Mark]


class Marks:
    """Marks by attempt, loaded at the first write to the attempt."""

    def __init__(self, load: Callable[[str, int], Marked]) -> None:
        self._load = load
        self._known: OrderedDict[tuple[str, int], Marked] = OrderedDict()

    def admit(self, writes: Sequence[StreamWrite], whole: bool = False) -> list[StreamWrite]:
        """The writes that contain new bytes, counted as stored. Raises Invalid, and counts none, if one is not valid.

        `whole`: raises Conflict unless all of them contain new bytes, because something was computed from all of them.
        """
        acked: dict[tuple[str, int, int, Stream], int] = {}
        fresh = []
        for write in writes:
            key = (write.job, write.attempt, write.rank, write.stream)
            if key not in acked:
                acked[key] = self.get(write).acked
            if _brings_news(write, acked[key]):
                acked[key] = write.end
                fresh.append(write)
            elif whole:
                raise Conflict(f"{_name(write)} has been stored meanwhile.", "Send what is new again.")
        for write in fresh:
            mark, stored = self.get(write), parts(write)
            write.gap = write.gap or bool(stored and 0 < mark.acked < stored[0][0])
            mark.acked = write.end
            mark.kept += sum(len(data) for _, data in stored)
        return fresh

    def get(self, write: StreamWrite) -> Mark:
        """The mark of the stream of this write."""
        attempt = (write.job, write.attempt)
        marked = self._known.get(attempt)
        if marked is None:
            marked = self._known[attempt] = self._load(*attempt)
        self._known.move_to_end(attempt)
        return marked.setdefault((write.rank, write.stream), Mark())

    def trim(self) -> None:
        """Drops unused marks. Only between transactions: within one, the marks are ahead of what is stored."""
        while len(self._known) > _ATTEMPTS:
            self._known.popitem(last=False)

    def clear(self) -> None:
        self._known.clear()


def _brings_news(write: StreamWrite, acked: int) -> bool:
    if not (0 <= write.start <= write.end <= _OFFSET_MAX and 0 <= write.rank <= _RANK_MAX):
        raise Invalid(f"{_name(write)} is no range of bytes.", "Send 0 <= start <= end.")
    check_text(write.job, *write.columns)
    if write.end <= acked:
        return False
    if write.start < acked:
        raise Invalid(f"{_name(write)} overlaps what is stored up to {acked}.", f"Send from offset {acked}.")
    if write.start > acked and write.stream != "log":
        raise Invalid(f"{_name(write)} leaves a gap after {acked}.", f"Send from offset {acked}: only a log has gaps.")
    return True


def _name(write: StreamWrite) -> str:
    stream = f"{write.stream} stream of rank {write.rank}, attempt {write.attempt} of job {write.job!r}"
    return f"{write.start} to {write.end} of the {stream}"
