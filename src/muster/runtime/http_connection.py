"""A connection that speaks the part of HTTP/1.1 that launchers need.

To import `http.client`, with `email` and `ssl`, would take a fifth of the time that a launcher needs to start.
"""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING, BinaryIO, Final

if TYPE_CHECKING:
    from ssl import SSLContext

LINE: Final = 65_536  # bytes of a line of the answer's head, at most
LINES: Final = 200  # of the answer's head, at most
_PART: Final = 1 << 18  # bytes of a file that are sent at once
_TARGET: Final = re.compile(r"[!-~]+")
_VALUE: Final = re.compile(r"[\t -~\x80-\xff]*")
_NAME: Final = re.compile(rb"[\w!#$%&'*+.^`|~-]+")
_WITHOUT_BODY: Final = (204, 304)


class HttpError(ConnectionError):
    """The request can't be sent, or what arrived is not a whole answer."""


class HttpConnection:
    """Connects at the first request, and again after the server has closed the connection. Not thread-safe.
    Every failure is an OSError; the connection is closed then."""

    def __init__(self, host: str, port: int | None, timeout: float, context: SSLContext | None = None) -> None:
        self._host, self._port = host, port or (443 if context else 80)
        self._timeout = timeout  # seconds
        self._context = context
        self._socket: socket.socket | None = None
        self._answers: BinaryIO | None = None

    def request(
        self,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: bytes | BinaryIO | None = None,
        size: int | None = None,
        patience: float | None = None,
    ) -> tuple[int, bytes]:
        """Status and body of the answer. A file needs its `size`; the answer may take `patience` seconds."""
        try:
            sender = self._socket or self._connect()
            self._send(sender, method, target, headers, body, size)
            sender.settimeout(self._timeout if patience is None else patience)
            status, answer, last = self._answer(method)
        except BaseException:
            self.close()
            raise
        if last:
            self.close()
        return status, answer

    def close(self) -> None:
        for one in (self._answers, self._socket):
            if one is not None:
                one.close()
        self._answers = self._socket = None

    def _connect(self) -> socket.socket:
        made = socket.create_connection((self._host, self._port), self._timeout)
        try:
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._context is not None:
                made = self._context.wrap_socket(made, server_hostname=self._host)
        except BaseException:
            made.close()
            raise
        self._socket, self._answers = made, made.makefile("rb")
        return made

    def _send(
        self,
        sender: socket.socket,
        method: str,
        target: str,
        headers: Mapping[str, str],
        body: bytes | BinaryIO | None,
        size: int | None,
    ) -> None:
        whole = body if isinstance(body, bytes) else b""
        length = len(whole) if size is None else size
        told = {"Host": self._name(), "Accept-Encoding": "identity", **headers}
        if body is not None or method in ("POST", "PUT", "PATCH"):
            told["Content-Length"] = str(length)
        if not _TARGET.fullmatch(target) or not all(_VALUE.fullmatch(value) for value in told.values()):
            raise HttpError(f"{method} {target!r} can't be sent: HTTP does not allow its characters, or a header's")
        lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in told.items()), "", ""]
        sender.sendall("\r\n".join(lines).encode("latin-1") + whole)
        if body is None or isinstance(body, bytes):
            return
        while length:
            part = body.read(min(length, _PART))
            if not part:
                raise HttpError(f"a file of {size} bytes became {length} bytes shorter while it was sent")
            sender.sendall(part)
            length -= len(part)

    def _name(self) -> str:
        host = f"[{self._host}]" if ":" in self._host else self._host.encode("idna").decode()
        return host if self._port == (443 if self._context else 80) else f"{host}:{self._port}"

    def _answer(self, method: str) -> tuple[int, bytes, bool]:
        """Status, body, and whether it is the connection's last one."""
        status = 100
        while status < 200:  # others come before the answer, such as 100 Continue
            line = self._line()
            version, _, rest = line.partition(b" ")
            if not version.startswith(b"HTTP/1.") or not rest[:3].isdigit() or rest[3:4].strip():
                raise HttpError(f"no answer of HTTP/1.1: {line[:100]!r}")
            status = int(rest[:3])
            headers = self._headers()
        last = version == b"HTTP/1.0" or b"close" in headers.get(b"connection", b"").lower()
        if method == "HEAD" or status in _WITHOUT_BODY:
            return status, b"", last
        if headers.get(b"transfer-encoding", b"").lower() == b"chunked":
            return status, self._chunks(), last
        if (length := headers.get(b"content-length")) is not None:
            if not length.isdigit():
                raise HttpError(f"the length of the answer is {length[:100]!r}")
            return status, self._read(int(length)), last
        assert self._answers is not None
        return status, self._answers.read(), True

    def _headers(self) -> dict[bytes, bytes]:
        found: dict[bytes, bytes] = {}
        for _ in range(LINES):
            line = self._line()
            if not line:
                return found
            name, _, value = line.partition(b":")
            if not _NAME.fullmatch(name) or name == line:
                raise HttpError(f"no header: {line[:100]!r}")
            found[name.lower()] = value.strip()
        raise HttpError(f"the answer has more than {LINES} headers")

    def _chunks(self) -> bytes:
        found = bytearray()
        while True:
            line = self._line()
            length = line.partition(b";")[0].strip()
            if not re.fullmatch(rb"[0-9a-fA-F]{1,15}", length):
                raise HttpError(f"the length of a part of the answer is {line[:100]!r}")
            if not int(length, 16):
                self._headers()
                return bytes(found)
            found += self._read(int(length, 16))
            if self._line():
                raise HttpError("a part of the answer is longer than its length")

    def _line(self) -> bytes:
        assert self._answers is not None
        line = self._answers.readline(LINE + 1)
        if not line.endswith(b"\n"):
            raise HttpError("the server closed the connection" if len(line) <= LINE else f"a line of over {LINE} bytes")
        return line.rstrip(b"\r\n")

    def _read(self, length: int) -> bytes:
        assert self._answers is not None
        found = self._answers.read(length)
        if len(found) < length:
            raise HttpError(f"the answer ended after {len(found)} of {length} bytes")
        return found
