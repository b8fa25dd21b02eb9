"""The launcher's own HTTP: whole answers of every form, the same as `http.client` reads them, and no half ones."""

from __future__ import annotations

import http.client
import io
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.runtime.http_connection import LINE, LINES, HttpConnection, HttpError

OK = b"HTTP/1.1 200 OK\r\n"
PATIENCE = 180.0  # seconds: a bound for a hang
WHOLE = {
    "length": (OK + b"Content-Length: 5\r\n\r\nhello", 200, b"hello"),
    "empty": (OK + b"content-length:0\r\n\r\n", 200, b""),
    "parts": (OK + b"Transfer-encoding: chunked\r\n\r\n3;a\r\nhel\r\n02\r\nlo\r\n0\r\nX-End: 1\r\n\r\n", 200, b"hello"),
    "until the end": (OK + b"\r\nhello", 200, b"hello"),
    "after another status": (b"HTTP/1.1 100 Continue\r\n\r\n" + OK + b"Content-Length: 1\r\n\r\nx", 200, b"x"),
    "no body": (b"HTTP/1.1 204 No Content\r\n\r\n", 204, b""),
    "no reason": (b"HTTP/1.1 404\r\nContent-Length: 2\r\n\r\nno", 404, b"no"),
    "older": (b"HTTP/1.0 500 Oh\r\nContent-Length: 2\r\n\r\nno", 500, b"no"),
}
HALF = {
    "nothing": b"",
    "half a line": b"HTTP/1.1 200",
    "half a head": OK + b"Content-Length: 5\r\n",
    "half a body": OK + b"Content-Length: 5\r\n\r\nhel",
    "half a part": OK + b"Transfer-Encoding: chunked\r\n\r\n5\r\nhel",
    "no last part": OK + b"Transfer-Encoding: chunked\r\n\r\n3\r\nhel\r\n",
    "an odd part": OK + b"Transfer-Encoding: chunked\r\n\r\n-3\r\nhel\r\n0\r\n\r\n",
    "a longer part": OK + b"Transfer-Encoding: chunked\r\n\r\n3\r\nhello\r\n0\r\n\r\n",
    "a header without a name": OK + b"hello\r\nContent-Length: 1\r\n\r\nx",
    "an odd length": OK + b"Content-Length: -5\r\n\r\nhello",
    "another protocol": b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
    "an odd status": b"HTTP/1.1 2000 OK\r\n\r\n",
    "a long line": OK + b"X: " + b"x" * LINE + b"\r\n\r\n",
    "many headers": OK + b"X: x\r\n" * (LINES + 1) + b"\r\n",
}

PIECES = [line + b"\r\n" for line in (b"HTTP/1.1 100 C", b"Connection: close", b"A: b", b"abc", b"3", b"0", b"")]
PIECES += [OK, b"Content-Length: 3\r\n", b"Transfer-Encoding: chunked\r\n", b"\n", b"\0"]


@contextmanager
def scripted(*connections: Sequence[bytes]) -> Iterator[tuple[HttpConnection, list[bytes]]]:
    """A server that answers the requests of each connection with these bytes, and then closes it; and what it got."""
    got: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as door:
        thread = threading.Thread(target=_serve, args=(door, connections, got))
        thread.start()
        made = HttpConnection("127.0.0.1", door.getsockname()[1], PATIENCE)
        try:
            yield made, got
        finally:
            made.close()
            thread.join(PATIENCE)


def _serve(door: socket.socket, connections: Sequence[Sequence[bytes]], got: list[bytes]) -> None:
    door.settimeout(PATIENCE)
    for answers in connections:
        there, _ = door.accept()
        with there, there.makefile("rb") as asked:
            for answer in answers:
                head = b""
                while (line := asked.readline()) not in (b"\r\n", b""):
                    head += line
                lengths = [line for line in head.split(b"\r\n") if line.startswith(b"Content-Length: ")]
                got.append(head + asked.read(int(lengths[0].split()[1]) if lengths else 0))
                there.sendall(answer)


@pytest.mark.parametrize("form", WHOLE)
def test_whole_answers(form: str) -> None:
    answer, status, body = WHOLE[form]
    with scripted([answer]) as (connection, _):
        assert connection.request("GET", "/x", {}) == (status, body)


@pytest.mark.parametrize("form", HALF)
def test_half_answers_are_none(form: str) -> None:
    with scripted([HALF[form]], [WHOLE["length"][0]]) as (connection, _):
        with pytest.raises(HttpError):
            connection.request("GET", "/x", {})
        assert connection.request("GET", "/x", {}) == (200, b"hello")  # over a new connection


def test_one_connection_for_several_requests_and_another_after_the_last() -> None:
    last = OK + b"Connection: close\r\nContent-Length: 1\r\n\r\nx"
    first = [WHOLE["length"][0], WHOLE["parts"][0], b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n", last]
    with scripted(first, [WHOLE["length"][0]]) as (connection, got):
        asked = [("GET", None), ("POST", b"body"), ("HEAD", None), ("POST", None), ("GET", None)]
        said = [connection.request(method, "/x", {"A": "b"}, body) for method, body in asked]
    assert said == [(200, b"hello"), (200, b"hello"), (200, b""), (200, b"x"), (200, b"hello")]
    assert got[0].startswith(b"GET /x HTTP/1.1\r\nHost: 127.0.0.1:")
    assert b"Content-Length" not in got[0]
    assert got[1].endswith(b"A: b\r\nContent-Length: 4\r\nbody")
    assert got[3].endswith(b"Content-Length: 0\r\n")


def test_a_file_is_sent_as_long_as_it_was_said_to_be() -> None:
    with scripted([WHOLE["empty"][0]] * 2) as (connection, got):
        connection.request("PUT", "/x", {}, io.BytesIO(b"12345 and what was added"), 5, PATIENCE)
        assert got[0].endswith(b"Content-Length: 5\r\n12345")
        with pytest.raises(HttpError, match="became 2 bytes shorter"):
            connection.request("PUT", "/x", {}, io.BytesIO(b"123"), 5, PATIENCE)


@pytest.mark.parametrize(
    ("target", "token"), [("/a b", "x"), ("/a\r\nX: y", "x"), ("/é", "x"), ("", "x"), ("/", "x\r\nX: y"), ("/", "\0")]
)
def test_nothing_is_sent_that_would_be_another_request(target: str, token: str) -> None:
    with scripted([b""]) as (connection, got), pytest.raises(HttpError, match="can't be sent"):
        connection.request("GET", target, {"Authorization": token})
    assert got == [b""]


@given(answer=st.one_of(st.binary(max_size=200), st.lists(st.sampled_from(PIECES), max_size=12).map(b"".join)))
def test_what_it_reads_http_client_reads_too(answer: bytes) -> None:
    try:
        read = _read(answer)
    except HttpError:
        return  # it refuses more than the other does
    theirs = http.client.HTTPResponse(_Bytes(answer), method="GET")  # type: ignore[arg-type]
    theirs.begin()
    assert read == (theirs.status, theirs.read())


def _read(answer: bytes) -> tuple[int, bytes]:
    ours = HttpConnection("127.0.0.1", 1, PATIENCE)
    ours._answers = io.BytesIO(answer)
    return ours._answer("GET")[:2]


class _Bytes:
    """As much of a socket as `http.client` reads answers from."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def makefile(self, mode: str) -> io.BytesIO:
        return io.BytesIO(self._content)
