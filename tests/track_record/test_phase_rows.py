"""Phases in the record: an hour has few entries, no sum is lost, and what makes no sense is refused."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.track.phase_rows import MOST, read_entry, thinned
from muster.wire import PHASES

NAMES = st.sampled_from(["", *PHASES])


STEPS = st.lists(st.tuples(st.integers(0, 1000), NAMES, NAMES, st.integers(0, 1000)), max_size=150)


def sums(entries):
    found, at, name = Counter(), 0, ""
    for time, then, spent in entries:
        found.update(spent)
        found[name] += time - at - sum(spent.values())
        at, name = time, then
    return {name: value for name, value in found.items() if value}


@given(STEPS)
def test_joined_entries_have_the_same_sums_and_the_same_end(steps):
    entries, at = [], 0
    for gap, name, other, spent in steps:  # as a rank writes them: what it spent is a part of the time since the last
        at += gap + spent
        entries.append((at, name, {other: spent} if spent else {}))
    kept = thinned(entries)
    assert len(kept) <= MOST
    assert sums(kept) == sums(entries)
    assert [one[:2] for one in kept[-1:]] == [one[:2] for one in entries[-1:]]
    if len(entries) <= MOST:
        assert kept == entries


def test_an_entry_is_in_microseconds():
    doc = {"type": "phase", "time": 12.5, "name": "training", "spent": {"data": 0.25}}
    assert read_entry(doc) == (12_500_000, "training", {"data": 250_000})


@pytest.mark.parametrize(
    "wrong",
    [
        {"name": "thinking"},
        {"name": ["training"]},
        {"time": -1},
        {"time": 1e17},
        {"spent": {"data": -1}},
        {"spent": {"data": 1e300}},
        {"spent": {"data": None}},
        {"spent": {"thinking": 1}},
        {"spent": ["data"]},
    ],
)
def test_what_makes_no_sense_is_refused(wrong):
    with pytest.raises((ValueError, TypeError, AttributeError)):
        read_entry({"type": "phase", "time": 1.0, "name": "training", **wrong})
