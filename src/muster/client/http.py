"""HTTP transport of the clients: tries several servers in turn, and turns error responses into exceptions.

It is written once, as coroutines. What differs between a blocking and an asynchronous client is in two subclasses:
`BlockingTransport` of `blocking.py` and `AsyncTransport` of `async_client.py`.
"""

from __future__ import annotations

import os
import ssl
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, Final, ParamSpec, TypeVar

import httpx

from muster import __version__
from muster.certificates import trusting_only, why_refused
from muster.client.answers import error_from
from muster.client.target import START_A_SERVER, Target, find_target, is_loopback
from muster.core.errors import ConfigError, MusterError, TooMany, Unauthenticated, Unavailable

ROUNDS: Final = 3  # rounds over all servers as long as at least one answers "not now"
LONGEST_WAIT: Final = 2.0  # maximum seconds between two rounds, whatever Retry-After says
SHORT_WAIT: Final = 0.2
BUSY_FOR: Final = 60.0  # seconds for which a request is repeated while the server answers TooMany
SLOWEST: Final = 2e6  # bytes per second: decides how long to wait for an upload

P = ParamSpec("P")
T = TypeVar("T")
Blocks = Callable[[], Iterable[bytes]]  # a request's content, from its start at each call


class Silence(Unavailable):
    """An open response of which nothing more arrived within its read timeout; the server may be there all the same."""


