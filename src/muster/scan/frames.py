"""Messages between the server and its scanner process: a length, a mark of its kind, and the content."""

from __future__ import annotations

import json
import struct
from typing import Any, BinaryIO, Final

_HEAD: Final = struct.Struct(">IB")
_MOST: Final = 64 << 20
JSON: Final = 0
BYTES: Final = 1


def send(file: BinaryIO, content: bytes, kind: int) -> None:
    file.write(_HEAD.pack(len(content), kind) + content)
    file.flush()


def send_json(file: BinaryIO, content: Any) -> None:
    send(file, json.dumps(content).encode(), JSON)


def receive(file: BinaryIO) -> tuple[int, bytes]:
    """The kind and the content. Raises EOFError when the other side is gone."""
    size, kind = _HEAD.unpack(_exactly(file, _HEAD.size))
    if size > _MOST:
        raise EOFError
    return kind, _exactly(file, size)


def _exactly(file: BinaryIO, size: int) -> bytes:
    data = file.read(size)
    if len(data) < size:
        raise EOFError
    return data
