"""Transfers file content over HTTP in both directions, in blocks, so that no whole file is held in memory."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote

from fastapi import Request, Response
from starlette.concurrency import run_in_threadpool
from starlette.responses import StreamingResponse

from muster.track.blob_store import BLOCK, SMALL, Stage
from muster.track.blobs import Blobs

_RANGE: Final = re.compile(r"bytes=(\d{0,19})-(\d{0,19})")
# Types that a browser may display. HTML, SVG and everything else that can contain a script is only downloaded.
_INLINE: Final = frozenset({
    "image/png", "image/jpeg", "image/gif", "image/webp", "image/avif", "text/plain", "application/json",
    "audio/wav", "audio/mpeg", "audio/ogg", "audio/flac", "video/mp4", "video/webm", "text/csv", "text/markdown",
    "text/x-diff",
})  # fmt: skip
_TYPE: Final = re.compile(r"[a-z0-9.+-]{1,60}/[a-z0-9.+-]{1,60}")
_SAFE: Final = {
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "sandbox; default-src 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Accept-Ranges": "bytes",
}


@dataclass(frozen=True, slots=True)
class Served:
    """Content to send: `open(start, stop)` yields its bytes."""

    digest: str
    size: int
    name: str
    mime: str
    open: Callable[[int, int], Iterator[bytes]]


async def receive(request: Request, blobs: Blobs, digest: str | None, owner: str) -> tuple[str, int]:
    """Stores the body of a request for the owner; returns its digest and size once it is durable."""
    async with staged(request, blobs) as stage:
        return await run_in_threadpool(blobs.keep, stage, digest, declared(request), owner)


@asynccontextmanager
async def staged(request: Request, blobs: Blobs) -> AsyncIterator[Stage]:
    """The body of a request, to be stored in the block."""
    stage = blobs.stage()
    try:
        gathered = bytearray()
        async for data in request.stream():
            gathered += data
            if len(gathered) >= BLOCK:
                await run_in_threadpool(stage.write, bytes(gathered))
                gathered.clear()
        if stage.size + len(gathered) <= SMALL:
            stage.write(bytes(gathered))  # stays in memory: no need of a thread
        else:
            await run_in_threadpool(stage.write, bytes(gathered))
        yield stage
    finally:
        stage.drop()


def declared(request: Request) -> int | None:
    """The size of the body that the request declares."""
    given = request.headers.get("content-length", "")
    return int(given) if given.isascii() and given.isdigit() and len(given) < 20 else None


def send(request: Request, served: Served, body: bool = True) -> Response:
    """Sends the whole content, the requested range, or only the headers."""
    headers = {**_SAFE, "ETag": f'"{served.digest}"', **_shown(served)}
    if served.digest in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    start, stop, status = _wanted(request, served)
    if status == 416:
        return Response(status_code=416, headers={**headers, "Content-Range": f"bytes */{served.size}"})
    if status == 206:
        headers["Content-Range"] = f"bytes {start}-{stop - 1}/{served.size}"
    headers["Content-Length"] = str(stop - start)
    if not body:
        return Response(status_code=status, headers=headers)
    return StreamingResponse(served.open(start, stop), status, headers)


def _wanted(request: Request, served: Served) -> tuple[int, int, int]:
    """Start, stop and status. A request for several ranges gets the whole content, as the protocol allows."""
    size = served.size
    found = _RANGE.fullmatch(request.headers.get("range", "").replace(" ", ""))
    current = request.headers.get("if-range", "").strip('"') in ("", served.digest)
    if found is None or not (found[1] or found[2]) or not current:
        return 0, size, 200
    if not found[1]:  # the last bytes, as many as given
        start, stop = max(0, size - int(found[2])), size
    else:
        start, stop = int(found[1]), min(size, int(found[2]) + 1) if found[2] else size
    return (start, stop, 206) if start < stop else (0, 0, 416)


def _shown(served: Served) -> dict[str, str]:
    mime = served.mime.partition(";")[0].strip().lower()
    if not _TYPE.fullmatch(mime):
        mime = "application/octet-stream"
    inline = mime in _INLINE
    kind = f"{mime}; charset=utf-8" if inline and mime.startswith("text/") else mime if inline else _DOWNLOAD
    way = "inline" if inline else "attachment"
    return {"Content-Type": kind, "Content-Disposition": f"{way}; filename*=UTF-8''{quote(served.name, safe='')}"}


_DOWNLOAD: Final = "application/octet-stream"
