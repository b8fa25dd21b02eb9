"""Signs clients in as the web page does: by a one-time link, with a cookie and a CSRF token."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from live import PATIENCE, LiveServer

SESSION, CSRF = "/v1/session", "X-Muster-CSRF"


def new_user(server: LiveServer, user: str, **roles: str) -> dict[str, Any]:
    """A token of a user with these roles; the projects are made."""
    for project, role in roles.items():
        with server.http() as http:
            http.post("/v1/projects", json={"name": project})
            assert http.put(f"/v1/projects/{project}/members/{user}", json={"role": role}).status_code == 200
    made: dict[str, Any] = server.post("/v1/tokens", {"user": user})
    return made


def new_link(server: LiveServer, token: str | None = None, page: str = "/") -> str:
    """The code of a one-time link."""
    with server.http(token) as http:
        answer = http.post(f"{SESSION}/links", json={"page": page})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["url"]).partition("#")[2]


@contextmanager
def browser(server: LiveServer) -> Iterator[httpx.Client]:
    """A client without a token, which keeps cookies."""
    with httpx.Client(base_url=server.url, timeout=PATIENCE, trust_env=False) as made:
        yield made


@contextmanager
def signed_in(server: LiveServer, token: str | None = None, **given: str) -> Iterator[httpx.Client]:
    """By a link of this token, unless `given` says by what else."""
    with browser(server) as made:
        answer = made.post(SESSION, json=given or {"code": new_link(server, token)})
        assert answer.status_code == 201, answer.text
        made.headers[CSRF] = answer.json()["csrf"]
        yield made


def cookie_of(client: httpx.Client) -> str:
    """The session cookie as a header has it."""
    (cookie,) = client.cookies.jar
    return f"{cookie.name}={cookie.value}"
