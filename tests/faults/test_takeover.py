"""Two servers on one PostgreSQL: one acts, and the other takes over when it is killed or frozen."""

from __future__ import annotations

import signal

import httpx
import pytest
from test_server_killed import STEPS, assert_whole, settle

from live import LiveServer, stop_everything, until


@pytest.fixture
def pair(tmp_path, postgres_url: str):
    options, config = ["--store", postgres_url], "nodes = 2\ncpus = 16\n"
    servers = [LiveServer(tmp_path / "home", options, config) for _ in range(2)]
    yield servers
    for server in servers:
        stop_everything(server)


def wait_pid(server: LiveServer) -> None:
    """Until the address on record is this server's and it is ready."""
    assert server.process is not None
    pid = server.process.pid

    def leads() -> bool:
        try:
            return bool(server.get("/v1/server")["pid"] == pid)
        except (httpx.TransportError, AssertionError, FileNotFoundError):
            return False

    until(leads, "the other server to lead")


@pytest.mark.parametrize("blow", [signal.SIGKILL, signal.SIGSTOP])
def test_the_second_takes_over(pair: list[LiveServer], program, marks, blow: signal.Signals) -> None:
    first, second = pair
    first.start()
    second.start(wait=False)
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
