"""How winners hold up: which run again, and when one is said to be better than another."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.core.entities.study import Trial
from muster.tune.confirm import ERROR, HeldUp, front, held_up, winners
from muster.tune.spec import Objective, StudySpec
from tune_kit import a_trial, a_view, spec_of


def confirmed(*groups: list[float | None], spec: StudySpec | None = None) -> HeldUp | None:
    """What is found of configurations whose runs with other seeds ended with these values; None: it failed."""
    trials = [a_trial(number, phase="ended", outcome="complete", values=(0.1,)) for number in range(len(groups))]
    for of, values in enumerate(groups):
        for seed, value in enumerate(values, start=1):
            outcome, ends = ("failed", None) if value is None else ("complete", (value,))
            given = {"origin": "confirm", "of": of, "seed": seed, "outcome": outcome, "values": ends}
            trials.append(a_trial(len(trials), phase="ended", **given))
    return held_up(a_view(spec or spec_of("fifo"), *trials))


def test_a_winner_that_holds_up_is_better_than_the_second() -> None:
    """Means 0.5 and 0.7, deviations 0.01 and 0.02, five runs each: t = -0.2 / sqrt((0.0001 + 0.0004) / 5) = -20."""
    found = confirmed([0.68, 0.7, 0.72, 0.68, 0.72], [0.5, 0.49, 0.51, 0.49, 0.51])
    assert found is not None
    assert [one.number for one in found.groups] == [1, 0]
    assert found.groups[0].estimate.mean == pytest.approx(0.5)
    assert found.groups[0].estimate.deviation == pytest.approx(0.01)
    assert found.groups[0].found == 0.1
    assert found.differences[0].t == pytest.approx(-20)
    assert found.beats is True
    assert found.p is not None
    assert found.p < 1e-4
    figures = "trial 1: 0.5 ± 0.01 over 5 seeds; trial 0: 0.7 ± 0.02 over 5 seeds"
    assert found.words.startswith(f"{figures}. Trial 1 is better (p = ")


def test_a_winner_by_luck_is_not() -> None:
    found = confirmed([0.5, 0.7, 0.4, 0.6], [0.52, 0.71, 0.38, 0.65], [0.9, 0.91, 0.89, 0.9])
    assert found is not None
    assert found.beats is False
    assert "can't be told" in found.words
    assert found.differences[1].adjusted is not None
    assert found.differences[1].adjusted <= ERROR  # against the third it is


def test_the_best_of_a_maximum_is_the_largest() -> None:
    found = confirmed([0.5, 0.6], [0.8, 0.9], spec=spec_of("fifo", objectives=(Objective("accuracy", "maximize"),)))
    assert found is not None
    assert [one.number for one in found.groups] == [1, 0]


def test_runs_that_failed_are_counted_and_configurations_without_values_left_out() -> None:
    found = confirmed([0.5, None, 0.6], [None, None], [0.9])
    assert found is not None
    assert [(one.number, one.values, one.failed) for one in found.groups] == [(0, (0.5, 0.6), 1), (2, (0.9,), 0)]
    assert (found.beats, found.p) == (None, None)
    assert "This can't be tested: a test needs 2 runs in each group." in found.words
    assert confirmed([None]) is None
    assert confirmed() is None
    alone = confirmed([0.5, 0.6])
    assert alone is not None
    assert alone.words == "trial 0: 0.55 ± 0.0707 over 2 seeds. No other configuration was run again."


def test_a_program_that_does_not_read_its_seed_is_named() -> None:
    found = confirmed([0.5, 0.5, 0.5], [0.6, 0.6, 0.6])
    assert found is not None
    assert found.beats is None
    assert "does the program read its seed?" in found.words


def test_equal_configurations_are_called_different_as_rarely_as_is_said() -> None:
    """Of 400 studies whose three winners are the same, at most 5 % plus three standard errors."""
    random, wrong = Random(5), 0
    for _ in range(400):
        found = confirmed(*[[random.gauss(1, 0.1) for _ in range(5)] for _ in range(3)])
        assert found is not None
        wrong += any(one.adjusted is not None and one.adjusted <= ERROR for one in found.differences)
    assert wrong <= 400 * ERROR + 3 * (400 * ERROR * (1 - ERROR)) ** 0.5


def test_winners_are_different_configurations_without_broken_constraints() -> None:
    spec = spec_of("fifo")

    def one(number: int, value: float, lr: float, **given: object) -> Trial:
        return a_trial(number, phase="ended", outcome="complete", values=(value,), params={"lr": lr}, **given)

    trials = [one(0, 0.3, 0.1), one(1, 0.1, 0.2, violated=("memory < 70GB",)), one(2, 0.2, 0.3), one(3, 0.25, 0.3)]
    repeated = one(4, 0.0, 0.1, origin="confirm", of=0)
    assert [trial.number for trial in winners(a_view(spec, *trials, repeated), 5)] == [2, 0]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=12))
def test_the_front_is_what_no_other_trial_beats(points: list[tuple[int, int]]) -> None:
    spec = spec_of("fifo", objectives=(Objective("loss"), Objective("speed", "maximize")))
    done = {"phase": "ended", "outcome": "complete"}
    trials = [a_trial(number, values=(float(a), float(b)), **done) for number, (a, b) in enumerate(points)]
    kept = {one.number for one in front(a_view(spec, *trials))}

    def beaten(point: tuple[int, int]) -> bool:
        return any(a <= point[0] and b >= point[1] and (a, b) != point for a, b in points)

    assert kept == {number for number, point in enumerate(points) if not beaten(point)}
