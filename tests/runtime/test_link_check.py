"""Links between the nodes of a gang: what is measured, who may take part, and that whatever goes wrong is unknown."""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from ingest_kit import PATIENCE
from launcher_kit import LauncherFixture, launcher_fixture
from muster.runtime import link_check
from muster.runtime.boot_gang import free_port
from muster.runtime.link_check import Figure, Meeting, describe, join, read_figures
from muster.runtime.node_finding import Unknown
from muster.wire import Batch


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[LauncherFixture]:
    with launcher_fixture(tmp_path) as made:
        yield made


@pytest.fixture
def meeting(monkeypatch: pytest.MonkeyPatch) -> Meeting:
    monkeypatch.setattr(link_check, "BYTES", 1 << 19)
    return Meeting("127.0.0.1", free_port(), 4, os.urandom(32))


def listen(meeting: Meeting, seconds: float = link_check.LISTEN) -> dict[int, Figure]:
    listener = socket.create_server((meeting.address, meeting.port), backlog=meeting.workers)
    return link_check.listen(meeting, listener, seconds)


def _connect(meeting: Meeting) -> socket.socket:
    """A connection, as soon as somebody listens."""
    while True:
        try:
            return socket.create_connection((meeting.address, meeting.port))
        except ConnectionRefusedError:
            threading.Event().wait(0.01)


def test_every_link_is_measured_and_the_port_is_free_afterwards(meeting: Meeting) -> None:
    with ThreadPoolExecutor(4) as pool:
        others = [pool.submit(join, meeting, worker, worker == 3) for worker in (1, 2, 3)]
        found = listen(meeting)
        assert {worker: other.result() for worker, other in enumerate(others, 1)} == found
        with socket.create_server((meeting.address, meeting.port)):  # as rank 0 does a moment later
            pass
    assert all(speed > 1 and 0 < trip < 1000 for speed, trip in found.values())
    assert read_figures('{"2": [12.5, 0.25]}') == {2: (12.5, 0.25)}
    assert describe({2: (12.5, 0.25), 1: (100.0, 0.1)}) == "worker 1 100 MB/s, 0.10 ms; worker 2 12 MB/s, 0.25 ms"


def test_a_slow_link_has_a_low_figure(meeting: Meeting) -> None:
    """One worker reaches the first one through a relay that passes on 64 KiB in 10 ms."""

    def relay(listener: socket.socket) -> None:
        with listener.accept()[0] as near, _connect(meeting) as far, ThreadPoolExecutor(2) as pool:
            ways = [pool.submit(forward, near, far), pool.submit(forward, far, near)]
            assert [way.result() for way in ways] == [None, None]

    def forward(source: socket.socket, target: socket.socket) -> None:
        try:
            while part := source.recv(1 << 16):
                target.sendall(part)
                threading.Event().wait(len(part) / (1 << 16) * 0.01)
            target.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # one side has gone

    with ThreadPoolExecutor(4) as pool, socket.create_server((meeting.address, 0)) as listener:
        slow = replace(meeting, port=listener.getsockname()[1])
        pool.submit(relay, listener)
        for worker, where in ((1, meeting), (2, meeting), (3, slow)):
            pool.submit(join, where, worker, False)
        found = listen(meeting)
    assert found[3][0] < 8


def test_nobody_else_takes_part(meeting: Meeting) -> None:
    """One that talks something else, one with another token, one whose number is not of the gang: none has a figure."""
    stranger, alone = replace(meeting, key=b"another"), replace(meeting, workers=2)
    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(listen, alone)
        with _connect(meeting) as one:
            assert len(one.recv(100)) == 16
            one.sendall(b"GET / HTTP/1.1\r\n" + bytes(40))
            with pytest.raises(ConnectionResetError):
                one.recv(100)
        with pytest.raises(Unknown, match="did not go on"):
            join(stranger, 1, late=False)
        with pytest.raises(Unknown, match="did not go on"):
            join(alone, 2, late=False)
        assert first.running()
        join(alone, 1, late=False)
        assert first.result().keys() == {1}


