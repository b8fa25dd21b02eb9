"""A small HTTP server that takes what launchers ship, as the real one does, and can be told to misbehave."""

from __future__ import annotations

import hashlib
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeVar

from muster import wire
from muster.control.decode import decode
from muster.control.meetings import Meetings
from muster.core.errors import Invalid

T = TypeVar("T")
PATIENCE = 120.0  # seconds; only a test that fails takes as long


def wait_for(look: Callable[[], T | None], what: str = "it") -> T:
    """The first true value of `look`, looked for again and again."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        if found := look():
            return found
        time.sleep(0.005)
    raise AssertionError(f"{what} did not happen within {PATIENCE:g} s")


@dataclass
class Attempt:
    """What the server has of one token's attempt."""

    streams: dict[tuple[int, str], bytearray] = field(default_factory=dict)
    states: list[tuple[int, str]] = field(default_factory=list)
    exits: dict[int, wire.WorkerExit] = field(default_factory=dict)
    first_log_at: float | None = None  # perf_counter
    command_seen: int = 0
    missing: dict[int, int] = field(default_factory=dict)  # by rank, bytes of its log that were dropped on the way


class IngestServer:
    """Stores by offset, once, as the real one does. `fault` is asked before each batch and may answer in its place."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.attempts: dict[str, Attempt] = {}
        self.secrets: dict[str, str] | None = {}
        self.secrets_status = 200
        self.commands: dict[str, wire.Command] = {}
        self.blobs: dict[str, bytes] = {}
        self.code = ""  # digest of the manifest of the snapshot that is offered; it and its files are among the blobs
        self.bundles: list[list[str]] = []  # the digests of each that was asked for
        self.code_fault: Callable[[bytes], bytes] = lambda bundle: bundle  # asked before each is sent
        self.blob_fault: Callable[[str], int | None] = lambda digest: None  # asked before each file
        self.puts: list[str] = []  # the digests that were sent, refused ones too
        self.fault: Callable[[wire.Batch], int | str | None] = lambda batch: None
        self.requests = 0
        self.meetings, self.gang = Meetings(), 1
        self.problems: list[str] = []
        self._lock = threading.Lock()
        self._server: ThreadingHTTPServer | None = None
        self._thread: threading.Thread | None = None
        self._port = 0
        self._tls = tls

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self._port}"

    def attempt(self, token: str = "token") -> Attempt:
        return self.attempts.setdefault(token, Attempt())

    def log(self, rank: int = 0, token: str = "token") -> str:
        return bytes(self.attempt(token).streams.get((rank, "log"), b"")).decode(errors="replace")

    def come(self) -> None:
        """Listens; the second time on the same port as before."""
        self._server = _Listener(("127.0.0.1", self._port), _handler(self))
        self._port = self._server.server_address[1]
        if self._tls:
            self._server.socket = self._tls.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    def go_away(self) -> None:
        if self._server is None or self._thread is None:
            return
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        self._server.cut_connections()
        self._server = None

    def take(self, token: str, body: bytes) -> tuple[int, bytes] | None:
        """The answer to a batch; None for none at all."""
        arrived = time.perf_counter()
        batch = wire.Batch.decode(body)
        with self._lock:
            self.requests += 1
            order = self.fault(batch)
            if isinstance(order, int):
                return order, b"{}"
            attempt = self.attempt(token)
            for piece in batch.pieces:
                self._store(attempt, piece, arrived)
            attempt.states.append((batch.worker, batch.state))
            attempt.command_seen = batch.command_seen
            if batch.exit:
                attempt.exits[batch.worker] = batch.exit
            if order == "drop":
                return None
            acked = {key: len(data) for key, data in attempt.streams.items()}
            acked |= {(rank, "log"): acked[rank, "log"] + lost for rank, lost in attempt.missing.items()}
            reply = wire.Reply(acked, self.commands.get(token), done=batch.state == "ended")  # type: ignore[arg-type]
            return 200, reply.to_json().encode()

    def meet(self, token: str, told: dict[str, Any]) -> tuple[int, bytes]:
        """As a server does; `gang` is how many workers have to come."""
        try:
            reply = self.meetings.join((token, 1), self.gang, **told, sound=False, now=time.monotonic())
        except Invalid:
            return 422, b"{}"
        return 200, json.dumps(reply).encode()

    def take_blob(self, digest: str, body: bytes) -> int:
        with self._lock:
            self.puts.append(digest)
            status = self.blob_fault(digest)
            if status is None:
                status = 204 if hashlib.sha256(body).hexdigest() == digest else 400
            if status == 204:
                self.blobs[digest] = body
            return status

    def bundle(self, digests: list[str]) -> tuple[int, bytes]:
        with self._lock:
            self.bundles.append(digests)
            if any(digest not in self.blobs for digest in digests):
                return 404, b""
            parts = [f"{digest}{len(self.blobs[digest]):08x}".encode() + self.blobs[digest] for digest in digests]
            return 200, self.code_fault(b"".join(parts))

    def documents(self, kind: str, rank: int = 0, stream: str = "host", token: str = "token") -> list[dict[str, Any]]:
        """Those of one type on a stream of a rank."""
        data = bytes(self.attempt(token).streams.get((rank, stream), b""))
        return [doc for doc in decode(data, {}).docs if doc["type"] == kind]

    def _store(self, attempt: Attempt, piece: wire.Piece, arrived: float) -> None:
        stream = attempt.streams.setdefault((piece.rank, piece.stream), bytearray())
        missing = attempt.missing.get(piece.rank, 0) if piece.stream == "log" else 0
        if piece.stream == "log" and piece.offset > len(stream) + missing:
            missing = attempt.missing[piece.rank] = piece.offset - len(stream)
        if piece.offset > len(stream) + missing:
            self.problems.append(f"gap in {piece.stream} of rank {piece.rank}: {len(stream)} to {piece.offset}")
            return
        stream += piece.data[len(stream) + missing - piece.offset :]
        if piece.stream == "log" and attempt.first_log_at is None:
            attempt.first_log_at = arrived


class _Listener(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._open: set[Any] = set()

    def process_request(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self._open.discard(request)
        super().shutdown_request(request)

    def cut_connections(self) -> None:
        for request in list(self._open):
            self.shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A launcher that was killed while it waited is nothing to tell."""


