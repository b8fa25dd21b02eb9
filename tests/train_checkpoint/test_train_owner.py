"""Two runs given one place: the second is refused and told who holds it; a dead one holds nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from ckpt_kit import names, save, snapshot

from gang_kit import gang
from muster import wire
from muster.train.checkpoint import Saver, newest
from muster.train.checkpoint.owner import LEASE, OWNER, LeaseHold, Seen
from muster.train.errors import CheckpointHeld


def against_another(where: str) -> tuple[int, str, int, list[str]]:
    """While another process holds the place, and after that was killed."""
    folder = Path(where)
    save(folder, 1)
    held, end = os.pipe()
    pid = os.fork()
    if pid == 0:
        Saver(folder).open()
        os.write(end, b"x")
        signal.pause()
    os.read(held, 1)
    said = all_are_refused(where)
    found = newest(folder)  # to read, nobody needs to hold it
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    save(folder, 2)
    return pid, said, found.step, names(folder)


def outlived(where: str) -> None:
    """A data loader that lives on does not keep the place for its run, which was killed."""
    (held, end), (ready, begun) = os.pipe(), os.pipe()
    run = os.fork()
    if run == 0:
        Saver(where).open()
        if os.fork() == 0:
            os.write(begun, b"x")
            os.read(held, 1)
            os._exit(0)
        signal.pause()
    os.read(ready, 1)
    os.kill(run, signal.SIGKILL)
    os.waitpid(run, 0)
    with Saver(where):
        os.write(end, b"x")


def all_are_refused(where: str) -> str:
    try:
        Saver(where).open()
    except CheckpointHeld as error:
        return str(error)
    return ""


def both(where: str) -> tuple[int, str, int, list[str]]:
    outlived(f"{where}/a")
    return against_another(f"{where}/b")


def test_the_second_is_refused_until_the_first_is_dead(tmp_path):
    ((pid, said, step, left),) = gang(1, both, str(tmp_path), group=False)
    assert f"{tmp_path}/b is held by another run (process {pid} on " in said
    assert "Give this run a folder of its own" in said
    assert step == 1
    assert left == ["step-000000001", "step-000000002"]


def test_the_same_process_twice_and_then_after_it_was_closed(tmp_path):
    with Saver(tmp_path), pytest.raises(CheckpointHeld, match=f"process {os.getpid()} "):
        Saver(tmp_path).open()
    with Saver(tmp_path) as saver:
        saver.save(snapshot(1), wait=True)


def test_all_ranks_of_the_second_run_are_refused(tmp_path):
    with Saver(tmp_path):
        said = gang(2, all_are_refused, str(tmp_path))
    assert all(f"held by another run (process {os.getpid()} " in each for each in said)


class Register:
    """An object store's conditional writes, with a clock that the test sets."""

    def __init__(self) -> None:
        self.held: tuple[bytes, str] | None = None
        self.age = 0.0
        self.writes = 0

    def peek(self, name: str) -> Seen | None:
        assert name == OWNER
        return Seen(*self.held, self.age) if self.held else None

    def swap(self, name: str, data: bytes, tag: str | None) -> str | None:
        if (self.held[1] if self.held else None) != tag:
            return None
        self.writes += 1
        self.held = data, str(self.writes)
        return str(self.writes)

    def drop(self, name: str) -> None:
        self.held = None


@pytest.fixture
def elsewhere(monkeypatch):
    """As on another host: a process there can't be looked at."""
    monkeypatch.setattr("muster.train.checkpoint.owner._process_space", lambda: os.urandom(4).hex())


@pytest.mark.usefixtures("elsewhere")
def test_a_lease_is_taken_when_it_is_not_renewed(tmp_path):
    register = Register()
    first, second = LeaseHold(register, "s3://b/x"), LeaseHold(register, "s3://b/x")
    first.take()
    register.age = LEASE - 10
    with pytest.raises(CheckpointHeld, match=r"another run \(process .* If it is dead, the place is free in 10 s"):
        second.take()
    first.check()
    register.age = LEASE + 1
    second.take()
    with pytest.raises(CheckpointHeld, match="This run was out of touch for longer than its lease"):
        first.check()
    first.release()  # must not let go of what is another's
    second.check()
    second.release()
    assert register.held is None


@pytest.mark.usefixtures("elsewhere")
def test_a_later_attempt_of_the_same_job_need_not_wait(monkeypatch):
    register = Register()
    monkeypatch.setenv(wire.JOB, "j-1")
    monkeypatch.setenv(wire.ATTEMPT, "1")
    first, second = LeaseHold(register, "s3://b/x"), LeaseHold(register, "s3://b/x")
    first.take()
    monkeypatch.setenv(wire.ATTEMPT, "2")
    second.take()
    monkeypatch.setenv(wire.JOB, "j-2")
    with pytest.raises(CheckpointHeld, match="job j-1, attempt 2"):
        LeaseHold(register, "s3://b/x").take()
    first.release()
    second.release()


def test_a_dead_process_of_this_host_holds_nothing():
    register = Register()
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    first = LeaseHold(register, "s3://b/x")
    first.take()
    with pytest.raises(CheckpointHeld):
        LeaseHold(register, "s3://b/x").take()
    register.held = (register.held[0].replace(b'"pid": %d,' % os.getpid(), b'"pid": %d,' % gone.pid), "1")
    second = LeaseHold(register, "s3://b/x")
    second.take()
    first.release()
    second.release()
