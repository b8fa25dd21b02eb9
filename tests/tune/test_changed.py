"""Indexes over trials that follow a log of changes are as those that are made anew from all trials."""

from __future__ import annotations

import copy
from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from muster.control.studies.snapshot import Mirror
from muster.core import trial_map
from muster.core.entities.study import Rung, Trial
from muster.core.trial_map import TrialMap, map_of
from muster.tune.changed import Changed
from muster.tune.space import Space
from muster.tune.spec import Objective, StudySpec
from muster.tune.tables import Entry, Tables
from muster.tune.tried import Tried
from muster.tune.view import StudyView
from strategy_kit import pick

SPEC = StudySpec("lr", Space(()), (Objective("loss"),))
trials = st.builds(
    Trial,
    st.just("lr-1"),
    st.integers(0, 8),
    st.fixed_dictionaries({"lr": pick(0.1, 0.2), "on": pick(True, 1, 1.0)}),
    phase=pick("running", "paused", "ended"),
    outcome=pick("", "lost", "complete"),
    origin=pick("search", "confirm", "exploit"),
    rungs=st.lists(st.builds(Rung, st.integers(1, 3), st.just(1), st.tuples(st.floats(0, 1)))).map(tuple),
)
# A trial is new or another one, or the trial of this number is taken back.
changes = st.lists(st.lists(trials | st.integers(0, 8), max_size=6), max_size=8)


def entries(trial: Trial) -> Iterator[Entry]:
    yield (trial.phase, 0, 0.0), (float(len(trial.rungs)), trial.number)
    for rung in trial.rungs:
        yield ("passed", 0, rung.level), (rung.values[0], trial.number)


def put(into: TrialMap, change: Trial | int) -> None:
    into.put(change, None) if isinstance(change, int) else into.put(change.number, change)


def tables_of(tables: Tables) -> dict[object, object]:
    return {
        key: list(tables.rows(*key)) for name in ("running", "paused", "ended", "passed") for key in tables.keys(name)
    }


@given(changes=changes, plain=st.sets(st.integers(0, 7)), kept=pick(4, 10_000))
def test_tables_and_counts_follow(changes: list[list[Trial | int]], plain: set[int], kept: int) -> None:
    """`plain`: views that are no maps with a log, between the others."""
    known, tables, tried = TrialMap(), Tables(entries), Tried()
    before, trial_map.KEPT = trial_map.KEPT, kept
    try:
        for index, some in enumerate(changes):
            for one in some:
                put(known, one)
            shown = dict(known) if index in plain else known
            view = StudyView("lr-1", SPEC, 0, shown, changes=index)
            tables.follow(view)
            anew = Tables(entries)
            anew.follow(StudyView("lr-1", SPEC, 0, dict(known)))
            assert tables_of(tables) == tables_of(anew)
            assert tried.times(shown) == Tried().times(dict(known))
            assert view.times_tried() == tried.times(shown)
    finally:
        trial_map.KEPT = before


@given(changes=changes, outside=st.sets(st.integers(0, 8)))
def test_trials_outside_of_the_space_are_not_counted(changes: list[list[Trial | int]], outside: set[int]) -> None:
    known = TrialMap()
    for one in (one for some in changes for one in some):
        put(known, one)
    inside = {number: one for number, one in known.items() if number not in outside}
    found = {key: times for key, times in Tried().times(known, frozenset(outside)).items() if times}
    assert found == Tried().times(inside)


@given(drafts=changes, told=changes)
def test_a_mirror_takes_drafts_back(drafts: list[list[Trial | int]], told: list[list[Trial | int]]) -> None:
    source, mirror, changed = TrialMap(), Mirror(), Changed()
    for some, others in zip(drafts, told, strict=False):
        for one in some:
            put(mirror.trials, one)
        for one in others:
            put(source, one)
        mirror.follow(source)
        assert dict(mirror.trials) == dict(source)
        assert all(mirror.trials[number] is one for number, one in source.items())
        for number, one in changed.since(mirror.trials):
            assert mirror.trials.get(number) is one
    other = map_of({3: Trial("lr-1", 3, {})})
    mirror.follow(other)  # the state was loaded again
    assert dict(mirror.trials) == dict(other)


def test_a_map_is_copied_whole() -> None:
    known = map_of({1: Trial("lr-1", 1, {}), 2: Trial("lr-1", 2, {})})
    again = copy.deepcopy(known)
    again.put(1, None)
    assert (sorted(known), sorted(again), again.end) == ([1, 2], [2], known.end + 1)
