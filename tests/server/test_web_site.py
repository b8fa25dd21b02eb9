"""The web page's files: which paths they are at, how they are sent, and that nothing else ever is."""

from __future__ import annotations

import asyncio
import gzip
import os
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import urlsplit

import httpx
import pytest
from starlette.applications import Starlette

from live import LiveServer, live_server
from muster.server.web.site import POLICY, RESERVED, PageRoute, Site, is_page
from session_kit import browser
from shape_kit import all_routes

INDEX, SCRIPT = b"<!doctype html><title>Muster</title>", b"export const x = 1;\n" * 50
HTML = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


def build(folder: Path) -> Path:
    """What the build writes, and what somebody else may have left there."""
    (folder / "assets").mkdir(parents=True)
    (folder / "index.html").write_bytes(INDEX)
    (folder / "icon.svg").write_bytes(b"<svg/>")
    (folder / "assets" / "main-3fa9.js").write_bytes(SCRIPT)
    (folder / "assets" / "main-3fa9.js.gz").write_bytes(gzip.compress(SCRIPT))
    (folder / "assets" / "main-3fa9.js.br").write_bytes(b"as brotli")
    (folder / "assets" / "font-77.woff2").write_bytes(b"font")
    (folder / "assets" / "notes.secret").write_bytes(b"of no known type")
    (folder / "assets" / "link.js").symlink_to("/etc/passwd")
    (folder.parent / "outside.js").write_bytes(b"outside")
    return folder


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    folder = build(tmp_path_factory.mktemp("web") / "pages")
    with live_server(tmp_path_factory.mktemp("home"), config=f"web_pages = '{folder}'\n") as made:
        yield made


@pytest.fixture
def client(server: LiveServer) -> Iterator[httpx.Client]:
    with browser(server) as made:
        made.headers["Accept-Encoding"] = "identity"
        yield made


@pytest.mark.parametrize("path", ["/", "/queue", "/runs/gpt-7.v2", "/sign-in", "/cluster/a/b?x=1", "/models", "/doc"])
def test_every_other_path_is_a_page(client: httpx.Client, path: str) -> None:
    found = client.get(path, headers=HTML)
    assert (found.status_code, found.content) == (200, INDEX)
    assert found.headers["content-type"] == "text/html; charset=utf-8"
    assert found.headers["content-security-policy"] == POLICY
    assert found.headers["cache-control"] == "no-cache"
    assert found.headers["x-frame-options"] == "DENY"
    assert found.headers["x-content-type-options"] == "nosniff"
    assert found.headers["referrer-policy"] == "no-referrer"
    assert "set-cookie" not in found.headers


def test_scripts_come_from_the_server_alone() -> None:
    rules = dict(rule.strip().split(" ", 1) for rule in POLICY.split(";"))
    assert rules["default-src"] == "'none'"
    assert rules["script-src"] == rules["connect-src"] == "'self'"
    assert rules["frame-ancestors"] == rules["base-uri"] == "'none'"


def test_the_api_is_no_page_whoever_asks(client: httpx.Client) -> None:
    assert {route.path.split("/")[1] for route in all_routes()} <= RESERVED
    for path in ("/v1", "/v1/jobs", "/v1/nothing", "/mlflow/", "/metrics", "/allocation", "/model/x"):
        assert client.get(path, headers=HTML).status_code == 401, path
    assert client.get("/healthz", headers=HTML).json() == {"status": "ok"}
    assert "Every request but" in client.get("/docs", headers=HTML).text
    assert client.get("/openapi.json", headers=HTML).json()["info"]["title"] == "Muster"


def test_programs_are_told_that_a_path_is_none(client: httpx.Client) -> None:
    assert client.get("/queue").status_code == 401
    assert client.post("/queue", headers=HTML).status_code == 401
    assert client.post("/", content=b"x").status_code == 401


