"""A journal of changes to the state, in order, so that an index of the state can be updated without a full scan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

KEPT = 400_000  # entries; a reader that is further behind has to scan the whole state

What = Literal["job", "node", "entity", "history"]  # entity: queues, pools, projects, rules; history: of a user
Entry = tuple[What, str]


class Journal:
    """Readers keep a cursor. `since` returns the entries after it, or None when they are no longer kept."""

    __slots__ = ("_entries", "_start")

    def __init__(self) -> None:
        self._entries: list[Entry] = []
        self._start = 0

    @property
    def end(self) -> int:
        return self._start + len(self._entries)

    def note(self, what: What, name: str) -> None:
        self._entries.append((what, name))
        if len(self._entries) > KEPT:
            half = KEPT // 2
            del self._entries[:half]
            self._start += half

    def since(self, cursor: int) -> Sequence[Entry] | None:
        if not self._start <= cursor <= self.end:
            return None
        return self._entries[cursor - self._start :]
