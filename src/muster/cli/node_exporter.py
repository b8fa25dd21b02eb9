"""`muster nodes exporter`: the figures of this machine and its accelerators for a Prometheus that scrapes nodes."""

from __future__ import annotations

import hmac
import signal
import socket
import threading
import time
from collections import Counter
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import FrameType
from typing import Any, Final

from muster.cli.output import emit, note, out
from muster.core.errors import ConfigError
from muster.monitor.exposition import (
    CONTENT_TYPE,
    dcgm_text,
    device_text,
    fault_text,
    node_text,
    show_device,
    show_node,
)
from muster.runtime.fault_watch import FaultWatch
from muster.runtime.hardware import open_sources
from muster.runtime.node_sample import node_sample
from muster.runtime.nvml import Nvml

PATH: Final = "/metrics"
FRESH: Final = 1.0  # seconds for which one look at the machine serves all that ask
TIMEOUT: Final = 5.0  # seconds for a request
AT_ONCE: Final = 16  # requests
LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")


def serve(host: str, port: int, name: str, pool: str, token_file: Path | None, as_json: bool) -> None:
    """Answers until it is told to stop."""
    token = _token(token_file)
    machine = Machine(name or socket.gethostname(), pool)
    try:
        server = _Server((host, port), machine, token)
    except OSError as error:
        told = f"Can't listen on {host}:{port}: {error.strerror}."
        raise ConfigError(told, "Stop what uses the port (dcgm-exporter?), or choose another with --port.") from error
    url = f"http://{host}:{server.server_address[1]}{PATH}"
    if host not in LOOPBACK and not token:
        note((f"Everybody who can reach {host} can read this; --token-file FILE asks for a token.", "yellow"))
    emit({"url": url}) if as_json else out().print(f"{machine.name}: {url}")
    signal.signal(signal.SIGTERM, _stop)
    with server, suppress(KeyboardInterrupt):
        server.serve_forever()


class Machine:
    """What is known of this machine, looked at when somebody asks and not more often than `FRESH`."""

    def __init__(self, name: str, pool: str) -> None:
        self.name, self._pool = name, pool
        self._source, self._read = open_sources()
        nvml = self._source if isinstance(self._source, Nvml) else None
        self._watch = FaultWatch(nvml, nvml.devices(), all_=True) if nvml is not None else None
        self._faults: Counter[tuple[str, str, str]] = Counter()  # since the beginning of the kernel's log
        self._lock = threading.Lock()
        self._at, self._text = -FRESH, b""

    def page(self) -> bytes:
        with self._lock:
            if time.monotonic() - self._at >= FRESH:
                self._text = self._look()
                self._at = time.monotonic()
            return self._text

    def _look(self) -> bytes:
        source = self._source
        whole = source.devices() if source is not None else []
        every = [*whole, *(one for device in whole for one in source.slices(device))] if source is not None else []
        values = [(one, source.sample(one)) for one in every] if source is not None else []
        sample = node_sample(0.0, self._read(), values)
        for fault in self._watch.look() if self._watch is not None else ():
            self._faults[self.name, str(fault["gpu"]), fault["code"]] += 1
        devices = [show_device(self.name, self._pool, one) for one in sample.devices]
        pieces = [*node_text([show_node(self.name, self._pool, sample)]), *device_text(devices), *dcgm_text(devices)]
        return b"".join([*pieces, fault_text(self._faults)])


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], machine: Machine, token: str) -> None:
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        self.machine, self.token = machine, token
        self._room = threading.BoundedSemaphore(AT_ONCE)
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._room.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away in the middle is no error of ours."""


class _Handler(BaseHTTPRequestHandler):
    timeout = TIMEOUT
    server: _Server

    def do_GET(self) -> None:
        if self.path.partition("?")[0] != PATH:
            self._answer(404, b"Ask for /metrics.\n")
        elif self.server.token and not self._may():
            self._answer(401, b"A token is needed.\n")
        else:
            self._answer(200, self.server.machine.page())

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is logged of single requests."""

    def _may(self) -> bool:
        given = self.headers.get("Authorization", "")
        return hmac.compare_digest(given.encode(), f"Bearer {self.server.token}".encode())

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", CONTENT_TYPE)
        self.send_header("Content-Length", str(len(body)))
        if status == 401:
            self.send_header("WWW-Authenticate", "Bearer")
        self.end_headers()
        self.wfile.write(body)


def _token(path: Path | None) -> str:
    if path is None:
        return ""
    try:
        token = path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} can't be read: {error}.", "Give a text file that holds the token.") from error
    if not token:
        raise ConfigError(f"{path} is empty.", "Write a token into it.")
    return token


def _stop(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt
