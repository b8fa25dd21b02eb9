"""`muster exec -t` and `attach` in a real terminal: what is typed, the window's size, and how it is left."""

from __future__ import annotations

import re
import subprocess
import termios
from collections.abc import Iterator

import pytest

from exec_kit import Screen, client_of, held, muster, processes_with, until_gone
from live import LiveServer, live_server, until


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with live_server(tmp_path_factory.mktemp("terminal"), config="cpus = 8\n") as server:
        yield server


@pytest.fixture(scope="module")
def job(server: LiveServer) -> str:
    return held(server)


@pytest.fixture
def screen(server: LiveServer, job: str, request: pytest.FixtureRequest) -> Iterator[Screen]:
    words: list[str] = request.param
    screen = Screen(server, *[word.replace("JOB", job) for word in words])
    yield screen
    screen.close()


@pytest.mark.parametrize("screen", [["attach", "JOB"]], indirect=True)
def test_a_shell_as_ssh_gives_one(server: LiveServer, job: str, screen: Screen) -> None:
    screen.shows(f"{job}, worker 0 on local-0")
    screen.types("tty_is() { test -t 0 && test -t 1 && echo is-a-$TERM; }; tty_is\r")
    screen.shows(r"\r\nis-a-dumb")
    screen.types("stty size\r")
    screen.shows("30 100")
    screen.resize(40, 120)
    until(lambda: screen.types("stty size\r") or "40 120" in screen.shows(r"\n\d+ \d+"), "the new size")
    screen.types("sleep 4321\r")
    until(lambda: processes_with("4321"), "the program")
    screen.types("\x03")  # interrupts the program, not the shell
    until_gone("4321")
    screen.types("pwd; exit 5\r")
    screen.shows(re.escape(str(server.home)))
    assert screen.process.wait(60) == 5
    assert termios.tcgetattr(screen.fd) == screen.before  # as it was
    with client_of(server) as client:
        assert client.exec(job, ["echo", "goes on"]).code == 0


@pytest.mark.parametrize("screen", [["exec", "-t", "JOB", "--", "cat"]], indirect=True)
def test_ctrl_d_ends_the_input(screen: Screen) -> None:
    until(lambda: processes_with("cat\0"), "the command")
    screen.types("typed\r")
    screen.shows("typed\r\ntyped\r\n")
    screen.types("\x04")
    assert screen.process.wait(60) == 0


@pytest.mark.parametrize("screen", [["attach", "JOB"]], indirect=True)
def test_a_terminal_that_closes_ends_the_session(screen: Screen) -> None:
    screen.types("sleep 5432\r")
    until(lambda: processes_with("5432"), "the program")
    screen.process.kill()
    until_gone("5432")


def test_attach_needs_a_terminal(server: LiveServer, job: str) -> None:
    refused = muster(server, "attach", job, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
    assert b"attach needs a terminal" in refused.communicate()[1]
    assert refused.returncode == 2


def test_the_end_of_the_job_is_told(server: LiveServer) -> None:
    job = held(server)
    screen = Screen(server, "attach", job)
    try:
        screen.types("echo here\r")
        screen.shows("\nhere")
        server.post(f"/v1/jobs/{job}/stop", {"force": True})
        screen.shows("ended")
        assert screen.process.wait(60) == 255
    finally:
        screen.close()
