"""Watching on a real terminal: the status line, and what Ctrl-C may mean."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time

import pytest

from live import until
from muster.cli.views import status_line
from muster.client import Client, Job

MUSTER = [sys.executable, "-m", "muster"]
WAITS = "echo begun; while true; do sleep 0.05; done"
QUESTION = "keep watching (k)?"
CTRL_C = b"\x03"


class Terminal:
    """A command on a terminal of its own."""

    def __init__(self, words, home):
        self.shown = ""
        self.code = None
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ["MUSTER_HOME"] = str(home)
            os.environ["TERM"] = "xterm"
            signal.signal(signal.SIGINT, signal.SIG_DFL)  # whoever started the tests may have it ignored
            os.execv(words[0], words)
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 90, 0, 0))

    def until(self, text, patience=180):
        deadline = time.monotonic() + patience
        while text not in self.plain():
            assert time.monotonic() < deadline, self.plain()
            if not self.read():
                break
        assert text in self.plain()
        return self.plain()

    def read(self):
        """False when the command has ended."""
        try:
            if select.select([self.fd], [], [], 0.1)[0]:
                found = os.read(self.fd, 65536)
                self.shown += found.decode(errors="replace")
                return bool(found)
        except OSError:
            return False
        return True

    def plain(self):
        return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.shown)

    def press(self, keys):
        self.shown = ""
        os.write(self.fd, keys)

    def exit_code(self):
        while self.read():
            pass
        self.code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        return self.code


@pytest.fixture
def terminal(live):
    made = []

    def start(*words):
        made.append(Terminal([*MUSTER, *words], live.home))
        return made[-1]

    yield start
    for one in made:
        if one.code is None:
            os.kill(one.pid, signal.SIGKILL)
            os.waitpid(one.pid, 0)
        os.close(one.fd)


def _running(live, name):
    return live.get("/v1/jobs", name=name)["jobs"][0]


def test_ctrl_c_asks_and_the_job_is_watched_on_or_stopped(live, terminal):
    screen = terminal("run", "--name", "asked", "--", "bash", "-c", WAITS)
    screen.until("begun")
    screen.until(" running ")
    screen.press(CTRL_C)
    screen.until(QUESTION)
    screen.press(b"what?\n")
    screen.until(QUESTION)
    screen.press(b"k\n")
    screen.until("asked-")
    assert _running(live, "asked")["phase"] == "running"
    screen.press(CTRL_C)
    screen.until(QUESTION)
    screen.press(b"s\n")
    assert "stopped after" in screen.until("Continue it with `muster resume asked-")
    assert screen.exit_code() == 1
    assert _running(live, "asked")["reason"]["code"] == "user_stop"


@pytest.mark.parametrize(("answer", "code"), [(b"l\n", 0), (CTRL_C, 130)])
def test_a_job_that_is_left_goes_on(live, terminal, answer, code):
    screen = terminal("run", "--name", "left", "--", "bash", "-c", WAITS)
    screen.until("begun")
    screen.press(CTRL_C)
    screen.until(QUESTION)
    screen.press(answer)
    job = _running(live, "left")
    screen.until(f"{job['id']} goes on. Come back with `muster logs -f {job['id']}`.")
    assert screen.exit_code() == code
    assert live.job(job["id"])["phase"] == "running"
    live.post(f"/v1/jobs/{job['id']}/stop", {"force": True})
    live.wait(job["id"])


def test_without_a_terminal_ctrl_c_leaves_the_job(live):
    env = {**os.environ, "MUSTER_HOME": str(live.home)}
    command = [*MUSTER, "run", "--name", "piped", "--", "bash", "-c", WAITS]
    watching = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert watching.stdout.readline() == "begun\n"
    watching.send_signal(signal.SIGINT)
    _, err = watching.communicate(timeout=180)
    job = _running(live, "piped")
    assert f"Come back with `muster logs -f {job['id']}`." in err
    assert watching.returncode == 130
    assert job["phase"] == "running"
    live.post(f"/v1/jobs/{job['id']}/stop", {"force": True})
    live.wait(job["id"])


def test_the_end_of_a_job_takes_the_status_line_away(live, terminal):
    screen = terminal("run", "--name", "ends", "--nproc", "2", "--", "bash", "-c", "echo rank $RANK; sleep 0.3")
    shown = screen.until("succeeded after")
    assert screen.exit_code() == 0
    assert "[r0] rank 0\r\n" in shown
    assert "[r1] rank 1\r\n" in shown
    assert "\x1b[2K" in screen.shown[screen.shown.rindex("running") :]
    assert screen.shown.rindex("\x1b[?25h") > screen.shown.rindex("\x1b[?25l")


def test_following_logs_ends_with_ctrl_c_and_leaves_the_job(live, terminal):
    job = live.submit(WAITS, name="followed")["id"]
    screen = terminal("logs", "-f", job)
    screen.until("begun")
    screen.press(CTRL_C)
    assert screen.exit_code() == 130
    assert "Traceback" not in screen.plain()
    until(lambda: live.job(job)["phase"] == "running", "the job to be as it was")
    live.post(f"/v1/jobs/{job}/stop", {"force": True})
    live.wait(job)


def test_the_status_line_says_how_far_it_is(live):
    raw = live.submit("true", name="line")
    live.wait(raw["id"])
    progress = {"step": 50, "total": 100, "unit": "step", "rate": 2.0, "eta": 25.0, "metrics": {"loss": 0.5}}
    job = Job.from_view({**raw, "phase": "running", "attempt": 2, "progress": progress}, Client())
    assert status_line(job, linked=True).plain == (
        f"{raw['id']}  running  attempt 2  ━━━━━━━━━━╌╌╌╌╌╌╌╌╌╌ 50/100 50%  loss 0.5  2/s  25s left"
    )
    assert status_line(job, linked=False).plain.endswith("server away, retrying")
