"""Replays in processes: the same answers as without them, killed ones made again, and none left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from live import until
from muster.core.rules import Rules
from muster.sim.answers import Answer, Ask
from muster.sim.model import Cluster, Costs, PoolShape, Setup, TraceJob
from muster.sim.partial import Partial
from muster.sim.pool import Pool, ReplayLost
from muster.sim.presets import PRESETS
from muster.sim.targets import Target
from muster.sim.worlds import Worlds

CLUSTER = Cluster((PoolShape("gpu", 2, 8),))
TRACE = [TraceJob(str(n), n * 7.0, 30.0 + n % 50, 1 + n % 2, (1, 8, 2)[n % 3], user=f"u{n % 4}") for n in range(300)]
FIFO = Setup("fifo", PRESETS.get("fifo").rules, CLUSTER)
FAILING = Setup("default", Rules(), CLUSTER, Costs(node_failures=30.0, repair=300.0))
ASKS = [
    Ask(FIFO, 0, whole=True),
    Ask(FAILING, 1, (Target("wait", 90.0, 60.0),)),
    Ask(FIFO, 2, (Target("wait", 90.0, 1.0),), to_end=False),
    Ask(FAILING, 0, whole=True),
]


def answers(processes: int, asks: list[Ask] = ASKS) -> list[Answer]:
    with Pool(TRACE, Worlds(3), processes) as pool:
        found = list(pool.run(asks))
    assert [ask for ask, _ in found] == asks
    return [without_times(answer) for _, answer in found]


def without_times(answer: Answer) -> Answer:
    """How long a replay took is no part of what it found."""
    if answer.result is not None:
        answer.result.wall = 0.0
    summary = answer.summary and replace(answer.summary, wall=0.0)
    return replace(answer, summary=summary, watched=replace(answer.watched, wall=0.0))


def test_processes_change_nothing():
    assert answers(2) == answers(1)


def test_nothing_is_left_after_the_last_answer():
    with Pool(TRACE, None, 2) as pool:
        list(pool.run(ASKS[:2]))
        pids = [worker.process.pid for worker in pool._workers]
        assert len(pids) == 2
    assert not any(map(is_there, pids))


def test_closing_early_ends_what_still_runs():
    with Pool(TRACE, None, 2) as pool:
        run = pool.run([Ask(FIFO), *[Ask(FAILING)] * 50])
        next(run)
        pids = [worker.process.pid for worker in pool._workers if worker.ask >= 0]
        run.close()
        assert pids
        assert not any(map(is_there, pids))


def test_a_replay_whose_process_is_killed_is_made_again():
    killed: list[int] = []
    pool = Pool(TRACE, Worlds(3), 2)

    def asks() -> Iterator[Ask]:
        for number, ask in enumerate(ASKS):
            if number == 2:  # both workers are busy or have just been
                victim = pool._workers[0].process
                victim.kill()
                killed.append(victim.pid)
            yield ask

    with pool:
        found = [without_times(answer) for _, answer in pool.run(asks())]
    assert killed
    assert found == answers(1)


def test_a_replay_that_is_killed_twice_is_given_up(monkeypatch):
    monkeypatch.setattr("muster.sim.pool._PROGRAM", "import os; os.kill(os.getpid(), 9) or int")
    with (
        Pool(TRACE, None, 2) as pool,
        pytest.raises(ReplayLost, match="replayed fifo ended by SIGKILL, twice") as error,
    ):
        list(pool.run([Ask(FIFO)]))
    assert "--processes 1" in error.value.hint


@pytest.mark.parametrize("processes", [1, 2])
def test_an_error_in_a_replay_is_an_error_here(processes):
    broken = replace(FIFO, rules=None)
    with Pool(TRACE, None, processes) as pool, pytest.raises(AttributeError, match="NoneType"):
        list(pool.run([Ask(broken)]))


@pytest.mark.parametrize("processes", [1, 2])
def test_progress_and_ends_are_told(processes, monkeypatch):
    monkeypatch.setattr("muster.sim.watched.TELL_EVERY", 0.0)  # in processes it is as it is
    partials: list[tuple[str, Partial]] = []
    ended: list[str] = []
    asks = [Ask(FIFO, label="a"), Ask(FAILING, label="b")]
    with Pool(
        TRACE,
        None,
        processes,
        lambda ask, partial: partials.append((ask.label, partial)),
        lambda ask, answer: ended.append(ask.label),
    ) as pool:
        list(pool.run(asks))
    assert sorted(ended) == ["a", "b"]
    if processes == 1:
        of_a = [partial for label, partial in partials if label == "a"]
        assert [one.finished for one in of_a] == sorted(one.finished for one in of_a)
        assert of_a[-1].completion is not None
        assert all(one.finished + one.running + one.waiting <= len(TRACE) for one in of_a)


PROGRAM = """
    import sys
    from muster.sim.answers import Ask
    from muster.sim.model import Cluster, PoolShape, Setup, TraceJob
    from muster.sim.pool import Pool
    from muster.core.rules import Rules
    trace = [TraceJob(str(n), n * 1.0, 500.0, 1, 1 + n % 8) for n in range(20_000)]
    setup = Setup("default", Rules(), Cluster((PoolShape("gpu", 2, 8),)))
    with Pool(trace, None, 2) as pool:
        run = pool._on_workers(iter([Ask(setup), Ask(setup)]))
        begin = pool._begin
        def told(*given):
            begin(*given)
            print(pool._workers[-1].process.pid, flush=True)
        pool._begin = told
        next(run)
"""


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_no_process_outlives_who_started_it(how, tmp_path: Path):
    """Ctrl-C ends all at once; of a killed process the workers hear from their pipes."""
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(PROGRAM))
    started = subprocess.Popen(
        [sys.executable, str(program)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    pids: list[int] = []
    try:
        assert started.stdout is not None
        pids = [int(started.stdout.readline()) for _ in range(2)]
        started.send_signal(how)
        _, errors = started.communicate()
        if how == signal.SIGINT:
            assert "KeyboardInterrupt" in errors
            assert not any(map(is_there, pids))
        until(lambda: not any(map(is_there, pids)))
    finally:
        for pid in [started.pid, *pids]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def is_there(pid: int) -> bool:
    """Not ended; one that has ended and was not waited for by its new parent does not count."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
