"""Phases of a rank: written as they change, bounded in number, and their sums are the time that passed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rank_kit import documents, run

from muster import runtime, wire
from muster.runtime import phases
from muster.runtime.phases import BURST, EVERY, UNSTATED, PhaseLog

NAMES = (UNSTATED, *wire.PHASES)


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def time(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch):
    made = Clock()
    monkeypatch.setattr(phases, "time", made)
    return made


def told(docs, begin):
    """Seconds by phase, from the documents alone."""
    sums, current, at = dict.fromkeys(NAMES, 0.0), UNSTATED, begin
    for doc in docs:
        parts = doc.get("spent", {})
        for name, seconds in parts.items():
            sums[name] += seconds
        sums[current] += doc["time"] - at - sum(parts.values())
        current, at = doc["name"], doc["time"]
    return sums


def test_a_change_is_written_as_it_happens(clock):
    docs = []
    log = PhaseLog(docs.append)
    clock.now += 3
    log.enter("build")
    clock.now += 2
    log.enter("training")
    assert docs == [
        {"type": "phase", "time": 1003.0, "name": "build"},
        {"type": "phase", "time": 1005.0, "name": "training"},
    ]


def test_a_flood_is_written_as_sums_and_leaves_the_other_phases_alone(clock):
    docs = []
    log = PhaseLog(docs.append)
    log.enter("training")
    for _ in range(10_000):  # 100 s
        log.enter("data")
        clock.now += 0.002
        log.enter("training")
        clock.now += 0.008
    assert len(docs) <= 4 * (BURST + 100 / EVERY + 1)  # two phases, each written change with a return
    clock.now += 1
    log.enter("saving")
    assert docs[-1]["name"] == "saving"  # at once: its credits are its own
    sums = told(docs, 1000.0)
    assert sums["data"] == pytest.approx(20.0)
    assert sums["training"] == pytest.approx(81.0)


def test_seconds_that_were_measured_elsewhere_are_written_every_few_seconds(clock):
    docs = []
    log = PhaseLog(docs.append)
    log.enter("training")
    for _ in range(100):
        clock.now += 0.1
        log.spent("data", 0.025)
    log.flush()
    assert len(docs) <= 1 + 10 / EVERY + 1
    assert told(docs, 1000.0)["data"] == pytest.approx(2.5)


@given(st.lists(st.tuples(st.sampled_from(NAMES), st.floats(0.0, 20.0)), max_size=200))
def test_no_second_is_lost_or_counted_twice(steps):
    with pytest.MonkeyPatch.context() as patch:
        clock, docs = Clock(), []
        patch.setattr(phases, "time", clock)
        log, expected = PhaseLog(docs.append), dict.fromkeys(NAMES, 0.0)
        for name, seconds in steps:
            log.enter(name)
            clock.now += seconds
            expected[name] += seconds
        log.enter("idle" if log.name != "idle" else "training")
        log.flush()
    sums = told(docs, 1000.0)
    if docs:  # what is in no document yet belongs to the phase that was written last
        last = docs[-1]["name"]
        sums[last] += clock.now - docs[-1]["time"]
    else:
        sums[UNSTATED] += clock.now - 1000.0
    assert sums == pytest.approx(expected, abs=1e-4)


def test_blocks_nest_and_return_even_after_an_error():
    def fails():
        with runtime.phase("saving"):
            with runtime.phase("data"):
                assert phases.log.name == "data"
            assert phases.log.name == "saving"
            raise KeyError

    runtime.phase("training")
    with pytest.raises(KeyError):
        fails()
    assert phases.log.name == "training"
    phases.log.enter(UNSTATED)


@pytest.mark.parametrize("call", [lambda: runtime.phase("thinking"), lambda: runtime.spent("thinking", 1.0)])
def test_an_unknown_name_is_told_with_the_known_ones(call):
    with pytest.raises(ValueError, match="'thinking'; expected one of import, rendezvous, build"):
        call()


def test_a_rank_writes_its_phases_and_what_is_left_at_its_exit(tmp_path):
    script = """
from muster import runtime
with runtime.phase("build"):
    pass
runtime.phase("training")
with runtime.checkpoint(3) as folder:
    (folder / "state").write_text("x")
runtime.spent("data", 0.25)
"""
    run(script, tmp_path, cwd=tmp_path)
    found = documents(tmp_path, "phase")
    assert [doc["name"] for doc in found] == ["build", "", "training", "saving", "training", "training"]
    assert found[-1]["spent"] == {"data": 0.25}
