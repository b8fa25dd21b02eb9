"""The launcher's connection to the platform: requests over one keep-alive connection, to whichever server answers."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import BinaryIO, Final
from urllib.parse import urlsplit

from muster.runtime.http_connection import HttpConnection

TIMEOUT: Final = 20.0  # seconds for a connection or an answer
BACKOFF_FIRST: Final = 0.2  # seconds
BACKOFF_LAST: Final = 5.0
BYTES: Final = "application/octet-stream"


class Away(Exception):
    """There was no answer, or a request to retry; nothing is lost. `slow`: retry at a slow rate."""

    def __init__(self, message: str, slow: bool = False) -> None:
        super().__init__(message)
        self.slow = slow


class Gone(Exception):
    """The requested object does not exist on the server, and never will."""


class Channel:
    """Sends requests with the attempt's token. Not thread-safe."""

    def __init__(
        self, urls: Sequence[str], urls_file: str | None, token: str, ca_file: str | None, timeout: float = TIMEOUT
    ) -> None:
        self._given = tuple(urls)
        self._file = urls_file
        self._token = token
        self._ca_file, self._timeout = ca_file, timeout
        self._turn = 0
        self._server = "no server"
        self._base = ""
        self._connection: HttpConnection | None = None

    def allow(self, token: str) -> None:
        """Sets the token; without one, every call raises Away."""
        self._token = token

    def call(self, method: str, path: str, body: bytes | None = None, kind: str = BYTES) -> tuple[int, bytes]:
        """Status and body of the answer. Raises Away when there is none; the next call then tries the next server."""
        reused = self._connection is not None
        try:
            return self._call(method, path, body, kind)
        except OSError as error:
            self.turn_away()
            # A server may close an idle connection; that is no failure unless a new connection fails too.
            if not reused or isinstance(error, TimeoutError):
                raise Away(f"{self._server}: {error!r}") from error
        self._turn -= 1
        return self.call(method, path, body, kind)

    def send_file(self, path: str, file: BinaryIO, size: int, patience: float) -> tuple[int, bytes]:
        """PUTs a file's content in chunks; the answer may take `patience` seconds. Raises Away."""
        self.turn_away()  # uses a new connection: an idle one may be dead, and half a file can't be sent twice
        self._turn -= 1
        connection: HttpConnection | None = None
        try:
            connection = self._connect()
            return connection.request("PUT", self._base + path, self._headers(), file, size, patience)
        except OSError as error:
            self._turn += 1
            raise Away(f"{self._server}: {error!r}") from error
        finally:
            if connection is not None:
                connection.close()

    def turn_away(self) -> None:
        """Closes the connection to the current server, so that the next call uses the next one."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self._turn += 1

    def _call(self, method: str, path: str, body: bytes | None, kind: str) -> tuple[int, bytes]:
        connection = self._connection or self._connect()
        self._connection = connection
        return connection.request(method, self._base + path, self._headers(kind), body)

    def _headers(self, kind: str = BYTES) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._token}", "Content-Type": kind}

    def _connect(self) -> HttpConnection:
        newer, certificate = self._moved()
        urls = list(dict.fromkeys([*newer, *self._given]))
        if not self._token:
            raise ConnectionError("no server knows the run yet")
        if not urls:
            raise ConnectionError("no server's address is known")
        self._server = urls[self._turn % len(urls)]
        url = urlsplit(self._server)
        self._base = url.path.rstrip("/")
        context = None
        if url.scheme == "https":  # TLS takes long to import
            own = certificate if self._server in newer else None
            certificates = import_module("muster.certificates")
            context = certificates.trusting_only(own) if own else certificates.trusting(self._ca_file)
        return HttpConnection(url.hostname or "", url.port, self._timeout, context)

    def _moved(self) -> tuple[list[str], str | None]:
        """The addresses in the file, which are newer than the launch's, and the certificate that is served there."""
        if self._file:
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                said = json.loads(Path(self._file).read_text())
                return list(said["urls"]), said.get("certificate")
        return [], None


def fetch_secrets(channel: Channel, names: Sequence[str], wait: Callable[[float], bool]) -> dict[str, str]:
    """The values of these secrets. Retries until `wait(seconds)` returns False, and then raises Away.

    Raises Gone, with the name, when one does not exist.
    """
    delay = BACKOFF_FIRST
    while True:
        try:
            status, body = channel.call("GET", "/v1/ingest/secrets")
            if status in (404, 410):
                raise Gone(f"the server has no secrets for this attempt (status {status})")
            if status == 200:
                values = json.loads(body)
                if missing := [name for name in names if name not in values]:
                    raise Gone(f"the project has no secret named {', '.join(missing)}")
                return {name: str(values[name]) for name in names}
            channel.turn_away()
        except (Away, ValueError):
            pass
        if not wait(delay):
            raise Away(f"pid {os.getpid()} was told to stop before the secrets were there")
        delay = min(2 * delay, BACKOFF_LAST)
