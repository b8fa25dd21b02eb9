"""The scanner process: looks at one artifact after the other, whose bytes it asks the server for.

It may open no file and no connection that it needs, and has limits of memory and time, so that what a hostile file
makes of it stays here.
"""

from __future__ import annotations

import errno
import io
import json
import resource
import sys
from typing import Any, BinaryIO, Final

from muster.scan.artifacts import look_at_artifact
from muster.scan.frames import receive, send_json
from muster.scan.limits import Budget

_MEMORY: Final = 2 << 30  # bytes
_FILE: Final = 2 << 30  # bytes of a temporary file


def main() -> None:
    for what, limit in ((resource.RLIMIT_AS, _MEMORY), (resource.RLIMIT_FSIZE, _FILE), (resource.RLIMIT_CORE, 0)):
        resource.setrlimit(what, (limit, limit))
    orders, answers = sys.stdin.buffer, sys.stdout.buffer
    while True:
        try:
            _, raw = receive(orders)
        except EOFError:
            return
        order = json.loads(raw)
        content = io.BufferedReader(_Remote(orders, answers, int(order["size"])), 1 << 18)
        found = look_at_artifact(content, int(order["size"]), str(order["name"]), Budget(float(order["seconds"])))
        send_json(answers, {"findings": [one.to_dict() for one in found]})


class _Remote(io.RawIOBase):
    """An artifact that the server reads for this process."""

    def __init__(self, orders: BinaryIO, answers: BinaryIO, size: int) -> None:
        self._orders, self._answers, self._size, self._at = orders, answers, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        if base + offset < 0:
            raise OSError(errno.EINVAL, "a position before the beginning")  # as of a file
        self._at = base + offset
        return self._at

    def readinto(self, buffer: Any) -> int:
        count = min(len(buffer), max(0, self._size - self._at), 1 << 20)
        if count == 0:
            return 0
        send_json(self._answers, {"read": [self._at, count]})
        _, data = receive(self._orders)
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


if __name__ == "__main__":
    main()
