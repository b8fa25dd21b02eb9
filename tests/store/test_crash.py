"""Killed at any instant, nothing that was acknowledged is lost; and the log alone rebuilds the world."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from muster.core import faults
from muster.core.errors import ConfigError, Invalid
from muster.core.state import State
from muster.store.base import Entry, EventFilter, Store
from muster.store.registry import open_store
from store_kit import EVERYTHING, History, check_against_log, picture

HERE = Path(__file__).parent


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/m.db" if request.param == "sqlite" else request.getfixturevalue("postgres_url")


def appender(url: str, seed: int, fault: str = "") -> subprocess.Popen[str]:
    path = os.pathsep.join([str(HERE), str(HERE.parent)])
    environment = {**os.environ, "PYTHONPATH": path, faults.VARIABLE: fault}
    command = [sys.executable, str(HERE / "appender.py"), url, str(seed)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def check_whole(url: str, acknowledged: int) -> int:
    """Everything that was acknowledged is there, nothing is there by half; the version it is at."""
    store = open_store(url)
    try:
        version = store.state().version
        assert version >= acknowledged
        assert [event.seq for event in store.events(EventFilter(limit=EVERYTHING))] == list(range(1, version + 1))
        chunks = store.logs("j", 1, 0, 0, EVERYTHING)
        count = store.run("j").get("count", 0)
        assert b"".join(chunk.data for chunk in chunks) == b"".join(b"%09d\n" % n for n in range(count))
        assert count == 0 or store.streams("j", 1)[(0, "log")].acked == count * 10
        check_against_log(store)
        return version
    finally:
        store.close()


def test_killed_at_random(url: str) -> None:
    acknowledged = 0
    for seed in range(4):
        process = appender(url, seed)
        assert process.stdout is not None
        lines = random.Random(seed).randrange(5, 60)
        for _ in range(lines):
            acknowledged = int(process.stdout.readline())
        process.kill()
        # What it still said before it died was durable too.
        acknowledged = max([acknowledged, *(int(line) for line in process.stdout if line.endswith("\n"))])
        process.stdout.close()
        process.wait()
        check_whole(url, acknowledged)


@pytest.mark.parametrize("arrival", [1, 17])
@pytest.mark.parametrize("place", ["store.before_commit", "store.after_commit"])
def test_killed_around_the_commit(url: str, place: str, arrival: int) -> None:
    process = appender(url, 5, f"{place}:{arrival}")
    told, _ = process.communicate(timeout=180)
    assert process.returncode == -signal.SIGKILL
    lines = [int(line) for line in told.splitlines()]
    assert len(lines) == arrival - 1
    last = lines[-1] if lines else 0
    version = check_whole(url, last)
    assert version == last if place == "store.before_commit" else version > last


@pytest.mark.parametrize("text", ["x", "x:", ":1", "x:0", "x:one", "x:-1"])
def test_a_fault_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="expected a place and an arrival"):
        faults.parse(text)


def test_no_fault_is_no_fault() -> None:
    assert faults.parse(None) is faults.parse("") is None
    assert faults.parse("store.before_commit:3") == faults.Fault("store.before_commit", 3)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.integers(0, 5), min_size=1, max_size=25), st.integers(0, 2**32))
def test_the_log_alone_rebuilds_the_world_in_memory(sizes: list[int], seed: int) -> None:
    store = open_store("memory:")
    live(store, sizes, seed)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.integers(0, 5), min_size=1, max_size=25), st.integers(0, 2**32))
def test_the_log_alone_rebuilds_the_world_in_sqlite(sizes: list[int], seed: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store = open_store(f"sqlite:///{folder}/m.db")
        live(store, sizes, seed)
        store.close()
        again = open_store(f"sqlite:///{folder}/m.db")
        assert picture(again.state()) == picture(store.state())
        check_against_log(again)
        again.close()


def live(store: Store, sizes: list[int], seed: int) -> None:
    """Transactions of these many proposals, of which some are refused, and now and then a state loaded anew."""
    dice = random.Random(seed)
    history = History(dice)

    def propose(state: State) -> Entry:
        if dice.random() < 0.1:
            raise Invalid("refused by the dice")
        entry = Entry(history.entry(store))
        if dice.random() < 0.05:
            return Entry([*entry.events, *history.nonsense()])
        return entry

    for size in sizes:
        for result in store.transact([propose] * size):
            assert isinstance(result, list | Invalid | KeyError), result
        if dice.random() < 0.1:
            store.reload()
    check_against_log(store)
