"""The asynchronous client has all of the blocking one, and gives back what it held when it is cancelled or closed."""

from __future__ import annotations

import asyncio
import inspect
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from fake_server import TOKEN, fake_server, refusal, view

import muster
from live import PATIENCE, until
from muster import AsyncClient, Client
from muster.client import AsyncJob, AsyncRun, Job, Run
from muster.client.async_client import AT_ONCE
from muster.core import errors

CHUNKS = [(n, 1, n % 2, f"{n}a\n{n}b\n") for n in range(1, 11)]
LINES = [f"{n}{part}" for n in range(1, 11) for part in "ab"]
PAIRS = [(Client, AsyncClient), (Job, AsyncJob), (Run, AsyncRun)]
MEMBERS = [(*pair, name) for pair in PAIRS for name in dir(pair[0]) if not name.startswith("_")]


@pytest.fixture
def server():
    with fake_server(jobs=[view(1, "succeeded", finished_at=2.0)], chunks=list(CHUNKS)) as made:
        yield made


def _client(server, **settings):
    return AsyncClient(server.url, TOKEN, **{"retry_for": PATIENCE, **settings})


def _sockets():
    return sum(1 for one in Path("/proc/self/fd").iterdir() if "socket:" in _link(one))


def _link(path):
    try:
        return str(path.readlink())
    except OSError:
        return ""


# --- the same methods -------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("blocking", "awaited", "name"), MEMBERS)
def test_everything_public_is_in_both_with_the_same_parameters(blocking, awaited, name):
    one, other = getattr(blocking, name), getattr(awaited, name)
    if not inspect.isfunction(one):
        assert not inspect.isfunction(other)
        return
    assert str(inspect.signature(one)) == str(inspect.signature(other))
    assert not inspect.iscoroutinefunction(one)
    assert not inspect.isasyncgenfunction(one)
    returns = str(inspect.signature(other).return_annotation)
    assert inspect.iscoroutinefunction(other) or returns.startswith("AsyncGenerator")
    assert one.__doc__ == other.__doc__


def test_the_clients_have_no_method_that_only_one_of_them_has():
    for blocking, awaited in PAIRS:
        both = [{name for name in dir(kind) if not name.startswith("_")} for kind in (blocking, awaited)]
        assert both[0] == both[1]


def test_the_event_loop_is_not_loaded_with_the_blocking_client():
    script = "import sys, muster; muster.Client('http://127.0.0.1:1', 'x'); print('asyncio' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert said.stdout == "False\n"
    assert muster.AsyncClient is AsyncClient


# --- calls ------------------------------------------------------------------------------------------------------------
def test_calls_streams_and_jobs_give_what_the_blocking_ones_give(server):
    async def main():
        async with _client(server) as client:
            job = await client.submit({"run": "true"}, snapshot=False)
            assert isinstance(job, AsyncJob)
            assert (await job.refresh()) is job
            assert [line.text async for line in job.logs()] == LINES
            server.cuts += [0, 3, 1, 4]
            assert [line.text async for line in client.logs(job.id, follow=True)] == LINES
            seen = []
            server.jobs[:] = [view(1, "queued"), view(1, "running"), view(1, "failed")]
            ended = await client.wait("job-1", timeout=PATIENCE, on_change=lambda job: seen.append(job.phase))
            assert (ended.phase, seen) == ("failed", ["queued", "running", "failed", "failed"])

    asyncio.run(main())


def test_hundreds_of_calls_at_once_take_turns(server):
    async def main():
        async with _client(server) as client:
            found = await asyncio.gather(*(client.job("job-1") for _ in range(5 * AT_ONCE)))
            assert {job.id for job in found} == {"job-1"}

    asyncio.run(main())


@pytest.mark.parametrize("kind", [errors.NotFound, errors.NotAllowed, errors.Invalid, errors.Conflict])
def test_an_error_is_raised_as_the_class_that_the_server_raised(server, kind):
    async def main():
        async with _client(server) as client:
            server.failures.append(refusal(400, kind.code))
            with pytest.raises(kind, match="What"):
                await client.job("x")
            server.failures.append(refusal(404, kind.code))
            with pytest.raises(kind, match="What"):
                [line async for line in client.logs("x", follow=True)]

    asyncio.run(main())


def test_a_download_that_breaks_off_is_told_as_a_server_that_went_away(server):
    async def main():
        async with _client(server) as client:
            server.failures.append("drop")
            with pytest.raises(errors.Unavailable, match="The server went away"):
                await client.read_artifact("job-1", "model.pt")

    asyncio.run(main())


def test_waiting_ends_at_the_timeout(server):
    server.silent = True
    server.jobs[-1] = view(1, "running")

    async def main():
        async with _client(server) as client:
            with pytest.raises(TimeoutError, match=r"job-1 is still running after 0\.2 s"):
                await client.wait("job-1", timeout=0.2)

    asyncio.run(main())


def test_the_blocking_client_works_inside_of_an_event_loop(server):
    async def main():
        with Client(server.url, TOKEN) as client:
            assert client.job("job-1").id == "job-1"
            assert [line.text for line in client.logs("job-1", follow=True)] == LINES

    asyncio.run(main())


# --- nothing is left behind -------------------------------------------------------------------------------------------
def test_a_stream_that_is_cancelled_while_the_server_is_silent_lets_its_connection_go(server):
    server.silent = True
    threads, sockets = set(threading.enumerate()), _sockets()

    async def main():
        async with _client(server) as client:
            await client.job("job-1")
            followers = [asyncio.create_task(_last(client.events(last=1, follow=True))) for _ in range(3)]
            followers += [asyncio.create_task(_last(client.logs("job-1", follow=True))) for _ in range(3)]
            while sum(seen.path.endswith("/stream") for seen in server.seen) < 6:
                await asyncio.sleep(0.01)
            for one in followers:
                one.cancel()
            ended = await asyncio.gather(*followers, return_exceptions=True)
            assert all(isinstance(one, asyncio.CancelledError) for one in ended)
            assert len(client._transport._http._transport._pool.connections) <= 1 + 3  # idle ones of the plain calls

    asyncio.run(asyncio.wait_for(main(), PATIENCE))
    assert set(threading.enumerate()) == threads
    until(lambda: _sockets() <= sockets, "both sides of the connections to be closed")


def test_a_stream_that_is_left_in_the_middle_lets_its_connection_go(server):
    async def main():
        async with _client(server) as client:
            lines = client.logs("job-1", follow=True)
            async for line in lines:
                assert line.text == LINES[0]
                break
            await lines.aclose()
            assert client._transport._http._transport._pool.connections == []

    asyncio.run(main())


def test_closing_ends_what_is_under_way(server):
    server.silent = True

    async def main():
        client = _client(server)
        follower = asyncio.create_task(_last(client.logs("job-1", follow=True)))
        while not server.seen:
            await asyncio.sleep(0.01)
        await client.close()
        with pytest.raises(RuntimeError, match="closed"):
            await follower
        with pytest.raises(RuntimeError, match="closed"):
            await client.job("job-1")

    before = _sockets()
    asyncio.run(asyncio.wait_for(main(), PATIENCE))
    until(lambda: _sockets() <= before, "both sides of the connections to be closed")


async def _last(items):
    found = None
    async for item in items:
        found = item
    return found
