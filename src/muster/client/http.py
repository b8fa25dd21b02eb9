"""HTTP transport of the client: tries several servers in turn, and turns error responses into exceptions."""

from __future__ import annotations

import os
import ssl
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, closing
from email.utils import parsedate_to_datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import httpx

from muster import __version__
from muster.client.target import START_A_SERVER, Target, find_target, is_loopback
from muster.core import errors
from muster.core.errors import (
    ConfigError,
    MusterError,
    Problem,
    Refused,
    SpecError,
    TooMany,
    Unauthenticated,
    Unavailable,
)
from muster.core.reasons import Reason

ROUNDS: Final = 3  # rounds over all servers as long as at least one answers "not now"
LONGEST_WAIT: Final = 2.0  # maximum seconds between two rounds, whatever Retry-After says
SHORT_WAIT: Final = 0.2
BUSY_FOR: Final = 60.0  # seconds for which a request is repeated while the server answers TooMany
SLOWEST: Final = 2e6  # bytes per second: decides how long to wait for an upload
_LOST: Final = "See `muster doctor`; before you repeat it, look whether it was done."


class Transport:
    """Sends requests to the first server that answers. Thread-safe."""

    def __init__(self, url: str | None, token: str | None, home: Path, timeout: float) -> None:
        self.home = home
        self._given = (url, token)
        self._timeout = timeout
        self._preferred = ""  # the server that answered last

    def target(self) -> Target:
        """Looked up every time: a restarted server may listen elsewhere."""
        return find_target(*self._given, self.home)

    def call(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        body: Any = None,
        key: str | None = None,
        more: Mapping[str, str] | None = None,
    ) -> Any:
        """The JSON of the response. Raises the server's error, or Unavailable. `more`: headers."""
        headers = {**(more or {}), **({"Idempotency-Key": key} if key else {})}
        repeatable = key is not None or method in ("GET", "PUT")
        parts = {"params": _given(params), "json": body, "headers": headers}
        response = self._send(method, path, parts, repeatable, stream=False)
        return _json(response) if response.content else {}

    def send_content(
        self,
        method: str,
        path: str,
        content: bytes | Callable[[], Iterable[bytes]],
        size: int,
        params: Mapping[str, Any] | None = None,
    ) -> Any:
        """Sends bytes, or what the function returns at each try. Returns the JSON of the response."""
        headers = {"Content-Type": "application/octet-stream", "Content-Length": str(size)}
        # The server responds when everything is on its disk or in its object store.
        timeout = httpx.Timeout(self._timeout, read=self._timeout + size / SLOWEST)
        parts = {"params": _given(params), "headers": headers, "timeout": timeout}
        parts["content"] = content if isinstance(content, bytes) else _Repeatable(content)
        response = self._send(method, path, parts, True, stream=False)
        return _json(response) if response.content else {}

    def open(
        self, path: str, params: Mapping[str, Any], headers: Mapping[str, str], read_timeout: float
    ) -> AbstractContextManager[httpx.Response]:
        """A response whose body is not read yet; closed at the end of its `with` block."""
        timeout = httpx.Timeout(self._timeout, read=read_timeout)
        parts = {"params": _given(params), "headers": headers, "timeout": timeout}
        return closing(self._send("GET", path, parts, True, stream=True))

    def ready(self) -> dict[str, Any]:
        """The response of /readyz from the first server that answers, ready or not."""
        return dict(_json(self._ask("/readyz")))

    def clock(self) -> float:
        """The server's time, in whole seconds."""
        date = self._ask("/healthz").headers.get("Date")
        return parsedate_to_datetime(date).timestamp() if date else time.time()

    def close(self) -> None:
        if "_http" in self.__dict__:
            self._http.close()

    def _ask(self, path: str) -> httpx.Response:
        """The response of the first server that answers; sent without a token."""
        target = self.target()
        failure = Unavailable("No server is known.", START_A_SERVER)
        for url in self._in_turn(target):
            try:
                return self._http.get(f"{url}{path}")
            except httpx.TransportError as error:
                failure = self._unreachable(url, error)
        raise failure

    def _send(self, method: str, path: str, parts: dict[str, Any], repeatable: bool, stream: bool) -> httpx.Response:
        turn, busy_until = 0, time.monotonic() + BUSY_FOR
        while True:
            target = self.target()
            if target.token is None:
                raise Unauthenticated(f"No token for {target.urls[0]}.", "Set MUSTER_TOKEN to one that is valid there.")
            failure: MusterError = Unavailable("No server is known.", START_A_SERVER)
            wait: float | None = None  # seconds to the next round; None when another round is useless
            for url in self._in_turn(target):
                headers = {**parts["headers"], "Authorization": f"Bearer {target.token}"}
                try:
                    request = self._http.build_request(method, f"{url}{path}", **{**parts, "headers": headers})
                    response = self._http.send(request, stream=stream)
                except httpx.TransportError as error:
                    failure = self._unreachable(url, error)
                    if not repeatable and not _unsent(error):
                        raise failure from error
                    if not isinstance(error, httpx.ConnectError | httpx.TimeoutException):
                        wait = SHORT_WAIT  # connection lost, like a kept connection after a restart of the server
                    continue
                if response.is_success:
                    self._preferred = url
                    return response
                response.read()
                response.close()
                failure = error_from(response, url)
                if response.status_code not in (429, 503):
                    raise failure
                wait = _retry_after(response)
            # A server that answers TooMany has done nothing of this request, and will accept it once others are done.
            turn += not isinstance(failure, TooMany)
            if wait is None or turn == ROUNDS or time.monotonic() > busy_until:
                raise failure
            time.sleep(wait)

    def _in_turn(self, target: Target) -> list[str]:
        return sorted(target.urls, key=lambda url: url != self._preferred)

    def _unreachable(self, url: str, error: httpx.TransportError) -> Unavailable:
        if _unsent(error):
            why = "connection refused" if "refused" in str(error).lower() else str(error) or "timed out"
            hint = START_A_SERVER if is_loopback(url) else "Check the address, and that a server runs there."
            return Unavailable(f"No server answers at {url} ({why}).", hint)
        why = "in time" if isinstance(error, httpx.TimeoutException) else f"({error or type(error).__name__})"
        return Unavailable(
            f"The server at {url} did not answer {why}.", "See `muster doctor`; then look what was done."
        )

    @cached_property
    def _http(self) -> httpx.Client:
        urls = self.target().urls
        # Requests to loopback never use the proxy that is configured on a company's machine.
        proxied = not all(is_loopback(url) for url in urls)
        headers = {"User-Agent": f"muster/{__version__}"}
        return httpx.Client(timeout=self._timeout, verify=_trust(urls), trust_env=proxied, headers=headers)


