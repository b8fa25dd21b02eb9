"""Finds the server and the token: from the arguments, the environment, or the home folder of a local server."""

from __future__ import annotations

import ipaddress
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from muster.core.errors import ConfigError, Unavailable

START_A_SERVER: Final = "Start a server with `muster up -d`."


@dataclass(frozen=True, slots=True)
class Target:
    """Where to send requests, and with which token."""

    urls: tuple[str, ...]
    token: str | None
    home: Path
    certificate: str | None = None  # what the home's own server serves

    @property
    def local(self) -> bool:
        """Whether every server is on this machine, and so sees the same files."""
        return all(is_loopback(url) for url in self.urls)


def default_home() -> Path:
    return Path(os.environ.get("MUSTER_HOME") or "~/.muster").expanduser().absolute()


def find_target(url: str | None, token: str | None, home: Path) -> Target:
    """Arguments first, then MUSTER_URL and MUSTER_TOKEN, then the files that a server wrote into its home folder."""
    given = url or os.environ.get("MUSTER_URL") or ""
    urls = tuple(part.strip().rstrip("/") for part in given.split(",") if part.strip())
    for one in urls:
        if urlsplit(one).scheme not in ("http", "https") or not urlsplit(one).hostname:
            where = "url" if url else "MUSTER_URL"
            raise ConfigError(f"{where} is {one!r}, which is no address.", "Write it as http://HOST:PORT.")
    at_home, certificate = _at_home(home)
    if not urls and not at_home:
        raise Unavailable(f"No server is running for {home}.", f"{START_A_SERVER} For one elsewhere set MUSTER_URL.")
    urls = urls or at_home
    token = token or os.environ.get("MUSTER_TOKEN") or None
    own = set(urls) <= set(at_home)
    # The home's token is for the home's own server: it is never sent to an address from another source.
    if token is None and own:
        token = _home_token(home)
    return Target(urls, token, home, certificate if own else None)


def server_of(uri: str) -> str | None:
    """The address of the server that `muster://HOST:PORT` names, as other tools write it; None for `muster://` and
    `muster:`, whose server is found in the usual way."""
    parts = urlsplit(uri)
    secure = "https" if parts.port == 443 else "http"
    return f"{secure}://{parts.netloc}" if parts.netloc else None


def words_of(uri: str) -> dict[str, str]:
    """What stands behind the question mark, such as `project=vision`."""
    return dict(parse_qsl(urlsplit(uri).query, keep_blank_values=True))


def is_loopback(url: str) -> bool:
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def _at_home(home: Path) -> tuple[tuple[str, ...], str | None]:
    """The addresses of the home's server and the certificate that it serves."""
    try:
        said = json.loads((home / "server.json").read_text())
        return tuple(url.rstrip("/") for url in said["urls"]), said.get("certificate")
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return (), None  # none, or being replaced at this moment


def _home_token(home: Path) -> str | None:
    try:
        return (home / "token").read_text().strip() or None
    except OSError:
        return None
