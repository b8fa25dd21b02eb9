"""Who sends a request: by its Authorization header, else, under /v1, by a browser's session cookie.

A cookie comes with requests that its user did not mean to send, and browsers send it to every port of a host: another
program there, such as a job's dashboard, may see it. So it is one half of a session. The other is its CSRF token, which
is told once, when the session begins, and which the page keeps where no other port can read it. Only files that a link
downloads are sent without it. None may come from another site. `identify` checks all of it, for each request and each
look of a stream.
"""

from __future__ import annotations

import hmac
import ipaddress
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from starlette.types import Scope

from muster.core.errors import Invalid, NotAllowed, Unauthenticated
from muster.server.auth import Identity, authenticate, stand_in
from muster.server.hosts import without_port
from muster.server.web.signing import Share, only_shared

if TYPE_CHECKING:
    from muster.server.leader import Leader
    from muster.server.web.sessions import Sessions

SIGN_IN: Final = "/v1/session"  # where a session begins, by POST
CSRF: Final = "X-Muster-CSRF"
SAFE: Final = frozenset({"GET", "HEAD"})
LONGEST: Final = 500  # characters of an Authorization header
_WITH_COOKIE: Final = re.compile(r"/v1/.*", re.DOTALL)
OF_ATTEMPTS: Final = re.compile(r"/v1/ingest(/.*)?|/v1/runs/external/beat")
# What the link of a share shows: the parts of one run's pages. Left out is what is mostly about other runs and jobs.
_SHARED: Final = re.compile(
    r"/v1/(?:jobs|runs)/([^/]+)(?:/(?:artifacts|attempts|changes|checkpoints|code|diagnosis|logbook|logs|media|metrics"
    r"|notes|page|points|ranks|reproduction|spec|stacks|statements|stream|summary)(?:/.*)?)?",
    re.DOTALL,
)

# Files, which a browser downloads by a link: that can't send a header.
_FILES: Final = re.compile(r"/v1/runs/[^/]+/(?:artifacts|media)/.+", re.DOTALL)

Headers = Mapping[bytes, bytes]  # of repeated headers the first


def headers_of(scope: Scope) -> dict[bytes, bytes]:
    return dict(reversed(scope["headers"]))


def identify(scope: Scope, leader: Leader) -> Identity:
    """The identity behind a request. Raises Unauthenticated or NotAllowed."""
    headers, state, now = headers_of(scope), leader.store.state(), leader.clock.now()
    cookie = cookie_of(scope, headers, leader.sessions)
    if cookie is None:
        return authenticate(text(headers, b"authorization") or None, state, now)
    session = leader.sessions.read(cookie, now)
    found = stand_in(session, state, now)
    _check_site(scope, headers)
    if not (scope["method"] in SAFE and _FILES.fullmatch(scope["path"])):
        _check_csrf(scope, headers, leader.sessions.csrf(session))
    if session.share is not None:
        _check_shared(scope, session.share)
    return found


def cookie_of(scope: Scope, headers: Headers, sessions: Sessions) -> str | None:
    """The session cookie by which the request is authenticated; None if it is not. Raises Unauthenticated for two."""
    path = scope["path"]
    if b"authorization" in headers or not _WITH_COOKIE.fullmatch(path) or OF_ATTEMPTS.fullmatch(path):
        return None
    name = cookie_name(scope, sessions)
    found = {value for key, value in cookies_of(scope) if key == name}
    if len(found) > 1:  # another program on this host has set one: it must not choose as whom the user acts
        raise Unauthenticated(
            "The request has several session cookies.", "Clear the cookies of this host, then sign in."
        )
    return next(iter(found), None)


def forged(scope: Scope, sessions: Sessions) -> bool:
    """Whether a request has a session cookie that this server did not make."""
    try:
        cookie = cookie_of(scope, headers_of(scope), sessions)
    except Unauthenticated:
        return True
    return cookie is not None and not sessions.known(cookie)


def check_sign_in(scope: Scope, headers: Headers) -> None:
    """For the request that begins a session. Raises if another site may have sent it: it would sign in its own user.

    Raises as well if the browser would drop the cookie.
    """
    if text(headers, b"content-type").partition(";")[0].strip().lower() != "application/json":
        raise Invalid("The request is not JSON.", "Send it with `Content-Type: application/json`.")
    _check_site(scope, headers)
    if needs_secure(scope) and text(headers, b"origin").startswith("http:"):
        raise NotAllowed(
            "Over plain HTTP from another machine a browser does not keep the session.",
            "Use HTTPS, or `ssh -L 6878:127.0.0.1:6878 HOST` and http://127.0.0.1:6878; see docs/web.md.",
        )


def own_origin(scope: Scope) -> str:
    """The address that the client has used, such as `http://127.0.0.1:6878`."""
    return f"{scope['scheme']}://{text(headers_of(scope), b'host')}"


def needs_secure(scope: Scope) -> bool:
    """Whether the cookie is for encrypted connections alone: always, but on the user's own machine."""
    name = without_port(text(headers_of(scope), b"host").strip().lower()).rstrip(".")
    try:
        here = name == "localhost" or ipaddress.ip_address(name).is_loopback
    except ValueError:
        here = False
    return scope["scheme"] == "https" or not here


def cookie_name(scope: Scope, sessions: Sessions) -> str:
    """With the prefix that lets browsers take it over encrypted connections alone, where it needs one."""
    return f"__Secure-{sessions.cookie}" if needs_secure(scope) else sessions.cookie


def text(headers: Headers, name: bytes) -> str:
    return headers.get(name, b"").decode("latin-1")


def _check_site(scope: Scope, headers: Headers) -> None:
    """Raises NotAllowed for a request that a page of another origin caused, as far as the browser says so."""
    origin, site = text(headers, b"origin"), text(headers, b"sec-fetch-site")
    own = {own_origin(scope)}
    if scope["scheme"] == "http":  # a proxy may have ended TLS before
        own.add(f"https://{text(headers, b'host')}")
    if (origin and origin not in own) or site not in ("", "same-origin", "none"):
        raise NotAllowed(
            f"The request comes from another site{f' ({origin[:100]})' if origin else ''}.",
            "Open the page at the address that `muster open` prints. A proxy before the server must pass on Host.",
        )


def _check_csrf(scope: Scope, headers: Headers, wanted: str) -> None:
    if hmac.compare_digest(text(headers, CSRF.lower().encode()).encode(), wanted.encode()):
        return
    refused = f"The request has a session's cookie, and not the session's {CSRF} header."
    if scope["method"] in SAFE:
        raise Unauthenticated(refused, "Sign in again: `muster open` prints a link.")
    raise NotAllowed(refused, "Sign in again; a program sends a token in the Authorization header instead.")


def _check_shared(scope: Scope, share: Share) -> None:
    """A share reads the pages of its run, and may sign out."""
    path: str = scope["path"]
    if path == SIGN_IN and scope["method"] in (*SAFE, "DELETE"):
        return
    found = _SHARED.fullmatch(path)
    dotted = any(part in (".", "..") for part in path.split("/"))
    if scope["method"] not in SAFE or found is None or found[1] != share.run or dotted:
        raise only_shared(share)


def cookies_of(scope: Scope) -> list[tuple[str, str]]:
    given = (value.decode("latin-1") for key, value in scope["headers"] if key == b"cookie")
    pairs = (pair.partition("=") for header in given for pair in header.split(";"))
    return [(name.strip(), value.strip()) for name, _, value in pairs]