class _Repeatable:
    """Bytes that can be sent again from the start."""

    def __init__(self, make: Callable[[], Iterable[bytes]]) -> None:
        self._make = make

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._make())


def error_from(response: httpx.Response, url: str) -> MusterError:
    """The exception for an error response."""
    try:
        return error_body(response.json()["error"])
    except (ValueError, KeyError, TypeError):
        text = " ".join(response.text[:200].split()) or "nothing"
        return Unavailable(f"{url} answered HTTP {response.status_code}: {text}", "Is it a Muster server?")


def error_body(raw: Mapping[str, Any]) -> MusterError:
    """The exception that the server described, of the same class."""
    code, message, hint = str(raw["code"]), str(raw["message"]), str(raw.get("hint") or "")
    problems = [Problem(**problem) for problem in raw.get("problems") or ()]
    reasons = [Reason.of(reason) for reason in raw.get("reasons") or ()]
    if code == SpecError.code and problems:
        error: MusterError = SpecError(problems, hint=hint)
        error.message = message
        return error
    if code == Refused.code and reasons:
        return Refused(reasons)
    error = _CLASSES.get(code, MusterError)("\n".join([message, *(f"  - {one}" for one in problems)]), hint)
    error.code = code
    return error


def _unsent(error: httpx.TransportError) -> bool:
    """Whether the server can't have received any part of the request."""
    return isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)


def _given(params: Mapping[str, Any] | None) -> dict[str, Any]:
    return {name: value for name, value in (params or {}).items() if value is not None}


def _json(response: httpx.Response) -> Any:
    try:
        return response.json()
    except ValueError as error:
        url = f"{response.url.scheme}://{response.url.netloc.decode()}"
        raise Unavailable(f"{url} did not answer with JSON.", "Is it a Muster server?") from error


def _retry_after(response: httpx.Response) -> float:
    try:
        return min(float(response.headers["Retry-After"]), LONGEST_WAIT)
    except (KeyError, ValueError):
        return SHORT_WAIT


def _trust(urls: tuple[str, ...]) -> ssl.SSLContext:
    if not any(url.startswith("https:") for url in urls):
        # Loading all trusted certificates costs more than a whole request; this context trusts none.
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context = httpx.create_ssl_context()
    if ca_file := os.environ.get("MUSTER_CA_FILE"):
        try:
            context.load_verify_locations(cafile=ca_file)
        except OSError as error:
            raise ConfigError(
                f"MUSTER_CA_FILE is {ca_file}: {error.strerror}.", "Name a file of certificates."
            ) from None
    return context


_CLASSES: Final[dict[str, type[MusterError]]] = {
    kind.code: kind
    for kind in (
        errors.NotFound,
        errors.Unauthenticated,
        errors.NotAllowed,
        errors.Invalid,
        errors.Conflict,
        errors.TooMany,
        errors.Unavailable,
        errors.EngineError,
        errors.ConfigError,
    )
}
