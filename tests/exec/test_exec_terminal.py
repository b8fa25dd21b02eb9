"""`muster exec -t` and `attach` in a real terminal: what is typed, the window's size, and how it is left."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import termios
from collections.abc import Iterator

import pytest

from exec_kit import client_of, held, muster, processes_with, until_gone
from live import LiveServer, live_server, until


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    with live_server(tmp_path_factory.mktemp("terminal"), config="cpus = 8\n") as server:
        yield server


@pytest.fixture(scope="module")
def job(server: LiveServer) -> str:
    return held(server)


class Screen:
    """A terminal of 30 rows and 100 columns with `muster` in it."""

    def __init__(self, server: LiveServer, *words: str) -> None:
        self.fd, inner = os.openpty()
        self.before = termios.tcgetattr(self.fd)
        termios.tcsetwinsize(self.fd, (30, 100))
        env = {"TERM": "dumb", "PS1": "$ "}
        self.process = muster(server, *words, stdin=inner, stdout=inner, stderr=inner, env=env, start_new_session=True)
        os.close(inner)
        os.set_blocking(self.fd, False)
        self.seen = ""

    def shows(self, pattern: str) -> str:
        """Waits until what was shown since the last call has this, and returns it."""

        def found() -> re.Match[str] | None:
            try:
                self.seen += os.read(self.fd, 65536).decode(errors="replace")
            except (BlockingIOError, OSError):  # nothing now; or nobody has the terminal open
                pass
            return re.search(pattern, self.seen)

        try:
            match = until(found, f"{pattern!r}", 60)
        except AssertionError as error:
            raise AssertionError(f"{error}; shown was {self.seen!r}") from None
        self.seen = self.seen[match.end() :]
        return match[0]

    def types(self, text: str) -> None:
        os.write(self.fd, text.encode())

    def resize(self, rows: int, columns: int) -> None:
        termios.tcsetwinsize(self.fd, (rows, columns))
        os.kill(self.process.pid, signal.SIGWINCH)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.fd)


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