class Transport(ABC):
    """Sends requests to the first server that answers. Safe for many calls at once."""

    def __init__(
        self, url: str | None, token: str | None, home: Path, timeout: float, ca_file: str | Path | None = None
    ) -> None:
        self.home = home
        self._given = (url, token)
        self._ca_file = ca_file
        self._timeout = timeout
        self._preferred = ""  # the server that answered last
        self._closed = False

    def target(self) -> Target:
        """Looked up every time: a restarted server may listen elsewhere."""
        return find_target(*self._given, self.home)

    async def call(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, Any] | None = None,
        body: Any = None,
        key: str | None = None,
        more: Mapping[str, str] | None = None,
        work: float = 0.0,
    ) -> Any:
        """The JSON of the response. Raises the server's error, or Unavailable. `more`: headers. `work`: seconds that
        the server may need for the response, beyond the usual."""
        headers = {**(more or {}), **({"Idempotency-Key": key} if key else {})}
        repeatable = key is not None or method in ("GET", "PUT")
        parts: dict[str, Any] = {"params": _given(params), "json": body, "headers": headers}
        if work:
            parts["timeout"] = httpx.Timeout(self._timeout, read=self._timeout + work)
        response = await self._send(method, path, parts, repeatable, stream=False)
        return _json(response) if response.content else {}

    async def send_content(
        self,
        method: str,
        path: str,
        content: bytes | Blocks,
        size: int,
        params: Mapping[str, Any] | None = None,
    ) -> Any:
        """Sends bytes, or what the function returns at each try. Returns the JSON of the response."""
        headers = {"Content-Type": "application/octet-stream", "Content-Length": str(size)}
        # The server responds when everything is on its disk or in its object store.
        timeout = httpx.Timeout(self._timeout, read=self._timeout + size / SLOWEST)
        parts = {"params": _given(params), "headers": headers, "timeout": timeout}
        parts["content"] = content if isinstance(content, bytes) else self._body(content)
        response = await self._send(method, path, parts, True, stream=False)
        return _json(response) if response.content else {}

    @asynccontextmanager
    async def open(
        self,
        path: str,
        params: Mapping[str, Any],
        read_timeout: float,
        headers: Mapping[str, str] | None = None,
        busy_for: float = BUSY_FOR,
    ) -> AsyncIterator[httpx.Response]:
        """A response whose body is read with `blocks`; closed at the end of its `with` block."""
        timeout = httpx.Timeout(self._timeout, read=read_timeout)
        parts = {"params": _given(params), "headers": headers or {}, "timeout": timeout}
        response = await self._send("GET", path, parts, True, stream=True, busy_for=busy_for)
        try:
            yield response
        except httpx.ReadTimeout as error:
            raise Silence(f"The server sent nothing for {read_timeout:.3g} s.", "See `muster doctor`.") from error
        except httpx.TransportError as error:
            raise Unavailable(f"The server went away ({type(error).__name__}).", "See `muster doctor`.") from error
        finally:
            await self._finish(response)

    async def read(self, path: str, params: Mapping[str, Any], read_timeout: float) -> bytes:
        """The whole body of a response that is no JSON."""
        async with self.open(path, params, read_timeout) as response:
            return b"".join([block async for block in self.blocks(response)])

    async def ready(self) -> Any:
        """The response of /readyz from the first server that answers, ready or not."""
        return _json(await self._ask("/readyz"))

    async def clock(self) -> float:
        """The server's time, in whole seconds."""
        date = (await self._ask("/healthz")).headers.get("Date")
        return parsedate_to_datetime(date).timestamp() if date else time.time()

    async def close(self) -> None:
        """Closes every connection. Calls that are under way fail."""
        self._closed = True
        if "_http" in self.__dict__:
            await self._disconnect()

    # --- what a blocking and an asynchronous client do differently ---------------------------------------------------

    @abstractmethod
    def blocks(self, response: httpx.Response, size: int | None = None) -> AsyncGenerator[bytes, None]:
        """The body as it arrives, or in pieces of `size` bytes."""

    @abstractmethod
    async def sleep(self, seconds: float) -> None: ...

    @abstractmethod
    async def work(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Calls a function that reads files or computes for long."""

    @abstractmethod
    def waiter(self) -> Callable[[Awaitable[Any]], Any]:
        """A function that waits for an awaitable of this client, to be called by what `work` runs."""

    @abstractmethod
    async def each(self, lanes: int, function: Callable[[T], Awaitable[None]], items: Iterable[T]) -> None:
        """Calls the function with every item, at most `lanes` at the same time."""

    @abstractmethod
    async def _exchange(self, method: str, url: str, parts: Mapping[str, Any], stream: bool) -> httpx.Response:
        """Sends one request to one server."""

    @abstractmethod
    async def _finish(self, response: httpx.Response) -> None: ...

    @abstractmethod
    async def _disconnect(self) -> None: ...

    @abstractmethod
    def _body(self, make: Blocks) -> Any:
        """Content that can be sent again from its start."""

    # --- the same in both ---------------------------------------------------------------------------------------------

    async def _ask(self, path: str) -> httpx.Response:
        """The response of the first server that answers; sent without a token."""
        target = self.target()
        failure: MusterError = Unavailable("No server is known.", START_A_SERVER)
        for url in self._in_turn(target):
            try:
                return await self._exchange("GET", f"{url}{path}", {}, False)
            except httpx.TransportError as error:
                failure = self._unreachable(url, error)
        raise failure

    async def _send(
        self,
        method: str,
        path: str,
        parts: dict[str, Any],
        repeatable: bool,
        stream: bool,
        busy_for: float = BUSY_FOR,
    ) -> httpx.Response:
        turn, busy_until = 0, time.monotonic() + busy_for
        while True:
            if self._closed:
                raise RuntimeError("The client is closed.")
            target = self.target()
            if target.token is None:
                raise Unauthenticated(f"No token for {target.urls[0]}.", "Set MUSTER_TOKEN to one that is valid there.")
            failure: MusterError = Unavailable("No server is known.", START_A_SERVER)
            wait: float | None = None  # seconds to the next round; None when another round is useless
            for url in self._in_turn(target):
                headers = {**parts["headers"], "Authorization": f"Bearer {target.token}"}
                try:
                    response = await self._exchange(method, f"{url}{path}", {**parts, "headers": headers}, stream)
                    failed = None if response.is_success else await self._failed(response, url)
                except httpx.TransportError as error:
                    failure = self._unreachable(url, error)
                    if not repeatable and not _unsent(error):
                        raise failure from error
                    if not isinstance(error, httpx.ConnectError | httpx.TimeoutException):
                        wait = SHORT_WAIT  # connection lost, like a kept connection after a restart of the server
                    continue
                if failed is None:
                    self._preferred = url
                    return response
                failure = failed
                if response.status_code not in (429, 503):
                    raise failure
                wait = _retry_after(response)
            # A server that answers TooMany has done nothing of this request, and will accept it once others are done.
            turn += not isinstance(failure, TooMany)
            if wait is None or turn == ROUNDS or time.monotonic() >= busy_until:
                raise failure
            await self.sleep(wait)

    async def _failed(self, response: httpx.Response, url: str) -> MusterError:
        """The exception for an error response, whose body is read for it."""
        try:
            body = b"".join([block async for block in self.blocks(response)])
        finally:
            await self._finish(response)
        return error_from(response.status_code, body, url)

    def _in_turn(self, target: Target) -> list[str]:
        return sorted(target.urls, key=lambda url: url != self._preferred)

    def _unreachable(self, url: str, error: httpx.TransportError) -> MusterError:
        if told := why_refused(url, error):
            return ConfigError(*told)
        if _unsent(error):
            why = "connection refused" if "refused" in str(error).lower() else str(error) or "timed out"
            hint = START_A_SERVER if is_loopback(url) else "Check the address, and that a server runs there."
            return Unavailable(f"No server answers at {url} ({why}).", hint)
        why = "in time" if isinstance(error, httpx.TimeoutException) else f"({error or type(error).__name__})"
        hint = "See `muster doctor`; then look what was done."
        if url.startswith("http:") and isinstance(error, httpx.ReadError | httpx.RemoteProtocolError):
            hint += " If it listens with TLS, write https:// in its address."
        return Unavailable(f"The server at {url} did not answer {why}.", hint)

    def _settings(self) -> dict[str, Any]:
        """Of httpx's client."""
        target = self.target()
        # Requests to loopback never use the proxy that is configured on a company's machine.
        proxied = not all(is_loopback(url) for url in target.urls)
        headers = {"User-Agent": f"muster/{__version__}"}
        return {
            "timeout": self._timeout,
            "verify": _trust(target, self._ca_file),
            "trust_env": proxied,
            "headers": headers,
        }


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


def _trust(target: Target, given: str | Path | None) -> ssl.SSLContext:
    if not any(url.startswith("https:") for url in target.urls):
        # Loading all trusted certificates costs more than a whole request; this context trusts none.
        return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if target.certificate:
        return trusting_only(target.certificate)
    context = httpx.create_ssl_context()
    if ca_file := given or os.environ.get("MUSTER_CA_FILE"):
        where = f"{'ca_file' if given else 'MUSTER_CA_FILE'} is {ca_file}"
        try:
            context.load_verify_locations(cafile=ca_file)
        except ssl.SSLError:
            raise ConfigError(f"{where}, which holds no certificate.", "Name a file of certificates (PEM).") from None
        except OSError as error:
            raise ConfigError(f"{where}: {error.strerror}.", "Name a file of certificates (PEM).") from None
    return context
