"""Limits the size of requests, and reads their bodies within the limit."""

from __future__ import annotations

import re
from typing import Final

from starlette.exceptions import HTTPException
from starlette.types import Message, Receive, Scope

TINY: Final = 16 << 10  # bytes; of the request that begins a session, which no token comes with
SMALL: Final = 2 << 20
LARGE: Final = 32 << 20  # for what launchers ship and batches of jobs
CONTENT: Final = 1 << 40  # for one file, which is written in blocks
# Parsing JSON blocks other requests, for a time that depends on the number of values rather than on the bytes.
VALUES: Final = 100_000
MANY_VALUES: Final = 500_000  # for a large request
HEADERS: Final = 200  # per request
UNREAD: Final = 16 << 10  # an answer closes the connection if more bytes of the body than this are unread
_LARGE_PATHS: Final = ("/v1/ingest", "/v1/jobs/batch", "/v1/blobs/bundle")
_CONTENT: Final = re.compile(
    r"/v1/(ingest/)?blobs/[0-9a-f]{64}|/v1/runs/[^/]+/artifacts/.+|/mlflow/.*/mlflow-artifacts/.+"
)
_SNAPSHOT: Final = re.compile(r"/v1/projects/[^/]+/optuna/[^/]+/snapshot")
_MLFLOW: Final = "/mlflow/"
_SIGN_IN: Final = "/v1/session"
_STRUCTURE: Final = (b",", b"[", b"{")


def has_body(headers: dict[bytes, bytes]) -> bool:
    return headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers


def too_large(scope: Scope, headers: dict[bytes, bytes]) -> str | None:
    """What is wrong with the declared size; None if it is allowed."""
    limit = _limit(scope["method"], scope["path"])
    declared = headers.get(b"content-length", b"0")
    too_long = len(declared) > 19 or (declared.isdigit() and int(declared) > limit)
    return _words(limit) if too_long else None


def bounded(scope: Scope, headers: dict[bytes, bytes], receive: Receive) -> Receive:
    """Passes on the body while it stays within its limits; then raises HTTPException 413."""
    limit = _limit(scope["method"], scope["path"])
    kind = headers.get(b"content-type", b"").lower()
    most = VALUES if limit <= SMALL else MANY_VALUES
    json = limit != CONTENT and (not kind or b"json" in kind)
    values, read = Values(texts=scope["path"].startswith(_MLFLOW)), 0

    async def counted() -> Message:
        nonlocal read
        message = await receive()
        body: bytes = message.get("body", b"")
        read += len(body)
        if read > limit:
            raise HTTPException(413, _words(limit), {"Connection": "close"})
        if json and body:
            values.add(body)
            if values.count > most:
                raise HTTPException(413, f"The JSON has more than {most:,} values.", {"Connection": "close"})
        return message

    return counted


class Values:
    """Counts approximately the values of JSON that arrives in parts.

    `texts`: also count what looks like values inside of strings, because MLflow parses some strings as JSON again.
    """

    def __init__(self, texts: bool = False) -> None:
        self.count = 0
        self._texts = texts
        self._rest = b""  # of the last part: a backslash whose escaped character is in the next
        self._inside = False  # whether the last part ended inside a string

    def add(self, part: bytes) -> None:
        seen = part if self._texts else self._outside(part)
        self.count += sum(seen.count(mark) for mark in _STRUCTURE)

    def _outside(self, part: bytes) -> bytes:
        """The part without strings: with escaped quotes removed, every second piece between quotes is a string."""
        plain = (self._rest + part).replace(b"\\\\", b"").replace(b'\\"', b"")
        self._rest = b"\\" if plain.endswith(b"\\") else b""
        pieces = plain.split(b'"')
        found = b"".join(pieces[int(self._inside) :: 2])
        self._inside ^= len(pieces) % 2 == 0
        return found


def _limit(method: str, path: str) -> int:
    if method == "PUT" and _CONTENT.fullmatch(path):
        return CONTENT
    if path == _SIGN_IN:
        return TINY
    large = path in _LARGE_PATHS or path.startswith(_MLFLOW) or (method == "PUT" and _SNAPSHOT.fullmatch(path))
    return LARGE if large else SMALL


def _words(limit: int) -> str:
    return f"The request is larger than {f'{limit >> 20} MiB' if limit >> 20 else f'{limit >> 10} KiB'}."
