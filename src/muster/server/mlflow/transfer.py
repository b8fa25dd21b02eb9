"""Artifacts of MLflow's proxied scheme over HTTP: streamed both ways, with nothing of MLflow's installed."""

from __future__ import annotations

import json
import mimetypes
from collections.abc import Awaitable, Callable
from typing import Any, Final
from urllib.parse import parse_qs

from anyio import to_thread
from starlette.requests import Request
from starlette.responses import Response

from muster.server.content import Served, receive, send
from muster.track.artifacts import Artifact
from muster.track.holders import of_user
from muster.track.mlflow import files
from muster.track.mlflow.desk import Desk

Answer = Callable[[Desk], Awaitable[Response]]
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
    """Who answers a request for artifacts; None when it is none."""
    if path == "/get-artifact" and request.method == "GET":
        return lambda desk: _download(request, desk, files.find_of_run, _query(request))
    if path in _INFO and request.method == "GET":
        return lambda desk: _json(_SERVER)
    root = next((root for root in _ROOTS if path.startswith(root)), None)
    if root is None:
        return None
    below = path[len(root) :]
    if below in ("", "/") and request.method == "GET":
        return lambda desk: _list(request, desk)
    name = below.removeprefix("/")
    known: dict[str, Answer] = {
        "GET": lambda desk: _download(request, desk, files.find, name),
        "HEAD": lambda desk: _download(request, desk, files.find, name),
        "PUT": lambda desk: _upload(request, desk, name),
        "DELETE": lambda desk: _delete(desk, name),
    }
    return known.get(request.method) if name else None


async def _list(request: Request, desk: Desk) -> Response:
    return await _json(await to_thread.run_sync(files.list_path, desk, _query(request)))


async def _download(request: Request, desk: Desk, find: Callable[[Desk, Any], Artifact], what: Any) -> Response:
    found = await to_thread.run_sync(find, desk, what)
    mime = str(found.doc.get("mime") or mimetypes.guess_type(found.path)[0] or "")
    served = Served(
        found.digest, found.bytes, found.name, mime, lambda start, stop: files.read(desk, found, start, stop)
    )
    return send(request, served, body=request.method != "HEAD")


async def _upload(request: Request, desk: Desk, path: str) -> Response:
    where = await to_thread.run_sync(files.place_for, desk, path)
    declared = request.headers.get("content-length", "")
    room = int(declared) if declared.isascii() and declared.isdigit() else 0
    await to_thread.run_sync(desk.track.artifacts.usage.check, where.project, room)
    digest, size = await receive(request, desk.track.blobs, None, of_user(desk.asker.user, ()).owner)
    await to_thread.run_sync(files.name, desk, where, digest, size)
    return await _json({})


async def _delete(desk: Desk, path: str) -> Response:
    await to_thread.run_sync(files.remove, desk, path)
    return await _json({})


async def _json(body: dict[str, Any]) -> Response:
    return Response(json.dumps(body), media_type="application/json")


def _query(request: Request) -> dict[str, Any]:
    return {name: values[-1] for name, values in parse_qs(request.url.query, keep_blank_values=True).items()}
