"""Somebody without a token, or with one, tries to take the server away from everybody else."""

from __future__ import annotations

import base64
import json
import socket
import ssl
import struct
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest

from certificate import self_signed
from live import LiveServer, live_server, stop_everything, until
from muster.control.secrets import load_keyring

SHORT = """
[limits]
header_timeout = 0.5
body_timeout = 4.0
connections_without_token = 50
"""
NO_HTTPTOOLS = "import sys\nsys.modules['httptools'] = None\n"


@pytest.fixture(scope="module", params=["httptools", "h11"])
def hasty(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    """A server with short patience, with and without the parser of the `fast` extra."""
    env = {}
    if request.param == "h11":
        folder = tmp_path_factory.mktemp("site")
        (folder / "sitecustomize.py").write_text(NO_HTTPTOOLS)
        env["PYTHONPATH"] = str(folder)
    server = LiveServer(tmp_path_factory.mktemp("hasty"), config=SHORT, env=env)
    server.start()
    try:
        yield server
        assert "Traceback" not in server.log()
    finally:
        stop_everything(server)


def connect(server: LiveServer) -> socket.socket:
    where = urlsplit(server.url)
    return socket.create_connection((where.hostname, where.port), timeout=180)


def rest(connection: socket.socket) -> bytes:
    """All that still comes until the server closes the connection."""
    found = b""
    try:
        while part := connection.recv(65536):
            found += part
    except ConnectionResetError:
        pass
    return found


def send_until_closed(connection: socket.socket, part: bytes, most: int) -> int:
    """How many bytes went out before the server closed the connection."""
    sent = 0
    try:
        while sent < most:
            connection.sendall(part)
            sent += len(part)
    except (BrokenPipeError, ConnectionResetError):
        pass
    return sent


def test_a_body_without_a_token_is_not_read(server: LiveServer) -> None:
    for head in (b"Content-Length: 30000000", b"Transfer-Encoding: chunked"):
        for who in (b"", b"Authorization: Bearer mst_abc_def\r\n"):
            with connect(server) as connection:
                connection.sendall(b"POST /v1/jobs/batch HTTP/1.1\r\nHost: 127.0.0.1\r\n" + who + head + b"\r\n\r\n")
                answer = rest(connection)  # not one byte of the body was sent
            assert answer.startswith(b"HTTP/1.1 401 "), answer
            assert b"connection: close" in answer.lower()


@pytest.mark.parametrize("path", ["/v1/whoami", "/v1/ingest", "/mlflow/", "/mlflow/api/2.0/mlflow/runs/search"])
@pytest.mark.parametrize("given", [b"Basic \xe9", b"Basic =", b"Bearer \xe9", b"Bearer mst_\xe9_\xe9", b"\xe9"])
def test_a_token_that_is_no_text_is_not_valid(server: LiveServer, path: str, given: bytes) -> None:
    with server.http() as http:
        answer = http.post(path, headers={b"Authorization": given})
    assert answer.status_code == 401, answer.text


@pytest.mark.parametrize("path", ["/v1/ingest", "/v1/ingest/blobs/" + "0" * 64, "/mlflow/api/2.0/mlflow/runs/create"])
def test_every_door_looks_at_the_token_first(server: LiveServer, path: str) -> None:
    with connect(server) as connection:
        method = "PUT" if "blobs" in path else "POST"
        connection.sendall(f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9000000\r\n\r\n".encode())
        assert rest(connection).startswith(b"HTTP/1.1 401 ")


def test_health_takes_no_body(server: LiveServer) -> None:
    with connect(server) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        answer = rest(connection)
    assert answer.startswith(b"HTTP/1.1 200 ")


def test_headers_are_bounded(hasty: LiveServer) -> None:
    for begin, part in ((b"GET / HTTP/1.1\r\nHost: x\r\nX: ", b"a" * 4096), (b"GET /", b"a" * 4096)):
        with connect(hasty) as connection:
            connection.sendall(begin)
            assert send_until_closed(connection, part, 64 << 20) < 16 << 20
            rest(connection)
    with connect(hasty) as connection:
        many = b"".join(b"X-%d: y\r\n" % number for number in range(300))
        connection.sendall(b"GET /v1/whoami HTTP/1.1\r\nHost: 127.0.0.1\r\n" + many + b"\r\n")
        assert rest(connection).startswith(b"HTTP/1.1 431 ")


def test_trailers_after_a_body_are_bounded(hasty: LiveServer) -> None:
    with connect(hasty) as connection:
        head = f"PUT /v1/blobs/{'0' * 64} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {hasty.token}\r\n"
        connection.sendall(head.encode() + b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n")
        assert send_until_closed(connection, b"X: " + b"a" * 4096 + b"\r\n", 64 << 20) < 16 << 20


def test_half_requests_end(hasty: LiveServer) -> None:
    token = f"Authorization: Bearer {hasty.token}\r\n".encode()
    put = b"PUT /v1/blobs/" + b"0" * 64 + b" HTTP/1.1\r\nHost: 127.0.0.1\r\n" + token
    halves = [
        b"",
        b"GET /v1/jobs HTTP/1.1\r\n",
        b"POST /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\n" + token + b"Content-Length: 100\r\n\r\n{",
        put + b"Content-Length: 100000\r\n\r\n" + b"a" * 2000,
        b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\nGET /healthz HT",  # a whole one, and then a half
    ]
    for half in halves:
        with connect(hasty) as connection:
            connection.sendall(half)
            rest(connection)  # would wait for ever


def test_a_body_that_drips_ends(hasty: LiveServer) -> None:
    """Not by silence: a few bytes come all the time."""
    with connect(hasty) as connection:
        head = f"POST /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {hasty.token}\r\n"
        connection.sendall(head.encode() + b"Content-Length: 1000000\r\n\r\n")
        connection.settimeout(0.1)
        for _ in range(3000):
            try:
                connection.sendall(b" ")
                if connection.recv(1000) == b"":
                    return
            except TimeoutError:
                continue
            except (BrokenPipeError, ConnectionResetError):
                return
    raise AssertionError("the server went on reading it")


def test_an_upload_goes_on_as_long_as_bytes_flow(hasty: LiveServer) -> None:
    """Longer than the patience for a body that stands still."""
    content = b"b" * 4096
    with hasty.http() as http:
        run = http.post("/v1/runs", json={"name": "slow"}).json()["id"]
    with connect(hasty) as connection:
        head = f"PUT /v1/runs/{run}/artifacts/slow.bin HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
        head += f"Authorization: Bearer {hasty.token}\r\nContent-Length: {40 * len(content)}\r\n\r\n"
        connection.sendall(head.encode())
        connection.settimeout(0.15)
        for _ in range(39):
            connection.sendall(content)
            try:
                raise AssertionError(f"it was answered too soon: {connection.recv(1000)!r}")
            except TimeoutError:
                continue
        connection.settimeout(60)
        connection.sendall(content)
        assert rest(connection).startswith(b"HTTP/1.1 201 ")


def test_others_are_answered_while_one_holds_many_half_requests(server: LiveServer, hasty: LiveServer) -> None:
    for target in (server, hasty):
        with ExitStack() as held:
            for _ in range(200):
                connection = held.enter_context(connect(target))
                connection.sendall(b"GET /v1/jobs HTTP/1.1\r\nX: " + b"a" * 1000)
            with target.http() as http:
                assert http.get("/v1/whoami").status_code == 200


def test_of_one_address_the_oldest_without_a_token_makes_room(hasty: LiveServer) -> None:
    with ExitStack() as held:
        first = held.enter_context(connect(hasty))
        first.sendall(b"GET /")
        for _ in range(60):
            held.enter_context(connect(hasty)).sendall(b"GET /")
        rest(first)
        with hasty.http() as http:
            assert http.get("/v1/whoami").status_code == 200


def test_a_connection_that_has_shown_a_token_makes_room_for_nobody(hasty: LiveServer) -> None:
    with ExitStack() as held:
        known = held.enter_context(connect(hasty))
        head = "GET /v1/events/stream?after=0 HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        known.sendall(f"{head}Authorization: Bearer {hasty.token}\r\n\r\n".encode())
        assert known.recv(65536).startswith(b"HTTP/1.1 200")
        strangers = [held.enter_context(connect(hasty)) for _ in range(60)]
        for stranger in strangers:
            stranger.sendall(b"GET /")
        rest(strangers[0])  # the oldest of them had to go
        with hasty.http() as http:
            assert http.post("/v1/runs", json={"name": "seen-by-the-stream"}).status_code == 201
        heard = b""
        while b"seen-by-the-stream" not in heard:
            part = known.recv(65536)
            assert part, "the stream was closed"
            heard += part


def test_an_answer_that_nobody_reads_ends(hasty: LiveServer) -> None:
    with hasty.http() as http:
        run = http.post("/v1/runs", json={"name": "large"}).json()["id"]
        made = http.put(f"/v1/runs/{run}/artifacts/large.bin", content=b"c" * (32 << 20))
        assert made.status_code == 201
    with connect(hasty) as connection:
        head = f"GET /v1/runs/{run}/artifacts/large.bin HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        connection.sendall(f"{head}Authorization: Bearer {hasty.token}\r\n\r\n".encode())
        assert connection.recv(4).startswith(b"HTTP")
        # Its end shows in what was on the way: far less than all of it is there once the server has given up.
        wait_until_given_up(connection)
        assert len(rest(connection)) < 32 << 20


def wait_until_given_up(connection: socket.socket) -> None:
    """Waits until the kernel has no established connection from this socket any more."""
    ours, theirs = connection.getsockname()[1], connection.getpeername()[1]

    def gone() -> bool:
        for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
            fields = line.split()
            local, remote = (int(fields[at].rpartition(":")[2], 16) for at in (1, 2))
            if (local, remote) == (theirs, ours) and fields[3] == "01":
                return False
        return True

    until(gone, "the server to give up")


def test_a_tls_handshake_that_never_ends(tmp_path: Path) -> None:
    pem = str(self_signed(tmp_path))
    options = ("--tls-cert", pem, "--tls-key", pem)
    with live_server(tmp_path / "home", *options, config=SHORT, ca=pem) as server:
        with connect(server) as connection:
            rest(connection)
        with server.http() as http:
            assert http.get("/v1/whoami").status_code == 200
        with (
            connect(server) as plain,
            ssl.create_default_context(cafile=pem).wrap_socket(plain, server_hostname="127.0.0.1") as connection,
        ):
            connection.sendall(b"GET /v1/jobs HTTP/1.1\r\n")
            rest(connection)


def test_json_of_very_many_values_is_refused(server: LiveServer) -> None:
    many = json.dumps({"digests": [[]] * 200_000}).encode()
    with server.http() as http:
        answer = http.post("/v1/blobs/missing", content=many, headers={"Content-Type": "application/json"})
        assert answer.status_code == 413
        extra = json.dumps({"spec": {}, **{f"k{number}": 1 for number in range(50_000)}}).encode()
        answer = http.post("/v1/jobs", content=extra, headers={"Content-Type": "application/json"})
        assert answer.status_code == 400
        assert len(answer.json()["error"]["problems"]) == 100


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "localhost.evil"])
def test_a_name_of_a_stranger_is_refused(server: LiveServer, host: str) -> None:
    with server.http() as http:
        answer = http.get("/v1/whoami", headers={"Host": host})
        assert answer.status_code in (400, 421), answer.text
        if answer.status_code == 421:
            assert "allowed_hosts" in answer.json()["error"]["hint"]
        for path in ("/healthz", "/readyz"):
            assert http.get(path, headers={"Host": host or "x"}).status_code == 200
        for own in ("localhost", "localhost:1234", "127.0.0.1", "[::1]:6878", "10.1.2.3:6878"):
            assert http.get("/v1/whoami", headers={"Host": own}).status_code == 200


def test_names_of_the_settings_are_known(tmp_path: Path) -> None:
    config = 'allowed_hosts = "muster.example.org, *.internal"\nadvertise = "http://front.example:80"\n'
    with live_server(tmp_path, config=config) as server, server.http() as http:
        for name, status in (
            ("muster.example.org", 200),
            ("MUSTER.example.org.:443", 200),
            ("a.internal", 200),
            ("front.example", 200),
            ("internal", 421),
            ("xmuster.example.org", 421),
        ):
            assert http.get("/v1/whoami", headers={"Host": name}).status_code == status, name


def test_own_answers_are_labelled(server: LiveServer) -> None:
    with server.http() as http:
        for path, status in (("/v1/whoami", 200), ("/v1/nothing", 404), ("/healthz", 200)):
            answer = http.get(path)
            assert answer.status_code == status
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["x-frame-options"] == "DENY"
            assert "frame-ancestors 'none'" in answer.headers["content-security-policy"]
            assert answer.headers["cache-control"] == "no-store"
        refused = http.get("/v1/whoami", headers={"Authorization": "Bearer x"})
        assert refused.headers["x-content-type-options"] == "nosniff"


def test_the_description_loads_nothing_from_outside(server: LiveServer) -> None:
    answer = httpx.get(f"{server.url}/docs", trust_env=False)
    assert answer.status_code == 200
    assert "<script" not in answer.text
    assert "http://" not in answer.text
    assert "https://" not in answer.text
    assert "/v1/jobs/{ref}/logs" in answer.text
    assert "script-src" not in answer.headers["content-security-policy"]
    assert "default-src 'none'" in answer.headers["content-security-policy"]


@pytest.mark.parametrize("depth", [80, 500, 900, 100_000])
def test_deep_json_is_no_bug(server: LiveServer, depth: int) -> None:
    deep = '{"a":' * depth + "1" + "}" * depth
    key = "0" * 32
    bodies = {
        "/v1/jobs": f'{{"spec":{deep}}}',
        "/v1/jobs/batch": f'{{"jobs":[{{"spec":{deep}}}]}}',
        "/v1/runs": f'{{"name":"deep","params":{deep}}}',
        "/v1/runs/external": f'{{"id":"deep-{depth}","key":"{key}","params":{deep}}}',
        "/v1/runs/search": json.dumps({"query": "(" * min(depth, 19_000)}),
        "/v1/compare": deep,
    }
    with server.http() as http:
        for path, body in bodies.items():
            answer = http.post(path, content=body.encode(), headers={"Content-Type": "application/json"})
            assert answer.status_code < 500, (path, answer.text)
        cursor = base64.urlsafe_b64encode(b"[" * 7000).decode()
        assert http.get("/v1/runs", params={"after": cursor}).status_code == 400
        assert http.get("/v1/runs").status_code == 200
    token = load_keyring(server.home / "key").attempt_token("x-1", 1)
    with server.http(token) as http:
        head = b"[" * depth
        assert http.post("/v1/ingest", content=struct.pack("<I", len(head)) + head).status_code == 400


def test_whoever_sends_much_with_a_wrong_token_hears_why(server: LiveServer) -> None:
    """The connection is closed with most of the body on its way."""
    for _ in range(5):
        with server.http("mst_abc_def") as http:
            answer = http.put(f"/v1/blobs/{'0' * 64}", content=b"a" * (64 << 20))
        assert answer.status_code == 401
