"""`muster cp` with a real server and a real job: both ways, what it refuses, and what a break leaves."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from exec_kit import client_of, ends, held, muster
from live import LiveServer, live_server, until
from muster.client import AsyncClient
from muster.core.errors import Invalid


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with live_server(tmp_path_factory.mktemp("cp"), "--nodes", "2", config="cpus = 8\n") as server:
        yield server


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("job-folder")


@pytest.fixture(scope="module")
def job(server: LiveServer, work: Path) -> str:
    return held(server, workdir=str(work), num_nodes=2)


def cp(server: LiveServer, *words: str) -> tuple[int, str, str]:
    done = muster(server, "cp", *words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    out, err = done.communicate()
    return done.returncode, out.decode(), " ".join(err.decode().split())


def test_files_and_folders_go_both_ways(server: LiveServer, job: str, work: Path, tmp_path: Path) -> None:
    large = os.urandom(5_000_001)
    (tmp_path / "tree" / "in").mkdir(parents=True)
    (tmp_path / "tree" / "in" / "large").write_bytes(large)
    (tmp_path / "tree" / "link").symlink_to("in/large")
    done = cp(server, str(tmp_path / "tree"), f"{job}:")
    assert done[0] == 0, done
    assert (work / "tree" / "in" / "large").read_bytes() == large
    code, out, _ = cp(server, "--json", f"{job}:tree@1", str(tmp_path / "back"))
    assert (code, json.loads(out)) == (0, {"files": 1, "bytes": len(large), "skipped": 0})
    assert (tmp_path / "back" / "link").read_bytes() == large
    assert cp(server, "--worker", "1", f"{job}:{work}/tree/in/large", str(tmp_path))[0] == 0
    assert (tmp_path / "large").read_bytes() == large
    told = [event["data"]["command"] for event in server.get("/v1/events", job=job, kind="exec.opened")["events"]]
    assert told == ["muster cp receive .", "muster cp send tree", f"muster cp send {work}/tree/in/large"]
    assert [one["code"] for one in ends(server, job)] == [0, 0, 0]


def test_the_clients_of_python_copy_both_ways(server: LiveServer, job: str, work: Path, tmp_path: Path) -> None:
    large, seen = os.urandom(3_000_001), list[tuple[int, int]]()
    (tmp_path / "given").write_bytes(large)
    with client_of(server) as client:
        done = client.copy_to(job, tmp_path / "given", "taken", progress=lambda *now: seen.append(now))
        assert (done.files, done.bytes, (work / "taken").read_bytes() == large) == (1, len(large), True)
        assert seen == sorted(seen)
        assert seen[-1] == (len(large), len(large))
        assert client.job(job).copy_from("taken", tmp_path / "back", worker=1).bytes == len(large)
        assert (tmp_path / "back").read_bytes() == large
        with pytest.raises(Invalid, match="there is no folder no/such"):
            client.copy_to(job, tmp_path / "given", "no/such/folder")
        with pytest.raises(FileNotFoundError):
            client.copy_to(job, tmp_path / "none")

    async def both() -> None:
        async with AsyncClient(server.url, token=server.token) as client:
            found = await client.job(job)
            await asyncio.gather(*(found.copy_to(tmp_path / "given", f"async-{n}") for n in range(3)))
            assert (await client.copy_from(job, "async-2", tmp_path / "again")).bytes == len(large)
            with pytest.raises(Invalid, match="No such file"):
                await found.copy_from("none", tmp_path / "none")

    asyncio.run(both())
    assert (tmp_path / "again").read_bytes() == large
    assert sorted(path.name for path in tmp_path.iterdir()) == ["again", "back", "given"]


def test_an_asynchronous_copy_that_is_cancelled_leaves_nothing(server: LiveServer, job: str, work: Path) -> None:
    (work / "wide").write_bytes(bytes(200_000_000))

    async def cancelled() -> None:
        async with AsyncClient(server.url, token=server.token) as client:
            begun = asyncio.Event()
            loop = asyncio.get_running_loop()
            copying = asyncio.create_task(
                client.copy_from(job, "wide", work / "copy", progress=lambda *now: loop.call_soon_threadsafe(begun.set))
            )
            await begun.wait()
            copying.cancel()
            with pytest.raises(asyncio.CancelledError):
                await copying

    before = len(ends(server, job))
    asyncio.run(cancelled())
    until(lambda: len(ends(server, job)) > before, "the end of the session")
    until(lambda: not list(work.glob("*copy*")), "nothing to be left of it")


def test_a_terminal_shows_how_far_it_is(server: LiveServer, job: str, tmp_path: Path) -> None:
    (tmp_path / "large").write_bytes(bytes(3_000_000))
    screen, inner = os.openpty()
    copy = muster(server, "cp", str(tmp_path / "large"), f"{job}:shown", stderr=inner)
    os.close(inner)
    seen = b""
    try:
        while part := os.read(screen, 65536):
            seen += part
    except OSError:  # its end has closed the terminal
        pass
    finally:
        os.close(screen)
    assert copy.wait() == 0
    bars = re.findall(r"\r\[(#*) *\] +(\d+)% of 3 MB", seen.decode())
    shares = [int(percent) for _, percent in bars]
    assert len(shares) > 5
    assert shares == sorted(set(shares))
    assert bars[-1] == ("#" * 25, "100")
    assert seen.endswith(b"\n")


def test_what_can_not_be_copied_is_told(server: LiveServer, job: str, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("a")
    for words, told in (
        ((f"{job}:no-such", str(tmp_path / "b")), "No such file or directory"),
        ((str(tmp_path / "a"), f"{job}:no/such/folder/a"), "there is no folder no/such/folder"),
        ((str(tmp_path / "none"), f"{job}:a"), "No such file or directory"),
        ((f"{job}:.", str(tmp_path / "no" / "folder")), "there is no folder"),
        ((f"{job}:a@7", str(tmp_path / "b")), "there is no worker 7"),
        (("no-such-job:a", str(tmp_path / "b")), "There is no job"),
    ):
        code, _, err = cp(server, *words)
        assert (code, told in err) == (1, True), err
    for words in ((f"{job}:a", f"{job}:b"), (str(tmp_path / "a"), str(tmp_path / "b"))):
        assert cp(server, *words)[0] == 2
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_client_that_is_killed_leaves_no_part_under_the_name(
    server: LiveServer, job: str, work: Path, tmp_path: Path
) -> None:
    (tmp_path / "large").write_bytes(bytes(400_000_000))
    copy = muster(server, "cp", str(tmp_path / "large"), f"{job}:large")
    until(lambda: [path for path in work.glob(".large.*.part") if path.stat().st_size > 1_000_000], "a part of it")
    copy.kill()
    copy.wait()
    before = len(ends(server, job))
    until(lambda: len(ends(server, job)) > before or not processes_of(work), "the end of the session")
    until(lambda: not list(work.glob("*large*")), "nothing to be left of it")


def processes_of(folder: Path) -> list[str]:
    """Processes that have a file of the folder open."""
    found = []
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            found += [str(link)] if str(link.readlink()).startswith(f"{folder}/.large") else []
        except OSError:
            continue
    return found


def test_of_a_job_that_is_over_nothing_can_be_copied(server: LiveServer, tmp_path: Path) -> None:
    over = server.submit("true")["id"]
    server.wait(over, "succeeded")
    code, _, err = cp(server, f"{over}:a", str(tmp_path))
    assert code == 1
    assert f"muster runs artifacts {over}" in err
