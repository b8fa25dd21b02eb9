"""S3 client with the requests that checkpoints need, in the standard library alone: a node may have nothing else.

Requests are signed, and retried with backoff.
"""

from __future__ import annotations

import hashlib
import hmac
import http.client
import os
import random
import re
import time
import weakref
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Final
from urllib.parse import quote, urlsplit

from muster.train.errors import CheckpointDamaged, CheckpointError

TRIES: Final = 7
FIRST_PAUSE: Final = 0.2  # seconds before the second try; doubled for each further one
LONGEST_PAUSE: Final = 10.0  # seconds
TIMEOUT: Final = 60.0  # seconds without a byte
_SAID: Final = re.compile(rb"<(?:Code|Message)>([^<]{1,300})<")
_AGAIN: Final = frozenset({408, 429, 500, 502, 503, 504})


@dataclass(frozen=True, slots=True)
class Reply:
    """The server's answer."""

    status: int
    headers: Mapping[str, str]  # names in lower case
    body: bytes

    def age(self) -> float:
        """Seconds since the object's last change at the time of this answer, by the server's clock."""
        now, then = self.headers.get("date"), self.headers.get("last-modified")
        if now is None or then is None:
            return 0.0
        return (parsedate_to_datetime(now) - parsedate_to_datetime(then)).total_seconds()


@dataclass
class CheckpointS3:
    """A client for one bucket. Thread-safe; keeps connections open for later requests."""

    bucket: str
    endpoint: str
    region: str
    key: str = field(repr=False)
    secret: str = field(repr=False)
    token: str | None = field(repr=False)
    tries: int = TRIES
    _idle: list[http.client.HTTPConnection] = field(default_factory=list, repr=False)

    def __post_init__(self) -> None:
        weakref.finalize(self, _close, self._idle)

    def request(
        self,
        method: str,
        name: str = "",
        query: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes | memoryview = b"",
        into: memoryview | None = None,
        accept: tuple[int, ...] = (),
    ) -> Reply:
        """Sends a request, with retries for errors that may be temporary.

        Raises CheckpointError for an answer that is neither 2xx nor in `accept`. If `into` is given, it gets the body
        of a 2xx answer, and the reply's body is empty.
        """
        digest = hashlib.sha256(body).hexdigest()
        for number in range(1, self.tries + 1):
            try:
                reply = self._once(method, name, query or {}, dict(headers or {}), body, digest, into)
            except (OSError, http.client.HTTPException) as error:
                _close(self._idle)
                if number == self.tries:
                    raise CheckpointError(f"{self._what(method, name)}: {error!r} after {number} tries.") from error
            else:
                if reply.status // 100 == 2 or reply.status in accept:
                    return reply
                if reply.status not in _AGAIN or number == self.tries:
                    raise CheckpointError(_refusal(self._what(method, name), reply, number))
            time.sleep(min(LONGEST_PAUSE, FIRST_PAUSE * 2 ** (number - 1)) * random.uniform(0.5, 1.0))
        raise AssertionError("unreachable: the last try returns or raises")

    def _once(
        self,
        method: str,
        name: str,
        query: Mapping[str, str],
        headers: dict[str, str],
        body: bytes | memoryview,
        digest: str,
        into: memoryview | None,
    ) -> Reply:
        path = quote(f"/{self.bucket}/{name}" if name else f"/{self.bucket}", safe="-_.~/")
        search = "&".join(f"{quote(k, safe='-_.~')}={quote(v, safe='-_.~')}" for k, v in sorted(query.items()))
        headers.update(self._signed(method, path, search, digest))
        headers["content-length"] = str(len(body))
        connection = self._connection()
        try:
            connection.request(method, f"{path}?{search}" if search else path, body=body or None, headers=headers)
            with connection.getresponse() as answer:
                taken = into is not None and answer.status // 100 == 2
                data = _fill(answer, into) if into is not None and taken else answer.read()
                found = {key.lower(): value for key, value in answer.getheaders()}
                reply = Reply(answer.status, found, data)
        except BaseException:
            connection.close()
            raise
        self._idle.append(connection)
        return reply

    def _signed(self, method: str, path: str, search: str, digest: str) -> dict[str, str]:
        """Signature version 4 over the method, the path, the query and the body's digest."""
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
        scope = f"{stamp[:8]}/{self.region}/s3/aws4_request"
        headers = {"host": urlsplit(self.endpoint).netloc, "x-amz-content-sha256": digest, "x-amz-date": stamp}
        if self.token:
            headers["x-amz-security-token"] = self.token
        names = ";".join(sorted(headers))
        lines = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
        canonical = f"{method}\n{path}\n{search}\n{lines}\n{names}\n{digest}"
        text = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
        key = f"AWS4{self.secret}".encode()
        for part in scope.split("/"):
            key = hmac.digest(key, part.encode(), "sha256")
        seal = hmac.digest(key, text.encode(), "sha256").hex()
        credential = f"Credential={self.key}/{scope}"
        headers["authorization"] = f"AWS4-HMAC-SHA256 {credential}, SignedHeaders={names}, Signature={seal}"
        return headers

    def _connection(self) -> http.client.HTTPConnection:
        with suppress(IndexError):
            return self._idle.pop()
        parts = urlsplit(self.endpoint)
        kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
        return kind(parts.netloc, timeout=TIMEOUT)

    def _what(self, method: str, name: str) -> str:
        return f"{method} s3://{self.bucket}/{name} at {self.endpoint}"


def client(bucket: str) -> CheckpointS3:
    """With endpoint, region and keys from the environment, under the names that other S3 tools use."""
    key, secret = os.environ.get("AWS_ACCESS_KEY_ID"), os.environ.get("AWS_SECRET_ACCESS_KEY")
    if not key or not secret:
        raise CheckpointError(
            f"s3://{bucket}: no keys. Set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (and AWS_ENDPOINT_URL for a "
            "server other than AWS)."
        )
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    endpoint = (endpoint or f"https://s3.{region}.amazonaws.com").rstrip("/")
    if urlsplit(endpoint).scheme not in ("http", "https") or not urlsplit(endpoint).netloc:
        raise CheckpointError(f"AWS_ENDPOINT_URL got {endpoint!r}; expected http://host:port or https://host.")
    return CheckpointS3(bucket, endpoint, region, key, secret, os.environ.get("AWS_SESSION_TOKEN"))


def _close(idle: list[http.client.HTTPConnection]) -> None:
    while idle:
        with suppress(IndexError):
            idle.pop().close()


def _fill(answer: http.client.HTTPResponse, into: memoryview) -> bytes:
    if answer.length is not None and answer.length < len(into):
        raise CheckpointDamaged(f"{answer.length} bytes came where {len(into)} were saved.")
    left = into
    while len(left):
        count = answer.readinto(left)
        if count == 0:
            raise http.client.IncompleteRead(b"", len(left))
        left = left[count:]
    answer.read()
    return b""


def _refusal(what: str, reply: Reply, tries: int) -> str:
    # Only code and message: the rest of the answer may repeat the key and the signed text.
    said = ": ".join(part.decode(errors="replace") for part in _SAID.findall(reply.body)[:2])
    again = f" after {tries} tries" if tries > 1 else ""
    hint = " Check the keys and what they may do." if reply.status in (401, 403) else ""
    return f"{what}: the server answered {reply.status}{again}: {said or 'nothing more'}.{hint}"
