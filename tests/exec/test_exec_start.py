"""`muster exec`, `attach` and `cp` right after a job was submitted: they wait until it runs."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from exec_kit import HELD, client_of, muster
from live import LiveServer, live_server, until
from muster.core.errors import Conflict, NotStarted


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with live_server(tmp_path_factory.mktemp("start"), config="cpus = 8\n") as server:
        server.wait(server.submit("true")["id"])  # so that the process that forks launchers is there
        yield server


@contextmanager
def no_launches(server: LiveServer) -> Iterator[None]:
    """The process that forks launchers is frozen: jobs stay in the phase `starting`."""
    parent = json.loads((server.home / "server.json").read_text())["pid"]
    (warm,) = [pid for pid in _children(parent) if "muster.runtime.warm" in _command(pid)]
    os.kill(warm, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(warm, signal.SIGCONT)


def _children(parent: int) -> list[int]:
    tasks = Path(f"/proc/{parent}/task").glob("*/children")
    return [int(pid) for task in tasks for pid in task.read_text().split()]


def _command(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text()


def test_commands_wait_for_a_job_that_starts(server: LiveServer, tmp_path: Path) -> None:
    (tmp_path / "given").write_text("given")
    with no_launches(server):
        job = server.submit(HELD, name="soon")["id"]
        asked = [
            muster(server, *words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            for words in (("exec", "soon", "--", "echo", "here"), ("cp", str(tmp_path / "given"), "soon:taken"))
        ]
        for one in asked:
            assert one.stderr is not None
            assert one.stderr.readline().decode() == f"waiting for job {job} to start\n"
        server.wait(job, "starting")
    ended = [one.communicate() for one in asked]
    assert [one.returncode for one in asked] == [0, 0]
    assert ended[0] == (b"here\n", b"")
    assert (server.home / "taken").read_text() == "given"
    server.post(f"/v1/jobs/{job}/stop", {"force": True})


def test_the_wait_is_limited_and_can_be_left(server: LiveServer) -> None:
    with no_launches(server), client_of(server) as client:
        job = client.submit({"run": HELD, "name": "late", "workdir": str(server.home)})
        with pytest.raises(NotStarted, match=r"It was waited for 0\.3 s"):
            job.exec(["true"], start_timeout=0.3)
        left = muster(server, "exec", job.id, "--", "true", stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
        assert left.stderr is not None
        left.stderr.readline()
        left.send_signal(signal.SIGINT)
        left.communicate()
        assert left.returncode == 130
        assert not server.get("/v1/events", job=job.id, kind="exec.opened")["events"]
        job.stop(force=True)


def test_a_job_that_ends_before_it_runs_is_refused(server: LiveServer) -> None:
    with no_launches(server):
        job = server.submit(HELD, name="never")["id"]
        asked = muster(server, "exec", "never", "--", "true", stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
        assert asked.stderr is not None
        asked.stderr.readline()
        server.post(f"/v1/jobs/{job}/stop", {"force": True})
    told = asked.communicate()[1].decode()
    # Depending on how far the stop was when the server looked at it.
    assert re.search(rf"The job {job} (is stop|ended)|Worker 0 of {job} is", told), told
    assert asked.returncode == 255


def test_an_array_has_no_ranks(server: LiveServer) -> None:
    array = server.submit(HELD, array="0-1")["id"]
    with client_of(server) as client, pytest.raises(Conflict, match="has no ranks of its own"):
        client.exec(array, ["true"])
    server.post(f"/v1/jobs/{array}/stop", {"force": True})
    until(lambda: server.job(array)["phase"] == "stopped", "the end of the array")
