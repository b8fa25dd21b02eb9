"""What trials have shown: levels, values, numbers that are none, and how their jobs' ends are told apart."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.core.entities.study import Trial
from muster.core.job import Job
from muster.core.reasons import reason
from muster.core.spec import JobSpec
from muster.tune.observe import FinalValues, final_values, passed_rungs
from muster.tune.outcomes import outcome_of
from muster.tune.plugin import with_defaults
from muster.tune.space import Parameter, Space
from muster.tune.spec import Objective, Plugin, StudySpec
from muster.tune.stopping import STOPPING

SPEC = StudySpec("s", Space((Parameter("lr", "float", 0, 1),)), (Objective("loss"),), stop=Plugin("asha"))
TRIAL = Trial("s-1", 0, {"lr": 0.5}, "s-2")
nan = math.nan


def asha(spec: StudySpec = SPEC, **options: Any) -> Any:
    rule = STOPPING.get("asha")
    return rule(spec, with_defaults(rule, options))


def test_a_level_of_reports_is_passed_with_so_many_steps_and_keeps_its_value() -> None:
    curve = [(10, 5.0), (20, 4.0), (30, 3.0), (45, 2.0)]
    first = passed_rungs(SPEC, asha(), TRIAL, {"loss": curve[:1]})
    assert first is not None
    assert [(one.level, one.step, one.values) for one in first] == [(1, 10, (5.0,))]
    later = passed_rungs(SPEC, asha(), replace(TRIAL, rungs=tuple(first)), {"loss": [(10, 99.0), *curve[1:]]})
    assert later is not None
    assert [(one.level, one.step, one.values) for one in later] == [(3, 30, (3.0,))]


def test_a_level_of_steps_is_passed_by_the_first_report_at_it_or_beyond() -> None:
    rule = asha(by="step", min=100)
    found = passed_rungs(SPEC, rule, TRIAL, {"loss": [(90, 5.0), (110, 4.0), (350, 3.0)]})
    assert found is not None
    assert [(one.level, one.step, one.values[0]) for one in found] == [(100, 110, 4.0), (300, 350, 3.0)]


def test_several_objectives_pass_together_and_the_best_may_count() -> None:
    spec = replace(SPEC, objectives=(Objective("loss", take="best"), Objective("acc", "maximize")))
    assert passed_rungs(spec, asha(spec), TRIAL, {"loss": [(1, 2.0)], "acc": []}) == []
    found = passed_rungs(spec, asha(spec), TRIAL, {"loss": [(1, 2.0), (2, 1.0), (3, 7.0)], "acc": [(1, 0.1), (5, 0.2)]})
    assert found is not None
    assert [(one.level, one.values) for one in found] == [(1, (2.0, 0.1))]


def test_a_number_that_is_none_is_no_level() -> None:
    assert passed_rungs(SPEC, asha(), TRIAL, {"loss": [(1, nan)]}) is None
    assert passed_rungs(SPEC, asha(), TRIAL, {"loss": [(1, math.inf)]}) is None
    best = replace(SPEC, objectives=(Objective("loss", take="best"),))
    found = passed_rungs(best, asha(best), TRIAL, {"loss": [(1, 2.0), (2, nan), (3, 3.0)]})
    assert found is not None
    assert [one.values for one in found] == [(2.0,), (2.0,)]


@given(st.lists(st.tuples(st.integers(0, 50), st.floats(-5, 5)), max_size=30))
def test_levels_are_the_same_whether_points_come_at_once_or_one_by_one(points: list[tuple[int, float]]) -> None:
    ordered = sorted(dict(points).items())
    at_once = passed_rungs(SPEC, asha(), TRIAL, {"loss": ordered})
    trial = TRIAL
    for count in range(len(ordered) + 1):
        more = passed_rungs(SPEC, asha(), trial, {"loss": ordered[:count]})
        assert more is not None
        trial = replace(trial, rungs=(*trial.rungs, *more))
    assert list(trial.rungs) == at_once


def test_the_end_has_the_last_values_what_constraints_read_and_which_do_not_hold() -> None:
    spec = replace(SPEC, constraints=("memory < 3", "seconds < 9", "lr < 1", "missing < 1"))
    curves = {"loss": [(1, 2.0), (7, 1.0)], "memory": [(1, 2.0), (2, 4.0)], "missing": []}
    found = final_values(spec, curves, {"seconds": 8.0}, {"lr": 0.5})
    assert found == FinalValues((1.0,), {"memory": 4.0}, ("memory < 3", "missing < 1"), step=7)
    assert final_values(spec, {"loss": []}, {}, {}).missing == ("loss",)
    assert final_values(spec, {"loss": [(1, 1.0), (2, nan)]}, {}, {}).diverged


def job(phase: str, code: str = "completed", **data: Any) -> Job:
    made = Job("s-2", 2, "p", "q", "u", JobSpec(name="s", run="true"), 1.0)
    made.phase, made.reason = phase, reason(code, "said", **data)  # type: ignore[assignment]
    return made


GOOD = FinalValues((0.5,))
NONE = FinalValues(None, missing=("loss",))


@pytest.mark.parametrize(
    ("ended", "found", "outcome"),
    [
        (job("succeeded"), GOOD, "complete"),
        (job("succeeded"), NONE, "failed"),
        (job("succeeded"), FinalValues(None, diverged=True), "diverged"),
        (job("failed", "user_error"), GOOD, "failed"),
        (job("failed", "user_error"), FinalValues(None, diverged=True), "diverged"),
        (job("failed", "device_out_of_memory"), GOOD, "infeasible"),
        (job("failed", "restarts_spent", last={"code": "host_out_of_memory"}), GOOD, "infeasible"),
        (job("failed", "same_error_twice", cause="device_out_of_memory"), GOOD, "infeasible"),
        (job("failed", "restarts_spent", last={"code": "node_lost"}), GOOD, "lost"),
        (job("failed", "engine_refused"), NONE, "lost"),
        (job("failed", "node_lost"), NONE, "lost"),
        (job("stopped", "max_duration"), GOOD, "complete"),
        (job("stopped", "max_duration"), NONE, "stopped"),
        (job("stopped", "user_stop"), GOOD, "stopped"),
    ],
)
def test_the_end_of_a_job_says_how_its_trial_ended(ended: Job, found: FinalValues, outcome: str) -> None:
    assert outcome_of(TRIAL, ended, found)[0] == outcome


def test_a_trial_that_was_told_to_leave_ends_as_its_study_said() -> None:
    leaving = replace(TRIAL, phase="leaving", outcome="replaced", note="number 4 of 4")
    assert outcome_of(leaving, job("stopped", "trial_stopped"), GOOD) == ("replaced", "number 4 of 4")
    assert outcome_of(leaving, job("succeeded"), GOOD)[0] == "complete", "it was done before it was told"
