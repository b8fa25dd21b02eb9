"""Notices that a machine is taken away: each source against a real server of its kind, and what a launcher does."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from ingest_kit import PATIENCE, wait_for
from launcher_kit import LauncherFixture, launcher_fixture
from muster import wire
from muster.runtime.spot_notice import FILE_SECONDS, GCP_SECONDS, seconds_left

SAVES = """
import time
from muster import runtime
runtime.report(step=1, loss=1.0)
print("up", flush=True)
while not runtime.should_stop():
    time.sleep(0.01)
print("saved with", round(runtime.stop_deadline() - time.time()), "s left", flush=True)
"""


class Metadata(ThreadingHTTPServer):
    """The metadata services of three clouds; `body` is the answer, None if there is no notice."""

    body: bytes | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: Metadata

    def do_PUT(self) -> None:
        asked = self.path == "/latest/api/token" and self.headers.get("X-aws-ec2-metadata-token-ttl-seconds")
        self._send(200 if asked else 400, b"the-token")

    def do_GET(self) -> None:
        wanted = {
            "/latest/meta-data/spot/instance-action": ("X-aws-ec2-metadata-token", "the-token"),
            "/computeMetadata/v1/instance/preempted": ("Metadata-Flavor", "Google"),
            "/metadata/scheduledevents?api-version=2020-07-01": ("Metadata", "true"),
        }.get(self.path)
        if wanted is None or self.server.body is None:
            self._send(404, b"")
        elif self.headers.get(wanted[0]) != wanted[1]:
            self._send(403, b"")
        else:
            self._send(200, self.server.body)

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words: object) -> None:
        pass


@pytest.fixture
def metadata() -> Iterator[Metadata]:
    server = Metadata(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[LauncherFixture]:
    with launcher_fixture(tmp_path) as made:
        yield made


def utc(seconds: float, form: str) -> bytes:
    return time.strftime(form, time.gmtime(time.time() + seconds)).encode()


def test_each_cloud_is_asked_in_its_own_way(metadata: Metadata) -> None:
    sources = [f"{cloud}={metadata.url}" for cloud in ("aws", "gcp", "azure")]
    assert [seconds_left(source) for source in sources] == [None, None, None]

    metadata.body = b'{"action": "terminate", "time": "%s"}' % utc(120, "%Y-%m-%dT%H:%M:%SZ")
    assert 100 < (seconds_left(sources[0]) or 0) <= 120
    metadata.body = b"TRUE"
    assert seconds_left(sources[1]) == GCP_SECONDS
    event = b'{"EventType": "Preempt", "NotBefore": "%s"}' % utc(60, "%a, %d %b %Y %H:%M:%S GMT")
    metadata.body = b'{"Events": [{"EventType": "Reboot", "NotBefore": ""}, %s]}' % event
    assert 40 < (seconds_left(sources[2]) or 0) <= 60
    metadata.body = b'{"Events": [{"EventType": "Preempt", "NotBefore": ""}]}'
    assert seconds_left(sources[2]) == 0.0


NOTHING = [b"", b"FALSE", b"[]", b"{}", b"\xff", b'{"Events": 3}', b'{"action": "rebalance", "time": ""}']


@pytest.mark.parametrize("body", NOTHING)
def test_anything_else_is_no_notice(metadata: Metadata, body: bytes) -> None:
    metadata.body = body
    assert [seconds_left(f"{cloud}={metadata.url}") for cloud in ("aws", "gcp", "azure")] == [None, None, None]
    assert seconds_left("aws=http://127.0.0.1:1") is None


def test_a_file_says_how_long(tmp_path: Path) -> None:
    path = tmp_path / "spot"
    assert seconds_left(f"file:{path}") is None
    path.write_text("")
    assert seconds_left(f"file:{path}") == FILE_SECONDS
    path.write_text("45\n")
    assert seconds_left(f"file:{path}") == 45.0


def test_a_launcher_tells_the_server_and_leaves_by_its_order(shop: LauncherFixture, metadata: Metadata) -> None:
    folder = shop.folder(f"{sys.executable} -c '{SAVES}'", spot_notices=(f"gcp={metadata.url}",))
    told: list[float] = []

    def note(batch: wire.Batch) -> None:
        if batch.leaving is not None:
            told.append(batch.leaving)
            shop.server.commands["token"] = wire.Command(7, "stop", "spot_notice", batch.leaving - 2)

    shop.server.fault = note
    launcher = shop.start(folder)
    wait_for(lambda: "up" in shop.server.log())
    metadata.body = b"TRUE"
    assert launcher.wait(PATIENCE) == 0
    ended = shop.ended(folder)
    assert (ended.outcome, ended.reason) == ("stopped", "spot_notice")
    assert 0 < told[0] <= GCP_SECONDS
    log = shop.server.log()
    assert "local-0 is taken away in 30 s (gcp=http" in log
    assert "saved with 2" in log


def test_without_an_answer_it_stops_its_ranks_in_time(shop: LauncherFixture, tmp_path: Path) -> None:
    notice = tmp_path / "notice"
    folder = shop.folder(f"{sys.executable} -c '{SAVES}'", spot_notices=(f"file:{notice}",))
    launcher = shop.start(folder)
    wait_for(lambda: "up" in shop.server.log())
    notice.write_text("12")
    assert launcher.wait(PATIENCE) == 0
    ended = shop.ended(folder)
    assert (ended.outcome, ended.reason) == ("failed", "spot_notice")
    assert "saved with" in shop.server.log()
