"""Reads a stream forwards, with a look ahead; counts what is read against the limits of the scan."""

from __future__ import annotations

from typing import Final, Protocol

from muster.scan.limits import Budget

_CHUNK: Final = 1 << 16


class Source(Protocol):
    def read(self, count: int, /) -> bytes: ...


class Reader:
    def __init__(self, file: Source, budget: Budget) -> None:
        self._file, self._budget = file, budget
        self._buffer, self._pos = b"", 0
        self.at = 0  # bytes that were read

    def peek(self, count: int) -> bytes:
        """As many bytes without going on; fewer only at the end."""
        self._fill(count)
        return self._buffer[self._pos : self._pos + count]

    def read(self, count: int) -> bytes:
        """As many bytes; fewer only at the end."""
        self._fill(count)
        data = self._buffer[self._pos : self._pos + count]
        self._pos += len(data)
        self.at += len(data)
        return data

    def exactly(self, count: int) -> bytes:
        data = self.read(count)
        if len(data) < count:
            raise EOFError
        return data

    def line(self, most: int) -> bytes:
        """Up to a newline, without it. Raises EOFError if there is none within `most` bytes."""
        size = 256
        while True:
            self._fill(size)
            end = self._buffer.find(b"\n", self._pos, self._pos + size)
            if end >= 0:
                return self.exactly(end + 1 - self._pos)[:-1]
            if size >= most or len(self._buffer) - self._pos < size:
                raise EOFError
            size *= 4

    def skip(self, count: int) -> None:
        """Raises EOFError if there are fewer."""
        while count > 0:
            part = self.read(min(count, 1 << 20))
            if not part:
                raise EOFError
            count -= len(part)

    def end(self) -> bool:
        return not self.peek(1)

    def _fill(self, count: int) -> None:
        while len(self._buffer) - self._pos < count:
            data = self._file.read(max(count - (len(self._buffer) - self._pos), _CHUNK))
            if not data:
                return
            self._budget.spend(len(data))
            self._buffer, self._pos = self._buffer[self._pos :] + data, 0
