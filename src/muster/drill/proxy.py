"""A proxy on loopback in front of a job's object store, which refuses, hangs or is slow when it is told to."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final
from urllib.parse import urlsplit

ENDPOINTS: Final = (
    "AWS_ENDPOINT_URL_S3",
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT",
    "GOOGLE_BASE_URL",
    "AZURE_STORAGE_ENDPOINT",
)
_TIMEOUT: Final = 60.0  # seconds
_PIECE: Final = 16 << 10  # bytes
_SLOW: Final = 64 << 10  # bytes a second
_OF_CONNECTION: Final = ("connection", "keep-alive", "transfer-encoding", "content-length", "proxy-connection")


def endpoint_of(envs: Mapping[str, str]) -> tuple[str, str] | None:
    """The variable that names the job's object store, and its address; None if there is none on plain HTTP."""
    found = ((name, envs[name]) for name in ENDPOINTS if envs.get(name, "").startswith("http://"))
    return next(found, None)


class StoreProxy:
    """Passes requests on as they came, with their Host header, so that signatures stay valid. A context manager."""

    def __init__(self, upstream: str) -> None:
        parts = urlsplit(upstream)
        self.host, self.port = parts.hostname or "", parts.port or 80
        self.mode = "pass"
        self.requests = 0
        self._healed = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> StoreProxy:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), name="store-proxy", daemon=True).start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._healed.set()
        self._server.shutdown()
        self._server.server_close()

    @contextmanager
    def broken(self, mode: str) -> Iterator[None]:
        """In the block: "refuse", "hang" or "slow"."""
        self._healed.clear()
        self.mode = mode
        try:
            yield
        finally:
            self.mode = "pass"
            self._healed.set()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_one_request(self) -> None:
                try:
                    super().handle_one_request()
                except OSError:  # either side has gone away
                    self.close_connection = True

            def log_message(self, format: str, *args: object) -> None:
                pass

            def _pass(self) -> None:
                proxy.requests += 1
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                if proxy.mode == "refuse":
                    self.send_response(503)
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                if proxy.mode == "hang":
                    proxy._healed.wait()
                    self.close_connection = True
                    return
                self._wait_for(len(body))
                self._forward(body)

            def _wait_for(self, size: int) -> None:
                if proxy.mode == "slow":
                    proxy._healed.wait(size / _SLOW)

            def _forward(self, body: bytes) -> None:
                upstream = http.client.HTTPConnection(proxy.host, proxy.port, timeout=_TIMEOUT)
                try:
                    upstream.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
                    for name, value in self.headers.items():
                        if name.lower() not in _OF_CONNECTION:
                            upstream.putheader(name, value)
                    upstream.putheader("Content-Length", str(len(body)))
                    upstream.endheaders(body)
                    answer = upstream.getresponse()
                    data = answer.read()
                finally:
                    upstream.close()
                self.send_response_only(answer.status)
                for name, value in answer.getheaders():
                    if name.lower() not in _OF_CONNECTION:
                        self.send_header(name, value)
                length = answer.headers["Content-Length"] if self.command == "HEAD" else str(len(data))
                if length is not None:
                    self.send_header("Content-Length", length)
                self.end_headers()
                for at in range(0, len(data), _PIECE):
                    self._wait_for(_PIECE)
                    self.wfile.write(data[at : at + _PIECE])

            do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = _pass

        return Handler
