"""The asynchronous client on a real server: a job's life, output that is left in the middle, many calls at once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from live import PATIENCE, LiveServer, live_server
from muster import AsyncClient
from muster.client import AsyncJob, AsyncRun
from muster.core.errors import NotFound, Refused, SpecError


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with live_server(tmp_path_factory.mktemp("home")) as made:
        yield made


def _with_client(server: LiveServer, main: Callable[[AsyncClient], Awaitable[None]]) -> None:
    threads = set(threading.enumerate())

    async def run() -> None:
        async with AsyncClient(home=server.home) as client:
            await main(client)

    asyncio.run(asyncio.wait_for(run(), PATIENCE))
    assert set(threading.enumerate()) == threads


def test_a_job_is_submitted_followed_and_waited_for(server: LiveServer, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text("name: said\nrun: cat told.txt\nworkdir: .\n")
    (tmp_path / "told.txt").write_text("one\ntwo\n")

    async def main(client: AsyncClient) -> None:
        job = await client.submit(tmp_path / "job.yaml", tags={"a": "b"})
        assert isinstance(job, AsyncJob)
        assert [line.text async for line in job.logs(follow=True)] == ["one", "two"]
        assert (await job.wait(timeout=PATIENCE)).phase == "succeeded"
        assert job.tags == {"a": "b"}
        run = await client.run(job.id)
        assert isinstance(run, AsyncRun)
        assert set((await client.code(job.id))["files"]) == {"job.yaml", "told.txt"}  # its folder was captured
        kinds = [event["kind"] async for event in client.events(job=job.id)]
        assert kinds[0] == "job.submitted"

    _with_client(server, main)


def test_files_go_up_and_come_down_whole(server: LiveServer, tmp_path: Path) -> None:
    large = tmp_path / "large.bin"
    large.write_bytes(bytes(range(256)) * 40_000)  # more than one block

    async def main(client: AsyncClient) -> None:
        made = await client.create_run("files")
        await client.put_artifact(made["id"], large, "a/large.bin")
        got = await client.get_artifact(made["id"], "a/large.bin", tmp_path / "back.bin")
        assert got.read_bytes() == large.read_bytes()
        note = await client.note(made["id"], "seen", files=[large])
        assert [entry["id"] async for entry in client.notes(made["id"])][-1] == note["id"]
        assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []

    _with_client(server, main)


def test_output_that_is_followed_can_be_left_in_the_middle(server: LiveServer, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    command = f"echo first; while [ ! -e {gate} ]; do sleep 0.05; done; echo second"

    async def main(client: AsyncClient) -> None:
        job = await client.submit({"run": command, "workdir": str(tmp_path)}, snapshot=False)
        heard: asyncio.Queue[str] = asyncio.Queue()

        async def follow() -> None:
            async for line in client.logs(job.id, follow=True):
                heard.put_nowait(line.text)

        following, waiting = asyncio.create_task(follow()), asyncio.create_task(client.wait(job.id))
        assert await heard.get() == "first"
        following.cancel()
        with pytest.raises(asyncio.CancelledError):
            await following
        assert heard.empty()
        gate.touch()  # what else the client was doing goes on
        assert (await waiting).phase == "succeeded"
        assert [line.text async for line in client.logs(job.id)] == ["first", "second"]

    _with_client(server, main)


def test_fifty_calls_at_once_are_all_answered(server: LiveServer, tmp_path: Path) -> None:
    async def main(client: AsyncClient) -> None:
        spec = {"name": "many", "run": "true", "workdir": str(tmp_path), "num_nodes": 1}
        jobs = await asyncio.gather(*(client.submit(spec, snapshot=False) for _ in range(10)))
        assert len({job.id for job in jobs}) == 10
        calls: list[Awaitable[object]] = [client.job(jobs[n % 10].id) for n in range(20)]
        calls += [client.why(jobs[n % 10].id) for n in range(10)]
        calls += [client.whoami() for _ in range(10)]
        calls += [client.runs("name = many") for _ in range(10)]
        assert len(await asyncio.gather(*calls)) == 50
        ended = await asyncio.gather(*(job.wait() for job in jobs))
        assert {job.phase for job in ended} == {"succeeded"}

    _with_client(server, main)


def test_errors_are_those_of_the_blocking_client(server: LiveServer, tmp_path: Path) -> None:
    async def main(client: AsyncClient) -> None:
        with pytest.raises(NotFound):
            await client.job("nobody-17")
        with pytest.raises(SpecError) as raised:
            await client.submit("run: true\nnproc: many\n")
        assert "line 2" in raised.value.problems[0].where
        with pytest.raises(Refused):
            await client.submit({"run": "true", "queue": "nowhere", "workdir": str(tmp_path)}, snapshot=False)
        with pytest.raises(NotFound):
            [line async for line in client.logs("nobody-17", follow=True)]

    _with_client(server, main)
