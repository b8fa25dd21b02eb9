"""Two servers on one PostgreSQL: one acts, and the other takes over when it is killed or frozen."""

from __future__ import annotations

import json
import signal

import httpx
import pytest
from test_server_killed import STEPS, assert_whole, settle

from live import LiveServer, stop_everything, until

Pair = tuple[LiveServer, LiveServer]


@pytest.fixture
def pair(tmp_path, request: pytest.FixtureRequest):
    """A server, and one that stands by for it, on the database that the test names."""
    config = "nodes = 2\ncpus = 16\n"
    if request.param == "postgresql":
        config += f"store_url = '{request.getfixturevalue('postgres_url')}'\n"
    first, second = LiveServer(tmp_path / "home", (), config), LiveServer(tmp_path / "home", ["--standby"], config)
    yield first, second
    for server in (first, second):
        if server.process is not None and server.process.poll() is None:
            server.process.send_signal(signal.SIGCONT)
        stop_everything(server)


def wait_pid(server: LiveServer) -> None:
    """Until the address on record is this server's and it is ready."""
    assert server.process is not None
    pid = server.process.pid

    def leads() -> bool:
        address = json.loads((server.home / "server.json").read_text())
        try:
            return bool(address["pid"] == pid and server.get("/v1/server")["pid"] == pid)
        except (httpx.TransportError, AssertionError):
            return False

    until(leads, "the other server to lead")


# A frozen server on SQLite still holds its lock, and its machine with it: there is nothing to take over.
@pytest.mark.parametrize(
    ("pair", "blow"),
    [("postgresql", signal.SIGKILL), ("postgresql", signal.SIGSTOP), ("sqlite", signal.SIGKILL)],
    indirect=["pair"],
)
def test_the_second_takes_over(pair: Pair, program, marks, blow: signal.Signals) -> None:
    first, second = pair
    first.start()
    second.start(wait=False)
    until(lambda: first.log().count("Application startup complete") == 2, "the second to stand by")
    running = first.submit(program(STEPS, 0.05))["id"]
    first.wait(running, "running")
    first.process.send_signal(blow)
    wait_pid(second)
    queued = second.submit(program(STEPS, 0.01))["id"]
    settle(second, running, queued)
    assert_whole(second, marks, {running: 1, queued: 1})
    if blow == signal.SIGSTOP:
        first.process.send_signal(signal.SIGCONT)
        third = second.submit(program(STEPS, 0.0))["id"]
        settle(second, third)
        assert_whole(second, marks, {running: 1, queued: 1, third: 1})
    leads = [e["data"]["epoch"] for e in second.get("/v1/events", kind="server.leads")["events"]]
    assert leads[:2] == [1, 2]
