"""The ledger of held time: the classes tile what was held, to the microsecond, whatever was reported."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from muster.monitor.time_ledger import (
    CLASSES,
    DAY,
    SECOND,
    HeldAttempt,
    PhaseEntry,
    StepTrail,
    by_day,
    intervals,
)
from muster.wire import PHASES

TIMES = st.integers(-DAY, 4 * DAY)
NAMES = st.sampled_from(["", *PHASES])
ENTRIES = st.lists(
    st.builds(PhaseEntry, TIMES, NAMES, st.dictionaries(NAMES, st.integers(-SECOND, DAY), max_size=3)), max_size=12
)
POINT = st.tuples(st.integers(-5, 1000), TIMES)
TRAIL = st.builds(StepTrail, POINT, POINT, st.none() | TIMES, st.integers(0, 5))
ATTEMPTS = st.builds(
    HeldAttempt,
    planned=st.integers(0, DAY),
    ended=st.integers(0, 3 * DAY),
    running=st.none() | TIMES,
    exited=st.none() | TIMES,
    failed=st.booleans(),
    hung=st.booleans(),
    from_step=st.none() | st.integers(0, 1000),
    trail=st.none() | TRAIL,
)


@given(ATTEMPTS, ENTRIES)
@example(HeldAttempt(5, 5), [])
@example(HeldAttempt(9, 5), [])
def test_the_classes_add_up_to_what_was_held(attempt, entries):
    parts = intervals(attempt, entries)
    held = max(0, attempt.ended - attempt.planned)
    assert sum(part.end - part.begin for part in parts) == held
    assert all(part.begin < part.end for part in parts)
    assert all(part.kind in CLASSES for part in parts)
    at = attempt.planned
    for part in parts:
        assert part.begin == at
        at = part.end
    assert at == attempt.planned + held


@given(ATTEMPTS, ENTRIES)
def test_days_add_up_too_and_none_is_longer_than_a_day(attempt, entries):
    parts = intervals(attempt, entries)
    days = by_day(parts)
    whole = Counter()
    for day, sums in days.items():
        assert day % DAY == 0
        assert 0 < sum(sums.values()) <= DAY
        whole.update(sums)
    expected = Counter()
    for part in parts:
        expected[part.kind] += part.end - part.begin
    assert whole == expected


def seconds(attempt, entries=()):
    sums = Counter()
    for part in intervals(attempt, list(entries)):
        sums[part.kind] += part.end - part.begin
    return {kind: value / SECOND for kind, value in sums.items()}


def entry(at, name, **spent):
    return PhaseEntry(at * SECOND, name, {part: round(value * SECOND) for part, value in spent.items()})


def attempt(**facts):
    trail = facts.pop("trail", None)
    if trail is not None:
        first, last, *rest = trail
        caught = rest[0] * SECOND if rest and rest[0] is not None else None
        trail = StepTrail((first[0], first[1] * SECOND), (last[0], last[1] * SECOND), caught, *rest[1:])
    flags = {name: facts.pop(name) for name in ("failed", "hung", "from_step") if name in facts}
    return HeldAttempt(**{name: value * SECOND for name, value in facts.items()}, **flags, trail=trail)


def test_a_start_by_its_parts_then_training_with_stalls():
    one = attempt(planned=0, running=2, exited=100, ended=101)
    told = [
        entry(5, "build"),
        entry(9, "load"),
        entry(12, "training"),
        entry(40, "saving", data=3.5),
        entry(42, "training"),
        entry(60, "evaluating"),
        entry(66, "training"),
    ]
    assert seconds(one, told) == {
        "starting.launch": 2.0,
        "starting.import": 3.0,
        "starting.build": 4.0,
        "starting.load": 3.0,
        "data": 3.5,
        "training": 24.5 + 18 + 34,
        "saving": 2.0,
        "evaluating": 6.0,
        "idle": 1.0,
    }


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({}, {"starting.launch": 10.0, "training": 90.0}),  # says nothing: it trains
        ({"trail": ((0, 99), (0, 99))}, {"starting.launch": 10.0, "training": 90.0}),  # one report at the end
        (  # a report each ten steps of a second: the first ten began at 30
            {"trail": ((10, 40), (60, 90))},
            {"starting.launch": 10.0, "starting.program": 20.0, "training": 70.0},
        ),
        (  # the same after a checkpoint of step 5
            {"trail": ((10, 40), (60, 90)), "from_step": 5},
            {"starting.launch": 10.0, "starting.program": 25.0, "training": 65.0},
        ),
    ],
)
def test_a_program_that_states_no_phase(facts, expected):
    assert seconds(attempt(planned=0, running=10, ended=100, **facts)) == expected


def test_steps_that_an_earlier_attempt_had_done_are_done_again():
    told = [entry(5, "training"), entry(8, "saving"), entry(9, "training")]
    again = attempt(planned=0, running=5, ended=30, trail=((41, 6), (60, 29), 20, 10))
    assert seconds(again, told) == {"starting.launch": 5.0, "done_again": 14.0, "saving": 1.0, "training": 10.0}
    never = attempt(planned=0, running=5, ended=30, trail=((41, 6), (45, 29), None, 5))
    assert seconds(never, told) == {"starting.launch": 5.0, "done_again": 24.0, "saving": 1.0}


def test_a_hang_counts_from_the_last_step_and_a_failure_until_the_release():
    told = [entry(5, "training")]
    hung = attempt(planned=0, running=5, exited=50, ended=52, failed=True, hung=True, trail=((1, 10), (9, 20)))
    assert seconds(hung, told) == {"starting.launch": 5.0, "training": 15.0, "hung": 30.0, "lost": 2.0}


def test_a_node_that_went_away_was_lost_after_its_last_report():
    gone = attempt(planned=0, running=5, ended=80, failed=True, trail=((1, 10), (9, 20)))
    assert seconds(gone, [entry(5, "training")]) == {"starting.launch": 5.0, "training": 15.0, "lost": 60.0}


def test_an_attempt_that_never_ran_was_being_launched():
    assert seconds(attempt(planned=0, exited=20, ended=30, failed=True)) == {"starting.launch": 20.0, "lost": 10.0}
    assert seconds(attempt(planned=0, ended=30)) == {"starting.launch": 30.0}
