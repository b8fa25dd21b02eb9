"""Artifacts of MLflow's proxied scheme over HTTP: streamed both ways, without MLflow installed."""

from __future__ import annotations

import json
import mimetypes
from collections.abc import Awaitable, Callable
from typing import Any, Final
from urllib.parse import parse_qs

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import Response

from muster.server.content import Served, declared, send, staged
from muster.server.quarantine import refuse
from muster.track.artifacts import Artifact
from muster.track.blob_store import SMALL, Stage
from muster.track.holders import of_user
from muster.track.mlflow import files
from muster.track.mlflow.context import MlflowContext

Answer = Callable[[MlflowContext], Awaitable[Response]]
_ROOTS: Final = ("/api/2.0/mlflow-artifacts/artifacts", "/ajax-api/2.0/mlflow-artifacts/artifacts")
_INFO: Final = ("/api/3.0/mlflow/server-info", "/ajax-api/3.0/mlflow/server-info")
_SERVER: Final = {
    "store_type": "SqlStore",
    "workspaces_enabled": False,
    "trace_archival_enabled": False,
    "multipart_uploads_enabled": False,
    "multipart_downloads_enabled": False,
    "presigned_upload_run_id_supported": False,
    "presigned_upload_model_id_supported": False,
    "features_enabled": {"gateway": True},
}


def route(request: Request, path: str) -> Answer | None:
    """The handler of a request for artifacts; None for any other request."""
    if path == "/get-artifact" and request.method == "GET":
        return lambda context: _download(request, context, files.find_of_run, _query(request))
    if path in _INFO and request.method == "GET":
        return lambda context: _json(_SERVER)
    root = next((root for root in _ROOTS if path.startswith(root)), None)
    if root is None:
        return None
    below = path[len(root) :]
    if below in ("", "/") and request.method == "GET":
        return lambda context: _list(request, context)
    name = below.removeprefix("/")
    known: dict[str, Answer] = {
        "GET": lambda context: _download(request, context, files.find, name),
        "HEAD": lambda context: _download(request, context, files.find, name),
        "PUT": lambda context: _upload(request, context, name),
        "DELETE": lambda context: _delete(context, name),
    }
    return known.get(request.method) if name else None


async def _list(request: Request, context: MlflowContext) -> Response:
    return await _json(await to_thread.run_sync(files.list_path, context, _query(request)))


async def _download(
    request: Request, context: MlflowContext, find: Callable[[MlflowContext, Any], Artifact], what: Any
) -> Response:
    found = await to_thread.run_sync(find, context, what)
    if request.method != "HEAD":
        await to_thread.run_sync(refuse, context.track, found.digest)
    mime = str(found.doc.get("mime") or mimetypes.guess_type(found.path)[0] or "")
    served = Served(
        found.digest, found.bytes, found.name, mime, lambda start, stop: files.read(context, found, start, stop)
    )
    return send(request, served, body=request.method != "HEAD")


async def _upload(request: Request, context: MlflowContext, path: str) -> Response:
    size, owner = declared(request), of_user(context.caller.user, ()).owner
    # The right to write is checked before the body is read, unless it is small: then one thread does both.
    small = size is not None and size <= SMALL
    where = None if small else await to_thread.run_sync(files.locate_for_write, context, path, size or 0)

    def store(stage: Stage) -> None:
        files.upload(context, where or files.locate_for_write(context, path, size or 0), stage, size, owner)

    async with staged(request, context.track.blobs) as stage:
        await to_thread.run_sync(store, stage)
    return await _json({})


async def _delete(context: MlflowContext, path: str) -> Response:
    await to_thread.run_sync(files.remove, context, path)
    return await _json({})


async def _json(body: dict[str, Any]) -> Response:
    return Response(json.dumps(body), media_type="application/json")


def _query(request: Request) -> dict[str, Any]:
    return {name: values[-1] for name, values in parse_qs(request.url.query, keep_blank_values=True).items()}
