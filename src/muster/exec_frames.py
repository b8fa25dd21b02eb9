"""The frames of an exec session: what a client and the process on the node send each other through the server.

A frame is its kind (u8), the length of its payload (u32, little endian) and the payload. Standard library only. The
server passes the bytes on and does not look into them, so either side checks what it gets.
"""

from __future__ import annotations

import json
import struct
from typing import Final, NamedTuple

DATA: Final = 1  # input, or standard output
STDERR: Final = 2
EOF: Final = 3  # nothing more comes on standard input
SIZE: Final = 4  # of the terminal: rows and columns, u16 each
SIGNAL: Final = 5  # for the command's process group: its number, u8
END: Final = 6  # how the session ended: JSON {"code": exit code or null, "error": a sentence or ""}

HEAD: Final = struct.Struct("<BI")
WINDOW: Final = struct.Struct("<HH")
PAYLOAD: Final = 64 << 10  # bytes in one frame
_MOST: Final = 1 << 20  # bytes that are accepted in one frame
WAIT: Final = 10.0  # seconds that a request for more bytes waits at most
CHUNK: Final = 256 << 10  # bytes in one request


class Frame(NamedTuple):
    kind: int
    data: bytes


class Ended(NamedTuple):
    """How a session ended. Without a code the command did not end by itself, and `error` says why."""

    code: int | None
    error: str


def encode(kind: int, data: bytes = b"") -> bytes:
    """One frame, or several if the data is long."""
    parts = [data[at : at + PAYLOAD] for at in range(0, len(data), PAYLOAD)] or [b""]
    return b"".join(HEAD.pack(kind, len(part)) + part for part in parts)


def encode_end(ended: Ended) -> bytes:
    return encode(END, json.dumps({"code": ended.code, "error": ended.error}).encode())


def decode_end(data: bytes) -> Ended:
    """Raises ValueError."""
    doc = json.loads(data)
    code, error = (doc.get("code"), doc.get("error")) if isinstance(doc, dict) else (None, None)
    if not (code is None or isinstance(code, int)) or not isinstance(error, str):
        raise ValueError("not the end of a session")
    return Ended(code if code is None else code & 0xFF, error[:2000])


class Decoder:
    """Cuts a stream of bytes into frames."""

    def __init__(self) -> None:
        self._held = bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that are complete. Raises ValueError for what is no frame."""
        self._held += data
        found: list[Frame] = []
        while len(self._held) >= HEAD.size:
            kind, length = HEAD.unpack_from(self._held)
            if not DATA <= kind <= END or length > _MOST:
                raise ValueError(f"a frame of the kind {kind} with {length} bytes")
            if len(self._held) < HEAD.size + length:
                break
            found.append(Frame(kind, bytes(self._held[HEAD.size : HEAD.size + length])))
            del self._held[: HEAD.size + length]
        return found
