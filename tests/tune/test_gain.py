"""What another trial is expected to gain, by the model of the study."""

from __future__ import annotations

from dataclasses import replace

import pytest

from muster.core.entities.study import Rung
from muster.tune.gain import FEWEST, Gain, GainModel
from muster.tune.space import Parameter, Space
from muster.tune.spec import Plugin
from search_kit import Study, loss_of

LINE = Space((Parameter("x", "float", 0.0, 1.0), Parameter("y", "float", 0.0, 1.0)))


def gain_of(study: Study) -> Gain:
    found = GainModel(study.spec).gain(study.view())
    assert found is not None
    return found


def after(trials: int, scale: float = 1.0, search: str = "auto") -> Study:
    study = Study(LINE, Plugin(search))
    study.run(trials, lambda params: 7.0 + scale * loss_of(LINE, params))
    return study


def test_nothing_is_expected_of_too_few_trials() -> None:
    assert GainModel(after(FEWEST).spec).gain(after(FEWEST - 1).view()) is None
    assert gain_of(after(FEWEST)).expected > 0


def test_a_search_that_is_near_the_best_has_little_to_gain() -> None:
    """The best loss is 7. What is left to gain is at most what the best trial is above that."""
    early, late = after(12, search="random"), after(40)
    assert gain_of(late).expected < 0.1 * gain_of(early).expected
    assert gain_of(late).expected < 0.002


def test_the_gain_is_in_units_of_the_objective() -> None:
    one, thousand = gain_of(after(15)), gain_of(after(15, scale=1000.0))
    assert thousand.expected == pytest.approx(1000 * one.expected, rel=0.05)
    assert 0 <= one.low <= one.high


def test_trials_that_run_take_from_what_the_next_one_gains() -> None:
    study = after(12)
    alone = gain_of(study).expected
    for _ in range(8):
        study.ask()
    assert gain_of(study).expected < alone


def test_the_same_trials_have_the_same_gain_whatever_was_asked_before() -> None:
    study, model = after(12), GainModel(after(12).spec)
    for _ in range(6):
        study.run(1)
        followed = model.gain(study.view())
    assert followed == gain_of(study)


def test_what_a_running_trial_reports_changes_nothing() -> None:
    study, model = after(12), GainModel(after(12).spec)
    study.ask()
    before = model.gain(study.view())
    study.trials[12] = replace(study.trials[12], rungs=(Rung(1.0, 1, (0.1,)),), step=1)
    assert model.gain(study.view()) is before
    assert gain_of(study) == before
    study.end(12, loss=7.3)
    assert model.gain(study.view()) == gain_of(study) != before


def test_a_space_without_points_left_gains_nothing() -> None:
    study = Study(Space((Parameter("x", "choice", choices=tuple(range(12))),)), Plugin("grid"))
    study.run(12)
    assert gain_of(study) == Gain(0.0, 0.0, 0.0)