def _handler(server: IngestServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # one packet an answer
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            answer: tuple[int, bytes] | None = (404, b"")
            if self.path == "/v1/ingest":
                answer = server.take(self._token(), body)
            elif self.path == "/v1/ingest/code/bundle":
                answer = server.bundle(json.loads(body))
            elif self.path == "/v1/ingest/meet":
                answer = server.meet(self._token(), json.loads(body))
            if answer is None:
                self.close_connection = True
            else:
                self._answer(*answer)

        def do_PUT(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            self._answer(server.take_blob(self.path.removeprefix("/v1/ingest/blobs/"), body), b"")

        def do_HEAD(self) -> None:
            self._answer(200 if self.path.removeprefix("/v1/ingest/blobs/") in server.blobs else 404, b"")

        def do_GET(self) -> None:
            if self.path == "/v1/ingest/secrets":
                self._answer(server.secrets_status, json.dumps(server.secrets).encode())
            elif self.path == "/v1/ingest/code" and server.code:
                self._answer(200, server.blobs[server.code])
            else:
                self._answer(404, b"")

        def _token(self) -> str:
            return self.headers["Authorization"].removeprefix("Bearer ")

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return Handler


@contextmanager
def ingest_server(tls: ssl.SSLContext | None = None) -> Iterator[IngestServer]:
    server = IngestServer(tls)
    server.come()
    try:
        yield server
    finally:
        server.go_away()
        assert not server.problems
