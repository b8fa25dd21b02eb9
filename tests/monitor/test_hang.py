"""The judge of hangs on simulated gangs: no verdict on any ordinary sequence, one in time on every frozen one."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.monitor.hang import LEAST, PATIENCE, UNSURE, goes_on, judge, limit_of
from pulse_kit import BEAT, SimulatedGang

durations = st.floats(0.01, 40.0)
phases = st.sampled_from(["compile", "load", "saving", "evaluating"])
ORDINARY = st.one_of(
    st.tuples(st.just("step"), durations),
    st.tuples(st.just("pause"), st.floats(1.0, 2000.0)),  # compiles or evaluates without a word
    st.tuples(st.just("alone"), st.floats(1.0, 2000.0)),  # rank 0 does, and the others wait for it without CPU time
    st.tuples(st.just("collect"), st.floats(1.0, 600.0)),  # collectives, and nothing else that is seen
    st.tuples(phases, st.floats(1.0, PATIENCE - 60.0)),
)


def warmed_up(**about: bool) -> SimulatedGang:
    made = SimulatedGang(**about)
    made.phase("compile", 900.0)
    for _ in range(20):
        made.step(0.5)
    return made


def replay(gang: SimulatedGang, moments: list[tuple[str, float]]) -> None:
    for what, seconds in moments:
        if what == "step":
            gang.step(seconds)
        elif what == "pause":
            gang.work(seconds)
            gang.step(0.5)  # twice the patience without a step or a word would be a hang
        elif what == "alone":
            gang.collect([1, 2, 3])
            gang.rest(seconds, busy=[0], power=500.0)
            gang.collect([0])
            gang.step(0.5)
        elif what == "collect" and gang.counted:
            end = gang.now + seconds
            while gang.now < end:
                gang.collect(range(gang.ranks))
                gang.rest(20.0)
            gang.step(0.5)
        elif what != "collect":
            gang.phase(what, seconds)


@settings(max_examples=30, deadline=None)
@given(st.lists(ORDINARY, max_size=8), st.booleans(), st.booleans(), st.booleans())
def test_no_ordinary_sequence_gets_a_verdict(
    moments: list[tuple[str, float]], steps: bool, devices: bool, counted: bool
) -> None:
    gang = warmed_up(reporting=steps, devices=devices, counted=counted)
    replay(gang, moments)
    assert gang.found is None


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(st.just("step"), durations), min_size=6, max_size=12), st.integers(0, 3))
def test_a_gang_that_freezes_while_it_trains_gets_one_in_time(moments: list[tuple[str, float]], odd: int) -> None:
    gang = SimulatedGang()
    replay(gang, moments)
    froze, limit = gang.now, limit_of(gang.gang).seconds
    gang.rest(4 * limit, place={odd: "hrtimer_nanosleep"})
    assert gang.found is not None
    assert gang.found.behind == (odd,)
    assert gang.found_at - froze <= limit + 2 * BEAT
    assert limit <= max(LEAST, 3 * max(seconds for _, seconds in moments)) + 0.001


@settings(max_examples=30, deadline=None)
@given(st.floats(-1e6, 1e6), st.integers(1, 300))
def test_a_clock_that_jumps_makes_no_hang(jump: float, pause: int) -> None:
    gang = warmed_up()
    gang.jump = jump
    gang.step(1.0)
    gang.gang.look(gang.now + 1e5)  # a server that slept
    gang.now, gang._next = gang.now + pause, gang.now + pause  # and launchers that did
    for _ in range(20):
        gang.step(0.5)
    assert gang.found is None


def test_the_stopped_rank_is_behind_even_if_the_others_spin() -> None:
    gang = warmed_up()
    gang.stopped = {2}
    gang.rest(40.0, busy=[0, 1, 3])
    assert gang.found is not None
    assert (gang.found.kind, gang.found.behind, gang.found.workers) == ("process stopped", (2,), (0,))


def test_the_idle_rank_is_behind_those_that_spin_in_a_collective() -> None:
    gang = warmed_up(devices=True)
    gang.rest(60.0, busy=[0, 2, 3], power=75.0)
    assert gang.found is not None
    assert (gang.found.kind, gang.found.behind) == ("steps stopped", (1,))


def test_the_rank_with_the_lowest_step_is_behind() -> None:
    gang = warmed_up()
    for rank in (0, 1, 2):
        gang.gang.report(rank % 2, rank, [(gang.now, gang.count + 1)], [], gang.now)
    gang.rest(40.0)
    assert gang.found is not None
    assert gang.found.behind == (3,)


@settings(max_examples=10, deadline=None)
@given(st.booleans(), st.integers(0, 3), st.integers(0, 3), st.integers(1, 8))
def test_the_rank_with_the_fewest_collectives_is_behind(reporting: bool, odd: int, sleeper: int, count: int) -> None:
    gang = warmed_up(reporting=reporting, counted=True)
    gang.collect(set(range(4)) - {odd}, count)
    gang.rest(2 * LEAST if reporting else PATIENCE + 2 * BEAT, place={sleeper: "hrtimer_nanosleep"})
    assert gang.found is not None
    assert gang.found.behind == (odd,)
    signal = gang.found.signals[-1]
    assert signal.startswith("no collective begun for ")
    assert signal.endswith(f"; rank {odd} began {count} fewer than the others")


def test_ranks_that_wait_busily_in_a_collective_are_no_reason_to_wait_for_ever() -> None:
    gang, working = warmed_up(counted=True), warmed_up(counted=True)
    gang.collect([0, 1, 3])
    working.collect([0, 1, 3])
    gang.rest(400.0, busy=[0, 1, 3])
    working.rest(400.0, busy=[2])  # it may do something for all
    assert gang.found is not None
    assert gang.found.behind == (2,)
    assert gang.found_at - 1000.0 > UNSURE
    assert working.found is None


def test_a_gang_goes_on_when_it_begins_a_collective() -> None:
    gang = warmed_up(reporting=False, counted=True)
    gang.rest(1.1 * PATIENCE)
    assert gang.found is not None
    assert not goes_on(gang.gang, gang.found)
    gang.collect([1])
    gang.rest(BEAT)
    assert goes_on(gang.gang, gang.found)


def test_devices_in_use_at_idle_power_are_a_hang_and_at_full_power_are_not() -> None:
    hung, slow = warmed_up(devices=True), warmed_up(devices=True)
    hung.rest(60.0, busy=range(4), power=75.0)
    slow.rest(60.0, busy=range(4), power=480.0)
    assert hung.found is not None
    assert "at 75 W instead of 4" in hung.found.signals[1]
    assert slow.found is None


def test_a_silent_launcher_needs_a_second_signal() -> None:
    alone, frozen = warmed_up(), warmed_up()
    alone.silent = frozen.silent = {1}
    frozen.frozen = {1}
    for _ in range(200):
        alone.step(0.5)  # the rest goes on: it is the network
    assert alone.found is None
    alone.rest(60.0)
    assert alone.found is not None
    frozen.rest(40.0, busy=range(4))
    assert frozen.found is not None
    assert {alone.found.kind, frozen.found.kind} == {"launcher silent"}
    assert (alone.found.workers, frozen.found.workers) == ((1,), (1,))


@pytest.mark.parametrize("reporting", [True, False])
def test_before_the_first_steps_only_full_rest_for_the_whole_patience_is_a_hang(reporting: bool) -> None:
    gang = SimulatedGang(reporting=reporting)
    gang.rest(PATIENCE - 60.0)
    gang.say()
    gang.rest(PATIENCE - 60.0)
    assert gang.found is None
    gang.rest(120.0)
    assert gang.found is not None
    assert (gang.found.kind, gang.found.limit) == ("no activity", PATIENCE)


def test_a_phase_is_judged_by_its_own_durations() -> None:
    gang = warmed_up()
    gang.phase("evaluating", 1700.0)
    gang.step(0.5)
    gang.gang.report(0, 0, [], [(gang.now, "evaluating")], gang.now)
    assert limit_of(gang.gang).seconds == pytest.approx(3 * 1700.0, abs=30.0)
    assert judge(gang.gang) is None


def test_a_worker_that_has_ended_does_not_hide_that_another_one_hangs() -> None:
    gang = warmed_up()
    gang.silent, gang.stopped = {0}, {1, 3}
    gang.gang.expect([1], gang.now)
    gang.rest(60.0)
    assert gang.found is not None
    assert (gang.found.kind, gang.found.behind, gang.found.workers) == ("process stopped", (1, 3), (1,))
