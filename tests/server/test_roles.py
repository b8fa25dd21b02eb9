"""Every route is tried with every role: those that it declares may use it, and nobody else.

The routes and their roles are those of the OpenAPI document, which takes too long to make while tests are collected:
the first test holds the two together. A new route whose request needs more than the usual
names gets a line in `role_kit.REQUESTS`.
"""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from live import live_server
from role_kit import PEOPLE, REQUESTS, ServerSetup, make_setup, request_of
from shape_kit import document, operations

ROLES = {name: route.role for name, route in operations().items()}
IN_PROJECT = {"viewer": "viewer", "auditor": "viewer", "member": "member", "admin": "admin", "superuser": "admin"}
# What a token for finance may besides reading costs: the names of projects, and to sign a browser in and out.
OF_FINANCE = {"GET /v1/projects", "GET /v1/session", "DELETE /v1/session", "POST /v1/session/links"}
ORDER = ("viewer", "member", "admin")

# Content has no project before a run names it: a member of any project may store some.
OF_ANY_PROJECT = {"POST /v1/blobs/missing", "POST /v1/blobs/bundle", "PUT /v1/blobs/{digest}"}
# A batch answers 200 and refuses each of its jobs. A job's secrets and code are tried in `test_code_routes.py` and
# `test_access.py`: the script that asks here has none, and is told so.
EACH_ON_ITS_OWN = "POST /v1/jobs/batch"
HAS_NONE = {
    "GET /v1/ingest/secrets", "GET /v1/ingest/code", "POST /v1/ingest/code/bundle", "HEAD /v1/ingest/blobs/{digest}",
}  # fmt: skip


@pytest.fixture(scope="module")
def setup(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerSetup]:
    with live_server(tmp_path_factory.mktemp("roles")) as server:
        made = make_setup(server)
        yield made
        for client in (made.root, *made.people.values()):
            client.close()


def test_the_document_has_these_routes_with_these_roles() -> None:
    paths = document()["paths"].items()
    found = {f"{method.upper()} {path}": one["x-role"] for path, methods in paths for method, one in methods.items()}
    assert found == ROLES


def may(route: str, who: str) -> bool:
    needed = ROLES[route]
    if needed == "nobody":
        return True
    if "attempt" in (who, needed):
        return who == needed
    if who == "nobody":
        return False
    if who == "finance":
        return route.startswith(("GET /v1/cost", "GET /allocation", "GET /model/allocation")) or route in OF_FINANCE
    if needed == "anyone" or (who == "outsider" and route in OF_ANY_PROJECT):
        return True
    if needed in ("auditor", "superuser"):
        return who in (needed, "superuser")
    return who in IN_PROJECT and ORDER.index(IN_PROJECT[who]) >= ORDER.index(needed)


def status(setup: ServerSetup, route: str, who: str) -> tuple[int, str]:
    """How it is answered. The body of a stream is left alone, unless it is an error."""
    path, given = request_of(route, setup, who)
    setup.people[who].cookies.clear()  # of a session that another route began
    with setup.people[who].stream(route.partition(" ")[0], path, **given) as answer:
        if answer.status_code < 400 and route != EACH_ON_ITS_OWN:
            return answer.status_code, ""
        answer.read()
        return _of_batch(answer) if answer.status_code == 200 else (answer.status_code, answer.text)


def _of_batch(answer: httpx.Response) -> tuple[int, str]:
    (told,) = answer.json()["jobs"]
    codes = {"not_allowed": 403, "not_found": 404}
    return codes[told["error"]["code"]] if "error" in told else 200, answer.text


@pytest.mark.parametrize("route", sorted(ROLES))
def test_those_that_it_declares_and_nobody_else(setup: ServerSetup, route: str) -> None:
    for who in PEOPLE:
        found, told = status(setup, route, who)
        if may(route, who):
            refusals = {401, 403} if who == "attempt" and route in HAS_NONE else {401, 403, 404}
            assert found not in refusals, f"{who} may: {found} {told}"
            assert found < 500 or route == "GET /readyz", f"{who}: {found} {told}"
        else:
            refusals = {401} if who in ("nobody", "attempt") or ROLES[route] == "attempt" else {403, 404}
            assert found in refusals, f"{who} may not: {found} {told}"


def test_the_exceptions_and_the_requests_are_of_routes_that_exist() -> None:
    assert {*OF_ANY_PROJECT, *OF_FINANCE, *HAS_NONE, EACH_ON_ITS_OWN, *REQUESTS} <= set(ROLES)
