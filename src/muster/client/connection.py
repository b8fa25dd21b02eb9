"""What both clients are: the connection to the servers, and the classes of what they return: jobs, runs, studies."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar
from urllib.parse import quote

from muster.client.http import Transport
from muster.client.stream import RETRY_FOR, Link
from muster.client.target import Target, default_home

Doc = dict[str, Any]  # JSON as the API documents it
J = TypeVar("J")  # the class of jobs
R = TypeVar("R")  # the class of runs
S = TypeVar("S")  # the class of studies


class Connection(ABC, Generic[J, R, S]):
    """The calls of the API are functions over a connection; a client is a connection that has them as methods."""

    _transport_class: ClassVar[type[Transport]]

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        home: str | Path | None = None,
        timeout: float = 30,
        *,
        ca_file: str | Path | None = None,
        retry_for: float = RETRY_FOR,
        on_link: Link | None = None,
    ) -> None:
        """A stream waits `retry_for` seconds for a lost server; `on_link` is called on loss and on return.

        `ca_file` has certificates to trust, for a server with TLS elsewhere; default: MUSTER_CA_FILE.
        """
        folder = Path(home).expanduser().absolute() if home else default_home()
        self._transport = self._transport_class(url, token, folder, timeout, ca_file)
        self._retry_for = retry_for
        self._on_link = on_link

    @property
    def target(self) -> Target:
        """Where requests currently go. Raises Unavailable when no server is known."""
        return self._transport.target()

    @abstractmethod
    def _job(self, view: Any) -> J: ...

    @abstractmethod
    def _run(self, view: Any) -> R: ...

    @abstractmethod
    def _study(self, view: Any) -> S: ...

    async def _get(self, path: str, **params: Any) -> Any:
        return await self._transport.call("GET", path, params=params)

    async def _send(self, method: str, path: str, body: Any = None, key: str | None = None, **params: Any) -> Any:
        return await self._transport.call(method, path, params=params, body=body, key=key)


Anyone = Connection[Any, Any, Any]


def part(text: str | int) -> str:
    """The text quoted for use in a path."""
    return quote(str(text), safe="")


def job_path(ref: str | int, *parts: str) -> str:
    return "/".join(["/v1/jobs", *map(part, (ref, *parts))])


def run_path(ref: str | int, *parts: str) -> str:
    return "/".join(["/v1/runs", *map(part, (ref, *parts))])


def study_path(ref: str | int, *parts: str) -> str:
    return "/".join(["/v1/studies", *map(part, (ref, *parts))])
