"""A rank's output on its way from the pipe to its log: masks secrets and keeps the last part in memory."""

from __future__ import annotations

from typing import Final

from muster.masking import Masker
from muster.runtime.segments import LogStore

TAIL_BYTES: Final = 64 << 10  # enough for the longest traceback that people read


class Output:
    """Takes what a rank wrote; the log and the tail hold it masked."""

    def __init__(self, masker: Masker, store: LogStore) -> None:
        self.store = store
        self._masker = masker
        self._tail = bytearray()

    def feed(self, chunk: bytes) -> None:
        self._put(self._masker.feed(chunk))

    def finish(self) -> None:
        self._put(self._masker.finish())

    def say(self, text: str) -> None:
        """Writes a line of the launcher's own to the rank's log."""
        self.store.append(f"[muster] {self._masker.mask(text)}\n".encode())

    def tail(self) -> str:
        return bytes(self._tail[-TAIL_BYTES:]).decode(errors="replace")

    def _put(self, data: bytes) -> None:
        if data:
            self.store.append(data)
            self._tail += data[-TAIL_BYTES:]
            if len(self._tail) > 2 * TAIL_BYTES:
                del self._tail[:-TAIL_BYTES]