def test_one_that_does_not_know_the_token_gets_nothing_from_a_worker(meeting: Meeting) -> None:
    """A listener that answers without the proof: the worker sends it no chunk."""
    with socket.create_server((meeting.address, meeting.port)) as listener, ThreadPoolExecutor(1) as pool:
        other = pool.submit(join, meeting, 1, False)
        with listener.accept()[0] as link:
            link.sendall(bytes(16))
            assert len(link.recv(1000)) == 16 + 5 + 32
            link.sendall(bytes(32) + b"U" + bytes(8))
            with pytest.raises(Unknown, match="not of this attempt"):
                other.result()
            with pytest.raises(ConnectionResetError):
                link.recv(1000)


def test_without_the_others_or_the_first_a_link_is_unknown(meeting: Meeting) -> None:
    with pytest.raises(Unknown, match="none of 3 workers"):
        listen(meeting, seconds=0.05)
    with pytest.raises(Unknown, match="does not listen"):
        join(meeting, 1, late=False, seconds=0.1)
    with ThreadPoolExecutor(1) as pool:  # the first one dies in the middle
        other = pool.submit(join, meeting, 1, False)
        with socket.create_server((meeting.address, meeting.port)) as listener:
            listener.accept()[0].close()
        with pytest.raises(Unknown, match="did not go on"):
            other.result()


RANK = """
import os, socket, time
where = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
if os.environ["RANK"] == "0":
    with socket.create_server(where) as listener:
        for _ in range(2):
            listener.accept()[0].sendall(b"met")
else:
    while True:
        try:
            link = socket.create_connection(where)
            break
        except ConnectionRefusedError:
            time.sleep(0.02)
    assert link.recv(3) == b"met"
"""


def test_launchers_measure_before_their_ranks_start(shop: LauncherFixture) -> None:
    """Three real launchers, of which one has a node that failed lately, meet through the server. Then the ranks meet at
    the port of rank 0."""
    shop.server.gang = 3
    (shop.root / "rank.py").write_text(RANK)
    about = {"num_nodes": 3, "master_port": free_port(), "links": True, "check_nodes": ("n2",), "accelerators": 0}
    folders = [
        shop.folder(f"{sys.executable} -S {shop.root}/rank.py", worker=worker, node=f"n{worker}", **about)
        for worker in range(3)
    ]
    for started in [shop.start(folder) for folder in folders]:
        assert started.wait(PATIENCE) == 0
    assert [shop.ended(folder).outcome for folder in folders] == ["succeeded"] * 3
    text = "".join(shop.server.log(rank) for rank in range(3))
    assert "links to the gang's first worker: worker 1 " in text
    assert "n2 failed lately and was checked: disk ok" in text
    assert "links ok" in text
    assert "not measured" not in text


def test_a_gang_that_does_not_meet_starts_without_its_links(shop: LauncherFixture) -> None:
    """The other worker does not come, and the server says so; or the server has no meetings at all."""
    shop.server.gang = 2
    shop.server.meetings.join(("first", 1), 2, 1, False, 0, sound=True, now=0.0)  # decided: they go on without
    for attempt, token in enumerate(("first", "second"), 1):
        about = {"num_nodes": 2, "links": True, "check_nodes": ("n1",), "attempt": attempt, "token": token}
        folder = shop.folder("echo started", node="n0", **about)
        assert shop.start(folder).wait(PATIENCE) == 0
        text = shop.server.log(0, token)
        assert "started" in text
        assert "links" not in text
        shop.server.gang = 0  # a request that it refuses


def test_a_batch_carries_the_links() -> None:
    batch = Batch(0, "running", links=((1, 812.5, 0.2), (2, 10.0, 3.0)))
    assert Batch.decode(batch.encode()) == batch
    for links in (((1, float("inf"), 0.2),), tuple((n, 1.0, 1.0) for n in range(65))):
        with pytest.raises(ValueError, match="links"):
            Batch.decode(replace(batch, links=links).encode())
