"""A server with the rules of Google Cloud Storage's XML API, on loopback: no server of Google's can be started.

The rules are those of the API's reference: bearer tokens, preconditions on generations (0: there must be no object),
ranges, listings in pages, and errors as XML. Where the reference leaves a choice, it takes the inconvenient one: a page
has few names.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

TOKEN = "a-token-that-must-not-be-shown"
PAGE = 3  # names on a page of a listing
_RANGE = re.compile(r"bytes=(\d+)-(\d+)")


@dataclass
class Stored:
    data: bytes
    generation: int
    time: datetime

    @property
    def tag(self) -> str:
        return f'"{hashlib.md5(self.data).hexdigest()}"'


@dataclass
class GcsServer:
    """Buckets in memory."""

    port: int = 0
    buckets: dict[str, dict[str, Stored]] = field(default_factory=dict)
    lock: Lock = field(default_factory=Lock, repr=False)
    tokens: list[float] = field(default_factory=list)  # seconds for which the next tokens of the machine's account hold
    given: int = 0  # tokens that the machine's account was given
    generation: int = 1_700_000_000_000_000

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def env(self) -> dict[str, str]:
        return {"GOOGLE_BASE_URL": self.endpoint, "GOOGLE_BEARER_TOKEN": TOKEN}

    def address(self) -> str:
        """A new, empty bucket."""
        name = f"bucket-{len(self.buckets) + 1}"
        self.buckets[name] = {}
        return f"gs://{name}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    cloud: GcsServer

    def do_PUT(self) -> None:
        data = self.rfile.read(int(self.headers["content-length"]))
        place = self._bucket()
        if place is None:
            return
        bucket, name, _ = place
        if source := self.headers.get("x-goog-copy-source"):
            home, _, other = unquote(source).removeprefix("/").partition("/")
            found = self.cloud.buckets.get(home, {}).get(other)
            if found is None:
                return self._refuse(404, "NoSuchKey", "The specified key does not exist.")
            data = found.data
        with self.cloud.lock:
            old, wanted = bucket.get(name), self.headers.get("x-goog-if-generation-match")
            if wanted is not None and int(wanted) != (old.generation if old else 0):
                return self._refuse(412, "PreconditionFailed", "At least one of the pre-conditions did not hold.")
            self.cloud.generation += 1
            made = bucket[name] = Stored(data, self.cloud.generation, datetime.now(UTC).replace(microsecond=0))
        self._answer(200, b"", self._headers(made))

    def do_GET(self) -> None:
        if self.path.startswith("/computeMetadata/v1/instance/service-accounts/default/token"):
            return self._token()
        place = self._bucket()
        if place is None:
            return None
        bucket, name, query = place
        if not name:
            return self._list(bucket, query)
        found = bucket.get(name)
        if found is None:
            return self._refuse(404, "NoSuchKey", "The specified key does not exist.")
        wanted = _RANGE.fullmatch(self.headers.get("range", ""))
        if not wanted:
            return self._answer(200, found.data, self._headers(found))
        first, last = int(wanted[1]), min(int(wanted[2]), len(found.data) - 1)
        if first >= len(found.data):
            return self._refuse(416, "InvalidRange", "The requested range cannot be satisfied.")
        part = {"content-range": f"bytes {first}-{last}/{len(found.data)}"}
        return self._answer(206, found.data[first : last + 1], self._headers(found) | part)

    do_HEAD = do_GET

    def do_DELETE(self) -> None:
        place = self._bucket()
        if place is None:
            return None
        bucket, name, _ = place
        if bucket.pop(name, None) is None:
            return self._refuse(404, "NoSuchKey", "The specified key does not exist.")
        return self._answer(204, b"", {})

    def do_POST(self) -> None:
        """Uploads in parts: not offered, so that a program that needs them is seen."""
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self._refuse(400, "InvalidArgument", "Not offered here.")

    def log_message(self, format: str, *args: object) -> None: ...

    def _bucket(self) -> tuple[dict[str, Stored], str, dict[str, str]] | None:
        if self.headers.get("authorization") != f"Bearer {TOKEN}":
            return self._refuse(401, "AuthenticationRequired", "Authentication required.")
        parts = urlsplit(self.path)
        bucket, _, name = unquote(parts.path).removeprefix("/").partition("/")
        if bucket not in self.cloud.buckets:
            return self._refuse(404, "NoSuchBucket", "The specified bucket does not exist.")
        return self.cloud.buckets[bucket], name, {key: value[0] for key, value in parse_qs(parts.query).items()}

    def _list(self, bucket: dict[str, Stored], query: dict[str, str]) -> None:
        assert query["list-type"] == "2"
        prefix, end = query.get("prefix", ""), query.get("delimiter", "")
        found: dict[str, str] = {}  # name or common prefix -> its XML
        with self.cloud.lock:
            for name, each in sorted(bucket.items()):
                if not name.startswith(prefix):
                    continue
                folder, cut, _ = name[len(prefix) :].partition(end) if end else ("", "", "")
                if cut:
                    shared = escape(f"{prefix}{folder}{end}")
                    found[f"{prefix}{folder}{end}"] = f"<CommonPrefixes><Prefix>{shared}</Prefix></CommonPrefixes>"
                    continue
                found[name] = (
                    f"<Contents><Key>{escape(name)}</Key><Generation>{each.generation}</Generation>"
                    f"<LastModified>{each.time:%Y-%m-%dT%H:%M:%S.000Z}</LastModified><ETag>{escape(each.tag)}</ETag>"
                    f"<Size>{len(each.data)}</Size></Contents>"
                )
        rest = [name for name in sorted(found) if name > query.get("continuation-token", "")]
        page, more = rest[:PAGE], len(rest) > PAGE
        token = f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>" if more else ""
        body = "".join(found[name] for name in page)
        head = f"<IsTruncated>{str(more).lower()}</IsTruncated><KeyCount>{len(page)}</KeyCount>"
        xml = f"<ListBucketResult xmlns='http://doc.s3.amazonaws.com/2006-03-01'>{head}{token}{body}</ListBucketResult>"
        self._answer(200, f"<?xml version='1.0' encoding='UTF-8'?>{xml}".encode(), {})

    def _token(self) -> None:
        """What the machine's own service account is given."""
        assert self.headers["metadata-flavor"] == "Google"
        self.cloud.given += 1
        lasts = self.cloud.tokens.pop(0) if self.cloud.tokens else 3600
        body = {"access_token": TOKEN, "expires_in": int(lasts), "token_type": "Bearer"}
        self._answer(200, json.dumps(body).encode(), {"content-type": "application/json"})

    @staticmethod
    def _headers(found: Stored) -> dict[str, str]:
        time = format_datetime(found.time, usegmt=True)
        return {"etag": found.tag, "last-modified": time, "x-goog-generation": str(found.generation)}

    def _refuse(self, status: int, code: str, message: str) -> None:
        text = f"<?xml version='1.0' encoding='UTF-8'?><Error><Code>{code}</Code><Message>{message}</Message></Error>"
        self._answer(status, text.encode(), {})

    def _answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)


@contextmanager
def gcs_server() -> Iterator[GcsServer]:
    cloud = GcsServer()
    handler = type("Handler", (_Handler,), {"cloud": cloud})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as http:
        cloud.port = http.server_port
        thread = Thread(target=http.serve_forever, args=(0.05,), daemon=True)
        thread.start()
        yield cloud
        http.shutdown()
        thread.join()
