"""Bounds the size of requests before anything reads them."""

from __future__ import annotations

import json
import re

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

SMALL = 2 << 20  # bytes
LARGE = 32 << 20  # of what launchers ship and of batches of jobs
CONTENT = 1 << 40  # of one file, which goes to its place in blocks
_LARGE_PATHS = ("/v1/ingest", "/v1/jobs/batch", "/v1/blobs/missing", "/v1/blobs/bundle")
_CONTENT = re.compile(r"/v1/(ingest/)?blobs/[0-9a-f]{64}|/v1/runs/[^/]+/artifacts/.+|/mlflow/.*/mlflow-artifacts/.+")


class Limits:
    """Refuses a body that says it is too large, and stops reading one that turns out to be."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        limit = _limit(scope["method"], scope["path"])
        declared = dict(scope["headers"]).get(b"content-length", b"0")
        if declared.isdigit() and int(declared) > limit:
            await _refuse(send, limit)
            return
        read = 0

        async def counted() -> Message:
            nonlocal read
            message = await receive()
            read += len(message.get("body", b""))
            if read > limit:
                raise HTTPException(413, _words(limit))
            return message

        await self._app(scope, counted, send)


def _limit(method: str, path: str) -> int:
    if method == "PUT" and _CONTENT.fullmatch(path):
        return CONTENT
    return LARGE if path in _LARGE_PATHS or path.startswith("/mlflow/") else SMALL


def _words(limit: int) -> str:
    return f"The request is larger than {limit >> 20} MiB."


async def _refuse(send: Send, limit: int) -> None:
    message = f"The request is larger than {limit >> 20} MiB."
    body = json.dumps(
        {"error": {"code": "too_large", "message": message, "mend": "Send it in smaller parts."}}
    ).encode()
    headers = [(b"content-type", b"application/json"), (b"connection", b"close")]
    await send({"type": "http.response.start", "status": 413, "headers": headers})
    await send({"type": "http.response.body", "body": body})
