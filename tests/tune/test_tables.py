"""Tables that follow views: they hold what the view says, at the cost of what changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from muster.core.entities.study import Trial
from muster.tune.tables import Entry, Tables
from tune_kit import a_trial, a_view, spec_of

SPEC = spec_of("asha")
some_trials = st.dictionaries(
    st.integers(0, 6), st.dictionaries(st.sampled_from([1, 3, 9]), st.sampled_from([0.1, 0.2, 0.2, 0.3]), max_size=3)
)


def rows(trial: Trial) -> Iterator[Entry]:
    for rung in trial.rungs:
        yield ("passed", 0, rung.level), (rung.values[0], trial.number)
    yield ("last", 0, 0.0), (float(len(trial.rungs)), trial.number)


@given(st.lists(some_trials, max_size=6))
def test_tables_hold_what_the_last_view_says(views: list[dict[int, dict[int, float]]]) -> None:
    tables = Tables(rows)
    for one in views:
        trials = [a_trial(number, dict(sorted(at.items()))) for number, at in one.items()]
        tables.follow(a_view(SPEC, *trials))
        expected: dict[object, list[object]] = {}
        for trial in trials:
            for key, row in rows(trial):
                expected.setdefault(key, []).append(row)
        keys = [*tables.keys("passed"), *tables.keys("last")]
        assert {key: list(tables.rows(*key)) for key in keys} == {key: sorted(some) for key, some in expected.items()}


def test_only_trials_that_changed_are_looked_at() -> None:
    seen: Counter[int] = Counter()

    def counted(trial: Trial) -> Iterator[Entry]:
        seen[trial.number] += 1
        return rows(trial)

    tables = Tables(counted)
    trials = {number: a_trial(number, {1: 0.5}) for number in range(1000)}
    view = replace(a_view(SPEC), trials=trials, changes=1)
    tables.follow(view)
    tables.follow(view)
    assert seen == Counter(range(1000))
    trials = {**trials, 7: a_trial(7, {1: 0.5, 3: 0.4}), 1000: a_trial(1000)}
    tables.follow(replace(view, trials=trials, changes=3))
    assert seen - Counter(range(1000)) == Counter([7, 1000])
    assert tables.rows("passed", 0, 3.0) == [(0.4, 7)]
