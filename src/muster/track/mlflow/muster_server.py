"""Client of a Muster server for imports: calls its own routes and those under /mlflow, with both formats of errors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import httpx

from muster.core.errors import Conflict, Invalid, MusterError, NotAllowed, NotFound, Unavailable

_BLOCK: Final = 1 << 20  # bytes
_TIMEOUT: Final = 120.0  # seconds to wait for an answer
_ERRORS: Final[dict[int, type[MusterError]]] = {400: Invalid, 403: NotAllowed, 404: NotFound, 409: Conflict}


class Muster:
    """`transport` is that of a `muster.Client`: it has the address, the token and the trusted certificates."""

    def __init__(self, transport: Any) -> None:
        self._transport = transport

    def call(self, method: str, path: str, body: Any = None, params: Any = None) -> Any:
        return self._send(method, path, json=body, params=params).json()

    def upload(self, path: str, content: bytes | Path, mime: str) -> None:
        data = _blocks(content) if isinstance(content, Path) else content
        self._send("PUT", path, content=data, headers={"Content-Type": mime or "application/octet-stream"})

    def _send(self, method: str, path: str, *, headers: dict[str, str] | None = None, **parts: Any) -> httpx.Response:
        target = self._transport.target()
        given = {**(headers or {}), "Authorization": f"Bearer {target.token}"}
        try:
            answer: httpx.Response = self._transport._http.request(
                method, f"{target.urls[0]}{path}", headers=given, timeout=_TIMEOUT, **parts
            )
        except httpx.TransportError as error:
            raise Unavailable(f"The server at {target.urls[0]} went away ({error}).", "Import it again.") from error
        if not answer.is_success:
            raise _error(answer)
        return answer


def _error(answer: httpx.Response) -> MusterError:
    try:
        found = answer.json()
    except ValueError:
        return Unavailable(f"The server answered HTTP {answer.status_code}: {answer.text[:200]}", "See its log.")
    error = found.get("error") or found
    if found.get("error_code") == "RESOURCE_ALREADY_EXISTS":
        return Conflict(str(found["message"]))
    return _ERRORS.get(answer.status_code, Unavailable)(str(error.get("message")), str(error.get("hint") or ""))


def _blocks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while data := file.read(_BLOCK):
            yield data