def test_an_asset_is_kept_for_ever_and_a_page_is_asked_for_again(client: httpx.Client) -> None:
    found = client.get("/assets/main-3fa9.js")
    assert found.content == SCRIPT
    assert found.headers["content-type"] == "text/javascript; charset=utf-8"
    assert found.headers["cache-control"] == "public, max-age=31536000, immutable"
    again = client.get("/assets/main-3fa9.js", headers={"If-None-Match": found.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    tag = client.get("/").headers["etag"]
    assert client.get("/queue", headers={**HTML, "If-None-Match": tag}).status_code == 304
    head = client.head("/assets/main-3fa9.js")
    assert (head.status_code, head.content, head.headers["content-length"]) == (200, b"", str(len(SCRIPT)))
    assert client.get("/icon.svg").headers["content-type"] == "image/svg+xml"
    assert client.get("/assets/font-77.woff2").headers["content-type"] == "font/woff2"


@pytest.mark.parametrize(
    ("accepted", "encoding"),
    [
        ("gzip, deflate, br, zstd", "br"),
        ("gzip", "gzip"),
        ("br;q=0, gzip;q=0.5", "gzip"),
        ("br;q=nan", ""),
        ("GZIP", "gzip"),
        ("deflate", ""),
        ("br;q=x", ""),
        ("", ""),
    ],
)
def test_the_best_encoding_that_the_client_takes_is_sent(server: LiveServer, accepted: str, encoding: str) -> None:
    variants = {"br": b"as brotli", "gzip": gzip.compress(SCRIPT), "": SCRIPT}
    headers = {"Accept-Encoding": accepted}
    with browser(server) as client, client.stream("GET", "/assets/main-3fa9.js", headers=headers) as found:
        raw = b"".join(found.iter_raw())
    assert found.headers.get("content-encoding", "") == encoding
    assert raw == variants[encoding] or gzip.decompress(raw) == SCRIPT
    assert found.headers["vary"] == "Accept-Encoding"
    assert found.headers["etag"].endswith(f'-{encoding}"' if encoding else '"')


def raw_get(server: LiveServer, path: bytes) -> bytes:
    """As no client would send it: the path is not tidied up first."""
    parts = urlsplit(server.url)
    with socket.create_connection((parts.hostname, parts.port), 60) as connection:
        connection.sendall(
            b"GET " + path + b" HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/html\r\nConnection: close\r\n\r\n"
        )
        return b"".join(iter(lambda: connection.recv(65536), b""))


@pytest.mark.parametrize(
    "path",
    [
        b"/assets/../index.html", b"/assets/../../outside.js", b"/assets/%2e%2e/%2e%2e/outside.js",
        b"/assets/..%2f..%2foutside.js", b"/assets/..%5c..%5coutside.js", b"/assets//etc/passwd", b"/assets/",
        b"/assets/%2fetc/passwd", b"/assets/.", b"/assets/link.js", b"/assets/notes.secret", b"/assets/main-3fa9.js.gz",
        b"/assets/main-3fa9.js%00.css", b"/assets/main-3fa9.js/", b"/outside.js", b"/assets/%ff.js",
    ],
)  # fmt: skip
def test_nothing_but_what_the_build_wrote_is_sent(server: LiveServer, path: bytes) -> None:
    answer = raw_get(server, path)
    assert answer.split(b" ", 2)[1] in (b"404", b"400"), answer
    assert b"outside" not in answer
    assert b"root:" not in answer
    assert SCRIPT[:20] not in answer


def test_it_is_read_anew_when_it_was_built_again(tmp_path: Path) -> None:
    site = Site(build(tmp_path / "pages"))
    site.look()
    assert (found := site.find("/queue")) is not None
    assert found.content[""] == INDEX
    assert site.find("/assets/late-1.js") is None
    (site.folder / "assets" / "late-1.js").write_bytes(b"x")
    os.utime(site.folder / "assets", ns=(1, 1))
    site.look()
    assert site.find("/assets/late-1.js") is not None
    (site.folder / "index.html").write_bytes(b"newer")
    os.utime(site.folder / "index.html", ns=(1, 1))
    site.look()
    assert (found := site.find("/queue")) is not None
    assert found.content[""] == b"newer"


def answered(site: Site, path: str, headers: Mapping[str, str]) -> httpx.Response:
    app = Starlette(routes=[PageRoute()])
    app.state.service = SimpleNamespace(site=site)

    async def ask() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://muster") as client:
            return await client.get(path, headers=headers)

    return asyncio.run(ask())


def test_a_page_that_was_not_built_says_how_it_is_built(tmp_path: Path) -> None:
    site = Site(tmp_path / "none")
    for path, headers in (("/", {}), ("/queue", HTML), ("/assets/main-3fa9.js", {})):
        found = answered(site, path, headers)
        assert found.status_code == 404
        assert "make web" in found.text
    build(site.folder)
    assert answered(site, "/", {}).content == INDEX
    assert answered(site, "/assets/gone-1.js", {}).json()["error"]["code"] == "not_found"


def test_only_reading_is_a_page() -> None:
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        assert not is_page({"type": "http", "method": method, "path": "/queue", "headers": [(b"accept", b"text/html")]})
