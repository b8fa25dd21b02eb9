"""Finds the server for a script outside Muster's jobs, and opens a run there. Standard library only."""

from __future__ import annotations

import json
import os
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from muster.certificates import trusting_only, why_refused
from muster.runtime.channel import Away

TIMEOUT: Final = 5.0  # seconds for one answer
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")


class ServerRefused(Exception):
    """The server rejected the request: its message, with a hint."""


@dataclass(frozen=True, slots=True)
class Server:
    """Found as `muster.Client` does: explicit arguments, then MUSTER_URL and MUSTER_TOKEN, then the home folder."""

    urls: tuple[str, ...]
    token: str | None
    urls_file: str | None  # for a server of this home, whose address may change
    ca_file: str | None
    certificate: str | None = None  # what a server of this home serves

    def open_run(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """POSTs to /v1/runs/external. Raises Away when no server answers, ServerRefused when one rejects it."""
        if not self.urls:
            raise Away("no server's address is known: set MUSTER_URL, or start one with `muster up -d`")
        if not self.token:
            raise ServerRefused(f"No token for {self.urls[0]}. Set MUSTER_TOKEN to one that is valid there.")
        failure = Away("no server answers")
        for url in self.urls:
            try:
                return self._post(url, request)
            except Away as away:
                failure = away
        raise failure

    def _post(self, url: str, request: Mapping[str, Any]) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        ask = urllib.request.Request(f"{url}/v1/runs/external", json.dumps(request).encode(), headers)  # noqa: S310
        try:
            with self._opener(url).open(ask, timeout=TIMEOUT) as answer:
                return dict(json.load(answer))
        except urllib.error.HTTPError as error:
            with error:
                words = _words(error.read(1 << 16))
            if error.code >= 500 or error.code == 429 or not words:
                raise Away(f"{url} answered with status {error.code}") from error
            raise ServerRefused(words) from error
        except (OSError, ValueError) as error:
            told = why_refused(url, error)
            raise Away(" ".join(told) if told else f"{url}: {error}") from error

    def _opener(self, url: str) -> urllib.request.OpenerDirector:
        context = None
        if url.startswith("https:"):
            own = self.certificate
            context = trusting_only(own) if own else ssl.create_default_context(cafile=self.ca_file)
        handlers: list[urllib.request.BaseHandler] = [urllib.request.HTTPSHandler(context=context)] if context else []
        if (urlsplit(url).hostname or "") in _LOOPBACK:
            handlers.append(urllib.request.ProxyHandler({}))  # a company's proxy is not for this machine
        return urllib.request.build_opener(*handlers)


def home_folder() -> Path:
    return Path(os.environ.get("MUSTER_HOME") or "~/.muster").expanduser().absolute()


def find_server(url: str | None, home: Path) -> Server:
    """Raises ValueError for an invalid address. Without any address, the result has none."""
    given = url or os.environ.get("MUSTER_URL") or ""
    urls = tuple(part.strip().rstrip("/") for part in given.split(",") if part.strip())
    for one in urls:
        if urlsplit(one).scheme not in ("http", "https") or not urlsplit(one).hostname:
            raise ValueError(f"start_run(): the server's address is {one!r}; expected http://HOST:PORT.")
    at_home, certificate = _at_home(home)
    token = os.environ.get("MUSTER_TOKEN") or None
    # The home's token is for the home's own server: it is never sent to an address from elsewhere.
    own = not urls or set(urls) <= set(at_home)
    if token is None and own:
        try:
            token = (home / "token").read_text().strip() or None
        except OSError:
            token = None
    ca_file = os.environ.get("MUSTER_CA_FILE") or None
    file = str(home / "server.json") if own else None
    return Server(urls or at_home, token, file, ca_file, certificate if own else None)


def _at_home(home: Path) -> tuple[tuple[str, ...], str | None]:
    """The addresses and the certificate of a server of this home."""
    try:
        said = json.loads((home / "server.json").read_text())
        return tuple(url.rstrip("/") for url in said["urls"]), said.get("certificate")
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return (), None


def _words(body: bytes) -> str:
    try:
        error = json.loads(body)["error"]
        return f"{error['message']} {error.get('hint') or ''}".strip()
    except (ValueError, KeyError, TypeError):
        return ""
