"""Meetings of a gang's workers: all are told the same, at the latest a stated time after the first has come."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.control.meetings import KEPT, WAIT, Meetings
from muster.core.errors import Invalid

KEY = ("job-1", 1)


def test_they_meet_when_all_are_there_and_one_has_a_node_that_failed_lately() -> None:
    meetings = Meetings()
    assert meetings.join(KEY, 3, 1, True, 0, False, 0.0)["answer"] == "wait"
    assert meetings.join(KEY, 3, 0, False, 4711, False, 1.0)["answer"] == "wait"
    assert meetings.join(KEY, 3, 1, True, 0, False, 2.0)["answer"] == "wait", "it has come before"
    met = meetings.join(KEY, 3, 2, False, 0, False, 3.0)
    assert (met["answer"], met["port"]) == ("meet", 4711)
    assert meetings.join(KEY, 3, 1, True, 0, False, WAIT + 1) == met


def test_without_such_a_node_or_a_port_they_go_on() -> None:
    for late, port in ((False, 4711), (True, 0)):
        meetings = Meetings()
        meetings.join(KEY, 2, 0, late, port, False, 0.0)
        assert meetings.join(KEY, 2, 1, False, 0, False, 0.1)["answer"] == "skip"
    assert Meetings().join(KEY, 2, 0, False, 1, True, 0.0)["answer"] == "skip", "the server knows that all are sound"


def test_who_comes_too_late_goes_on_and_so_do_the_others() -> None:
    meetings = Meetings()
    meetings.join(KEY, 2, 0, True, 4711, False, 0.0)
    assert meetings.join(KEY, 2, 0, True, 4711, False, WAIT)["answer"] == "skip"
    assert meetings.join(KEY, 2, 1, False, 0, False, WAIT + 60)["answer"] == "skip"


def test_other_attempts_and_strangers_don_t_count() -> None:
    meetings = Meetings()
    meetings.join(KEY, 2, 0, True, 4711, False, 0.0)
    assert meetings.join(("job-1", 2), 2, 1, False, 0, False, 0.0)["answer"] == "wait"
    assert meetings.join(("job-2", 1), 2, 1, False, 0, False, 0.0)["answer"] == "wait"
    for worker in (-1, 2):
        with pytest.raises(Invalid, match="there is no worker"):
            meetings.join(KEY, 2, worker, False, 0, False, 0.0)


def test_old_ones_are_dropped() -> None:
    meetings = Meetings()
    for number in range(50):
        meetings.join((f"job-{number}", 1), 2, 0, True, 1, False, number * KEPT)
    assert len(meetings._gatherings) <= 2


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans(), st.floats(0, 8)), max_size=40))
def test_no_two_workers_are_told_different_things(arrivals: list[tuple[int, bool, float]]) -> None:
    meetings, now, told = Meetings(), 0.0, set[str]()
    for worker, late, pause in arrivals:
        now += pause
        answer = meetings.join(KEY, 4, worker, late, 4711 if worker == 0 else 0, False, now)["answer"]
        assert answer != "wait" or now < WAIT + arrivals[0][2]
        told |= {answer} - {"wait"}
    assert len(told) <= 1
