"""The web page's files: built by `make web`, packed into the wheel, kept in memory, and sent to anybody.

They hold no user's data. Every path that is no route of the API is a page of the same `index.html`, whose script looks
at the address.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Final

from anyio import to_thread
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.routing import BaseRoute, Match
from starlette.types import Receive, Scope, Send

import muster
from muster.server.answers import answer

PAGES: Final = Path(muster.__file__).parent / "web_pages"
OIDC: Final = "/v1/session/oidc"  # where a sign-in through a provider begins
# Routes that a browser asks for before anybody is signed in.
SIGN_IN_ROUTES: Final = frozenset({OIDC, f"{OIDC}/callback", "/v1/session/provider"})
# The first parts of paths that are no pages. A test holds them and the routes together.
RESERVED: Final = frozenset(
    {"v1", "mlflow", "docs", "openapi.json", "metrics", "healthz", "readyz", "allocation", "model"}
)
STYLES: Final = "'self'"  # scripts set what changes by the object model, which is no inline style
POLICY: Final = (
    f"default-src 'none'; script-src 'self'; style-src {STYLES}; img-src 'self' data: blob:; connect-src 'self'; "
    "font-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
_HEADERS: Final = {
    "Content-Security-Policy": POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Vary": "Accept-Encoding",
}
_FOR_EVER: Final = "public, max-age=31536000, immutable"  # an asset's name has the hash of its content
_ASK_AGAIN: Final = "no-cache"
_FRESH: Final = 1.0  # seconds for which the folder is not looked at again
_ENCODINGS: Final = {"br": ".br", "gzip": ".gz"}  # the best first, with how the name of such a file ends
_TYPES: Final = {
    ".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8",
    ".json": "application/json", ".map": "application/json", ".webmanifest": "application/manifest+json",
    ".svg": "image/svg+xml", ".png": "image/png", ".ico": "image/x-icon", ".woff2": "font/woff2",
    ".txt": "text/plain; charset=utf-8", ".wasm": "application/wasm",
}  # fmt: skip
_AT_ROOT: Final = re.compile(r"/[^/]+\.[a-z0-9]{1,12}")  # such as /favicon.svg
_NOT_BUILT: Final = (
    "<!doctype html><html lang=en><meta charset=utf-8><title>Muster</title>"
    "<h1>The web page was not built</h1><p>This Muster was not installed from a wheel, which has it. "
    "<code>make web</code> in its source builds it; the server need not be restarted. "
    "Everything else works: see <a href=/docs>the API</a>, and <code>muster --help</code>.</p></html>"
)


def is_page(scope: Scope) -> bool:
    """Whether a request is for a page or a file of one, and not for the API."""
    path: str = scope["path"]
    if scope["method"] not in ("GET", "HEAD") or path[1:].partition("/")[0] in RESERVED:
        return False
    if path == "/" or path.startswith("/assets/") or _AT_ROOT.fullmatch(path):
        return True
    return "text/html" in Headers(scope=scope).get("accept", "").lower()


@dataclass(frozen=True, slots=True)
class File:
    content: Mapping[str, bytes]  # by encoding; "" is the file as it is
    kind: str
    digest: str


@dataclass(slots=True)
class Site:
    """The files of a folder by their paths. Nothing but what is listed here is ever sent."""

    folder: Path
    _files: Mapping[str, File] = field(default_factory=dict)
    _built_at: tuple[int, ...] = ()  # when what is in memory was written, in nanoseconds
    _looked: float = float("-inf")  # when the folder was looked at, by the steady clock

    def find(self, path: str) -> File | None:
        """The file of a path; for a page, `index.html`. As the folder was when it was looked at last."""
        is_file = path.startswith("/assets/") or _AT_ROOT.fullmatch(path)
        return self._files.get(path if is_file else "/index.html")

    def look(self) -> None:
        """Reads the folder anew when it was built again."""
        try:
            built_at = tuple((self.folder / name).stat().st_mtime_ns for name in ("index.html", "assets"))
        except OSError:
            self._files, self._built_at = {}, ()
            return
        if built_at != self._built_at:
            self._files, self._built_at = _read(self.folder), built_at
        self._looked = time.monotonic()

    @property
    def fresh(self) -> bool:
        """Whether it was looked at just now."""
        return time.monotonic() - self._looked < _FRESH

    @property
    def built(self) -> bool:
        return (self.folder / "index.html").is_file()


class PageRoute(BaseRoute):
    """The route of all pages. No path of the API is one (`RESERVED`)."""

    path = "/{page}"  # in the figures of requests

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        if scope["type"] == "http" and is_page(scope):
            return Match.FULL, {"route": self}
        return Match.NONE, {}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        site: Site = scope["app"].state.service.site
        if not site.fresh:  # a page is several files at once, and a thread's turn takes longer than all else here
            await to_thread.run_sync(site.look)
        found = site.find(scope["path"])
        await (_missing(site) if found is None else _sent(scope, found))(scope, receive, send)


def _missing(site: Site) -> Response:
    if not site.built:
        return Response(_NOT_BUILT, 404, _HEADERS, "text/html")
    hint = "Load the page again: it may be older than the server."
    return answer(404, {"code": "not_found", "message": "The web page has no such file.", "hint": hint})


def _sent(scope: Scope, found: File) -> Response:
    asked = Headers(scope=scope)
    encoding = _encoding(asked.get("accept-encoding", ""), found)
    tag = f'"{found.digest}{f"-{encoding}" if encoding else ""}"'
    cached = _FOR_EVER if scope["path"].startswith("/assets/") else _ASK_AGAIN
    headers = {**_HEADERS, "Cache-Control": cached, "ETag": tag}
    if tag in asked.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    headers |= {"Content-Type": found.kind, **({"Content-Encoding": encoding} if encoding else {})}
    content = found.content[encoding]
    if scope["method"] == "HEAD":
        return Response(headers={**headers, "Content-Length": str(len(content))})
    return Response(content, headers=headers)


def _encoding(accepted: str, found: File) -> str:
    """The best encoding that the client takes and the build has written; "" for none."""
    taken = {
        name.strip().lower(): _weight(rest) for name, _, rest in (one.partition(";") for one in accepted.split(","))
    }
    return next((name for name in _ENCODINGS if taken.get(name, 0.0) > 0 and name in found.content), "")


def _weight(parameter: str) -> float:
    name, _, value = parameter.partition("=")
    try:
        return float(value) if name.strip().lower() == "q" else 1.0
    except ValueError:
        return 0.0


def _read(folder: Path) -> dict[str, File]:
    """Every file of the folder with its encoded variants. Links are left out: they may lead anywhere."""
    content: dict[str, bytes] = {}
    for place, _, names in os.walk(folder):
        for path in (Path(place, name) for name in names):
            if path.is_file() and not path.is_symlink():
                content[f"/{path.relative_to(folder).as_posix()}"] = path.read_bytes()
    found = {}
    for name, plain in content.items():
        kind = _TYPES.get(PurePosixPath(name).suffix)
        if kind is not None:
            encoded = {key: content[name + end] for key, end in _ENCODINGS.items() if name + end in content}
            found[name] = File({"": plain, **encoded}, kind, hashlib.sha256(plain).hexdigest()[:32])
    return found
