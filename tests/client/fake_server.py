"""A tiny server that keeps to the API: real HTTP on loopback, a few jobs in memory, and faults on request."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from live import until

TOKEN = "mst_1_secret"


def view(number: int, phase: str = "queued", **changes: Any) -> dict[str, Any]:
    """A JobView."""
    return {
        "id": f"job-{number}", "number": number, "name": "job", "kind": "train", "project": "default",
        "queue": "default", "user": "ann", "phase": phase, "reason": None, "since": 1.0, "submitted_at": 1.0,
        "started_at": None, "finished_at": None, "attempt": 0, "nodes": [], "num_nodes": 1, "nproc": 1,
        "resources": {"cpus": 1.0, "memory": 0, "accelerator": "", "accelerators": 0}, "priority": 50, "restarts": {},
        "checkpoint": None, "progress": None, "purpose": None, "tags": {}, "run": "true", "workdir": "/", **changes,
    }  # fmt: skip


@dataclass
class Seen:
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: Any


@dataclass
class FakeServer:
    """What it answers is public and may be changed between requests."""

    jobs: list[dict[str, Any]] = field(default_factory=list)
    chunks: list[tuple[int, int, int, str]] = field(default_factory=list)  # id, attempt, rank, text
    events: list[dict[str, Any]] = field(default_factory=list)
    keys: dict[str, dict[str, Any]] = field(default_factory=dict)
    failures: list[Response | str] = field(default_factory=list)  # for the next requests; "drop" records, then hangs up
    cuts: list[int] = field(default_factory=list)  # frames after which each of the next streams breaks off
    replays: bool = False  # starts every stream at the beginning, whatever the client has
    silent: bool = False  # streams stay open and say nothing after their first comment
    mute: bool = False  # streams don't even send that
    seen: list[Seen] = field(default_factory=list)
    port: int = 0
    server: uvicorn.Server | None = None
    thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        routes = [
            Route("/readyz", lambda request: JSONResponse({"ready": True, "leader": True, "holder": "x", "urls": []})),
            Route("/v1/{rest:path}", self.answer, methods=["GET", "POST", "PUT", "DELETE"]),
        ]
        config = uvicorn.Config(
            Starlette(routes=routes), port=self.port, log_config=None, log_level="critical", timeout_graceful_shutdown=1
        )
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run, daemon=True)
        self.thread.start()
        until(lambda: self.server.started, "the tiny server")
        self.port = self.server.servers[0].sockets[0].getsockname()[1]

    def stop(self) -> None:
        self.server.should_exit = True
        self.thread.join(180)
        assert not self.thread.is_alive()

    async def answer(self, request: Request) -> Response:
        raw = await request.body()
        path, body = request.scope["path"], json.loads(raw) if raw else None
        self.seen.append(Seen(request.method, path, dict(request.query_params), dict(request.headers), body))
        failure = self.failures.pop(0) if self.failures else None
        if isinstance(failure, Response):
            return failure
        if path == "/v1/jobs" and request.method == "POST":
            made = self.submit(request.headers.get("idempotency-key"))
        elif path == "/v1/jobs":
            made = self.listing(request)
        elif path == "/v1/jobs/batch":
            made = {"jobs": [self.batched(item) for item in body["jobs"]]}
        elif path == "/v1/events":
            found = [e for e in self.events if e["seq"] > int(request.query_params.get("after", 0))]
            if "last" in request.query_params:
                found = found[-int(request.query_params["limit"]) :]
            made = {"events": found, "next": found[-1]["seq"] if found else 0}
        elif path.endswith("/stream"):
            return StreamingResponse(self.stream(request), media_type="text/event-stream")
        elif path.endswith("/logs"):
            made = self.page(int(request.query_params.get("after", 0)))
        elif path == "/v1/tokens":
            made = {"id": "1", "token": "mst_2_x"}
        else:
            made = self.jobs[-1]
        return StreamingResponse(_hang_up()) if failure == "drop" else JSONResponse(made)

    def submit(self, key: str | None) -> dict[str, Any]:
        if key in self.keys:
            return self.keys[key]
        self.jobs.append(view(len(self.jobs) + 1))
        self.keys[key or ""] = self.jobs[-1]
        return self.jobs[-1]

    def batched(self, item: dict[str, Any]) -> dict[str, Any]:
        if item["spec"]["run"] == "bad":
            return {"error": {"code": "not_allowed", "message": "No.", "hint": "Ask."}}
        made = self.submit(item["key"])
        return {"id": made["id"], "number": made["number"]}

    def listing(self, request: Request) -> dict[str, Any]:
        before = int(request.query_params.get("before", 10**9))
        found = [job for job in reversed(self.jobs) if job["number"] < before]
        shown = found[: int(request.query_params["limit"])]
        return {"jobs": shown, "next": shown[-1]["number"] if len(shown) < len(found) else None}

    def page(self, after: int) -> dict[str, Any]:
        """Two chunks at a time, so that a log takes several pages."""
        left = [chunk for chunk in self.chunks if chunk[0] > after]
        names = ("id", "attempt", "rank", "text")
        shown = [dict(zip(names, chunk, strict=True)) for chunk in left[:2]]
        return {"chunks": shown, "next": shown[-1]["id"] if shown else after, "end": len(left) <= 2}

    async def stream(self, request: Request) -> AsyncIterator[bytes]:
        after = int(request.headers.get("last-event-id") or request.query_params.get("after") or 0)
        cut = self.cuts.pop(0) if self.cuts else None
        if not self.mute:
            yield b": hello\n\n"
        while self.silent and not self.server.should_exit:
            await asyncio.sleep(0.01)
        for sent, frame in enumerate(self.frames(request.url.path, 0 if self.replays else after)):
            if sent == cut:
                raise ConnectionError("cut off, as asked")
            yield frame

    def frames(self, path: str, after: int) -> Iterator[bytes]:
        if path == "/v1/events/stream":
            yield from (_frame("event", event, event["seq"]) for event in self.events if event["seq"] > after)
        elif path.endswith("/logs/stream"):
            for ident, attempt, rank, text in self.chunks:
                if ident > after:
                    yield _frame("log", {"attempt": attempt, "rank": rank, "text": text}, ident)
            yield _frame("job", self.jobs[-1], None)
            yield _frame("end", self.jobs[-1], None)
        else:
            yield from (_frame("job", job, None) for job in self.jobs)
            yield _frame("end", self.jobs[-1], None)


@contextmanager
def fake_server(**answers: Any) -> Iterator[FakeServer]:
    made = FakeServer(**answers)
    made.start()
    try:
        yield made
    finally:
        made.stop()


def refusal(status: int, code: str, **more: Any) -> JSONResponse:
    headers = {"Retry-After": "0"} if status == 503 else None
    return JSONResponse({"error": {"code": code, "message": "What.", "hint": "Do.", **more}}, status, headers)


def _frame(event: str, data: Any, ident: int | None) -> bytes:
    head = f"id: {ident}\n" if ident is not None else ""
    return f"{head}event: {event}\ndata: {json.dumps(data)}\n\n".encode()


async def _hang_up() -> AsyncIterator[bytes]:
    raise ConnectionError("hung up, as asked")
    yield b""
