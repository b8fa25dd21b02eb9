"""Forecasts in a process of their own say what they say here, also when that process is killed."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from live import until
from muster.control.forecast_process import ForecastProcess
from muster.core.errors import Unavailable
from muster.sched.board import Board
from muster.sched.forecast import forecast_snapshot
from muster.sched.offers import offers
from muster.sched.snapshot import Snapshot, take
from wait_kit import ClusterState


@pytest.fixture
def process() -> Iterator[ForecastProcess]:
    made = ForecastProcess(large=0)
    yield made
    made.close()


@pytest.fixture(scope="module")
def busy() -> tuple[Snapshot, str]:
    cluster = ClusterState()
    cluster.run("n0", "n1", max_duration="10h")
    waiting = cluster.job(gpus=2)
    return take(cluster.state, Board(), cluster.now, [waiting]), waiting


def test_it_says_the_same_after_its_process_was_killed(process: ForecastProcess, busy: tuple[Snapshot, str]) -> None:
    snapshot, name = busy
    here = forecast_snapshot(snapshot, [name])
    assert here[name].p50 is not None
    assert process.forecast(snapshot, [name]) == here
    first = process._process
    assert first is not None
    job = next(one for one in snapshot.jobs if one.id == name)
    assert process.offers(snapshot, job) == offers(snapshot, job)
    assert process._process is first  # the same answers both
    os.kill(first.pid, signal.SIGKILL)
    assert process.forecast(snapshot, [name], samples=2) == forecast_snapshot(snapshot, [name], samples=2)
    assert process._process is not first
    assert first.returncode == -signal.SIGKILL


def test_an_error_is_raised_here_and_the_process_goes_on(process: ForecastProcess, busy: tuple[Snapshot, str]) -> None:
    snapshot, name = busy
    with pytest.raises(TypeError):
        process.forecast(snapshot, [name], samples="many")
    first = process._process
    assert process.forecast(snapshot, [name]).keys() == {name}
    assert process._process is first


def test_who_waits_while_it_is_closed_is_refused(process: ForecastProcess, busy: tuple[Snapshot, str]) -> None:
    snapshot, name = busy
    process.forecast(snapshot, [name])
    assert process._process is not None
    os.kill(process._process.pid, signal.SIGSTOP)  # it never answers
    refused: list[Exception] = []

    def ask() -> None:
        try:
            process.forecast(snapshot, [name])
        except Unavailable as error:
            refused.append(error)

    asking = threading.Thread(target=ask)
    asking.start()
    until(process._turn.locked, "the question")
    process.close()
    asking.join()
    assert len(refused) == 1


def test_it_ends_with_whoever_started_it(process: ForecastProcess) -> None:
    """As when the server is killed: its end of the pipe is closed."""
    process._start()
    assert process._process is not None
    assert process._pipe is not None
    process._pipe.close()
    assert process._process.wait(60) == 0


def test_small_ones_need_no_process(busy: tuple[Snapshot, str]) -> None:
    snapshot, name = busy
    small = ForecastProcess()
    assert small.forecast(snapshot, [name]) == forecast_snapshot(snapshot, [name])
    assert small._process is None
    small.close()
