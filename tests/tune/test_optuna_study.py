"""A study as an Optuna study: every trial with its number, parameters and values, whatever became of the space."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import optuna
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from optuna.trial import TrialState
from test_space import named, parameters

from muster.client.optuna import save_study
from muster.core.entities.study import Rung, Trial
from muster.core.errors import ConfigError, Conflict
from muster.track.importers import IMPORTERS
from muster.track.importers.base import Facts
from muster.tune.optuna_study import to_optuna, to_trials
from muster.tune.space import Parameter, Space
from muster.tune.spec import Objective, StudySpec
from muster.tune.view import StudyView

LR = Parameter("lr", "float", 1e-5, 1e-1, log=True)
DEPTH = Parameter("depth", "int", 4, 24, step=4)
ACT = Parameter("act", "choice", choices=("relu", "gelu"), when="depth > 4")
OBJECTIVES = (Objective("loss"), Objective("speed", "maximize"))


def view_of(*trials: dict[str, Any], space: Space | None = None, **more: Any) -> StudyView:
    spec = StudySpec("lr-and-depth", space or Space((LR, DEPTH, ACT)), more.pop("objectives", OBJECTIVES[:1]), **more)
    made = {
        number: Trial("study-1", number, **{"params": {}, "created_at": 1.7e9, **one})
        for number, one in enumerate(trials)
    }
    return StudyView("study-1", spec, 7, made)


def over(outcome: str, params: dict[str, Any], *values: float, **more: Any) -> dict[str, Any]:
    given = {"params": params, "phase": "ended", "outcome": outcome, "values": values or None, "ended_at": 1.7e9 + 60}
    return {**given, **more}


def test_trials_of_every_kind() -> None:
    rungs = (Rung(1, 10, (0.9,)), Rung(3, 30, (0.7,)))
    view = view_of(
        over("complete", {"lr": 1e-3, "depth": 8, "act": "gelu"}, 0.5, rungs=rungs, job="lr-4", cost=9, by="tpe"),
        over("stopped", {"lr": 1e-2, "depth": 4}, rungs=rungs),
        *(over(kind, {"lr": 1e-4, "depth": 4}) for kind in ("failed", "infeasible", "diverged", "lost", "replaced")),
        {"params": {"lr": 1e-1, "depth": 24, "act": "relu"}},
        {"params": {"lr": 1e-1, "depth": 24, "act": "relu"}, "phase": "paused"},
    )
    study = to_optuna(view)
    assert (study.study_name, [one.name for one in study.directions]) == ("lr-and-depth", ["MINIMIZE"])
    assert study.metric_names == ["loss"]
    states = [TrialState.COMPLETE, TrialState.PRUNED, *[TrialState.FAIL] * 5, *[TrialState.RUNNING] * 2]
    assert [one.state for one in study.trials] == states
    first, second = study.trials[:2]
    assert (first.value, first.params) == (0.5, {"lr": 1e-3, "depth": 8, "act": "gelu"})
    assert first.intermediate_values == second.intermediate_values == {10: 0.9, 30: 0.7}
    assert second.value == 0.7
    assert first.user_attrs == {
        "muster.job": "lr-4", "muster.outcome": "complete", "muster.cost": 9, "muster.by": "tpe",
    }  # fmt: skip
    assert first.duration is not None
    assert first.duration.total_seconds() == 60
    assert study.best_trial.number == 0
    assert first.distributions == {
        "lr": optuna.distributions.FloatDistribution(1e-5, 1e-1, log=True),
        "depth": optuna.distributions.IntDistribution(4, 24, step=4),
        "act": optuna.distributions.CategoricalDistribution(("relu", "gelu")),
    }
    study.optimize(lambda trial: trial.suggest_float("lr", 1e-5, 1e-1, log=True), n_trials=1)  # and Optuna goes on


def test_several_objectives_and_constraints() -> None:
    view = view_of(
        over("complete", {"lr": 1e-3}, 0.5, 3.0),
        over("complete", {"lr": 1e-2}, 0.4, 4.0, violated=("memory < 3",)),
        over("stopped", {"lr": 1e-2}),
        objectives=OBJECTIVES,
        constraints=("memory < 3", "lr < 1"),
    )
    study = to_optuna(view)
    assert [one.name for one in study.directions] == ["MINIMIZE", "MAXIMIZE"]
    assert [one.values for one in study.trials] == [[0.5, 3.0], [0.4, 4.0], None]
    assert [one.number for one in study.best_trials] == [0]  # the other one breaks a constraint


def test_a_space_that_was_changed_is_widened_to_what_trials_had() -> None:
    view = view_of(
        over("complete", {"lr": 1.0, "depth": 5, "act": "silu", "gone": 3, "was": "text"}, 0.5),
        over("complete", {"lr": 0.0, "depth": 40, "act": "relu", "gone": 9, "was": 4}, 0.5),
    )
    assert to_trials(view)[0].distributions == {
        "lr": optuna.distributions.FloatDistribution(0.0, 1.0),
        "depth": optuna.distributions.IntDistribution(4, 40),
        "act": optuna.distributions.CategoricalDistribution(("relu", "gelu", "silu")),
        "gone": optuna.distributions.IntDistribution(3, 9),
        "was": optuna.distributions.CategoricalDistribution(("text", 4)),
    }
    to_optuna(view)


def test_values_that_are_equal_for_optuna_are_texts() -> None:
    view = view_of(*(over("complete", {"x": one}, 1.0) for one in (1, True, 0)))
    assert [one.params["x"] for one in to_optuna(view).trials] == ["1", "True", "0"]


@settings(max_examples=60, deadline=None)
@given(st.lists(parameters, min_size=1, max_size=4), st.data())
def test_points_of_any_space_are_kept(found: list[Parameter], data: st.DataObject) -> None:
    space = named(found)
    places = st.lists(st.floats(0, 1), min_size=len(found), max_size=len(found))
    points = [space.at(one) for one in data.draw(st.lists(places, min_size=1, max_size=4))]
    trials = to_optuna(view_of(*(over("complete", one, 1.0) for one in points), space=space)).trials
    for trial, point in zip(trials, points, strict=True):
        assert all(value == point[name] or value == repr(point[name]) for name, value in trial.params.items())
        assert trial.params.keys() == point.keys()


@pytest.mark.parametrize("name", ["s.db", "s.log"])
def test_in_a_file_it_is_what_the_importer_reads(name: str, tmp_path: Path) -> None:
    points = [{"lr": 1e-3, "depth": 8, "act": "gelu"}, {"lr": 1e-2, "depth": 4}]
    study = to_optuna(view_of(*(over("complete", one, 0.5) for one in points)))
    save_study(study, str(tmp_path / name))
    reader = IMPORTERS.get("optuna")
    _, *trials = reader.find(tmp_path)
    facts = [item for one in trials for item in reader.read(one) if isinstance(item, Facts)]
    assert [dict(one.params) for one in facts] == points
    assert [one.tags["muster.outcome"] for one in facts] == ["complete"] * 2
    with pytest.raises(Conflict, match="has a study 'lr-and-depth' already"):
        save_study(study, str(tmp_path / name))
    with pytest.raises(ConfigError, match="neither a database nor a journal"):
        save_study(study, str(tmp_path / "s.csv"))
