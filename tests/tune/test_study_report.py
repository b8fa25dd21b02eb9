"""The report of a study: its counts add up, it agrees with the view, and no sample ever loses the best."""

from __future__ import annotations

import json
import math
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.api.numbers import number
from muster.api.studies import StudyReport, StudyStatus
from muster.core.entities.study import TrialPaused, TrialPromoted, TrialReported
from muster.tune.confirm import held_up
from muster.tune.report import TrialRun, curve_numbers, marks_of, study_report, study_status
from muster.tune.report.axis import Axis, axis_of
from muster.tune.report.curves import POINTS, thinned
from muster.tune.report.fronts import MOST, pareto
from muster.tune.report.ranking import ranking
from muster.tune.report.rows import BEST, SHOWN
from muster.tune.space import Parameter
from muster.tune.spec import Objective, StudySpec
from shape_kit import check
from study_report_kit import (
    BEGAN,
    SMALL,
    SPEC,
    StudyLog,
    asha,
    many,
    share_of_names,
    studies,
    two_losses,
    with_runs,
)  # fmt: skip


def made(log: StudyLog, **facts: object) -> StudyReport:
    return study_report(log.view(), log.facts(**facts), share_of_names)


@settings(deadline=None)
@given(studies())
def test_every_trial_is_in_one_class_and_all_sums_add_up(log):
    found, trials = made(log), list(log.trials.values())
    assert sum(one["trials"] for one in found["states"]) == found["trials"] == len(trials)
    assert sum(one["trials"] for one in found["sources"]) == len(trials)
    assert sum(one["complete"] for one in found["sources"]) == sum(one.outcome == "complete" for one in trials)
    assert sum(one["cost"] for one in found["states"]) == sum(one.cost for one in trials)
    assert found["study"]["limits"]["cost"]["used"] == sum(one.cost for one in trials)
    assert Counter(one["state"] for one in found["rows"]) == {one["state"]: one["trials"] for one in found["states"]}
    for one in found["parameters"]:
        assert sum(part["trials"] for part in one["bins"]) == sum(one["name"] in trial.params for trial in trials)
    searched = [one for one in trials if one.origin != "confirm"]
    assert found["progress"][0]["cost"] == sum(one.cost for one in searched)
    if found["rungs"]:
        assert sum(one["cost"] for one in found["rungs"]) == sum(one.cost for one in searched)
        assert sum(one["seconds"] for one in found["rungs"]) == pytest.approx(sum(one.seconds for one in searched))


@settings(deadline=None)
@given(studies())
def test_the_rungs_count_every_trial_that_passed_them_once(log):
    searched = [one for one in log.trials.values() if one.origin != "confirm"]
    fates = ("went_on", "running", "complete", "paused", "stopped", "other")
    for rung in made(log)["rungs"]:
        passed = [one for one in searched if rung["level"] is not None and one.rung(rung["level"])]
        assert rung["reached"] == len(passed) == sum(rung[fate] for fate in fates)  # type: ignore[literal-required]
        later = [one for one in passed if one.rungs[-1].level > rung["level"]]
        assert rung["went_on"] == len(later)


@settings(deadline=None)
@given(studies())
def test_the_best_is_that_of_the_view(log):
    view, found = log.view(), made(log)
    best = view.best()
    assert (found["best"] or {}).get("number") == (best.number if best is not None else None)
    assert [one.number for one in ranking(view).finished] == [one.number for one in view.complete()]
    ranked = [one["rank"] for one in found["rows"] if one["rank"] is not None]
    assert ranked == list(range(1, len(ranked) + 1))
    for place, progress in enumerate(found["progress"]):
        losses = [view.losses(one.values)[place] for one in view.complete() if one.values is not None]
        told = [view.spec.objectives[place].sign * number(one["value"]) for one in progress["points"]]
        assert told == sorted(set(told), reverse=True)
        assert told[-1:] == ([min(losses)] if losses else [])
        for name in ("ended", "seconds", "cost"):
            along = [one[name] for one in progress["points"]] + [progress[name]]  # type: ignore[literal-required]
            assert along == sorted(along)


@settings(deadline=None)
@given(studies())
def test_a_front_has_what_no_other_is_better_than(log):
    view = log.view()
    found, complete = made(log), view.complete()
    losses = {one.number: view.losses(one.values) for one in complete if one.values is not None}

    def beaten(number: int) -> bool:
        mine = losses[number]
        return any(other != mine and all(a <= b for a, b in zip(other, mine, strict=True)) for other in losses.values())

    wanted = {one for one in losses if not beaten(one)} if len(view.spec.objectives) > 1 else set()
    assert set(found["front"]) == wanted
    assert {one["number"] for one in found["rows"] if one["front"]} == wanted
    costs = [log.trials[one].cost for one in found["cheapest"]]
    assert costs == sorted(costs)
    if complete:
        assert losses[found["cheapest"][-1]][0] == losses[complete[0].number][0]


@settings(deadline=None)
@given(studies())
def test_reports_are_json_of_their_shape_and_the_same_every_time(log):
    found = made(log)
    assert found == made(log)
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert check(StudyReport, json.dumps(found).encode()) == ""
    status = study_status(log.view(), log.facts(), share_of_names)
    assert check(StudyStatus, json.dumps(status).encode()) == ""
    assert {name: value for name, value in found.items() if name in status and name != "notes"} == {
        name: value for name, value in status.items() if name != "notes"
    }


def test_what_a_level_cost_goes_by_the_time_that_it_took():
    log = StudyLog(SPEC)
    log.start(0, {"lr": 1e-3, "wd": 1e-3, "batch": 64, "model": "shallow", "dropout": 0.1})
    log.add(TrialReported(log.id, 0, [(10, 10, [1.0])], 60.0))
    log.add(TrialReported(log.id, 0, [(30, 30, [0.9])], 90.0))
    log.end(0, "complete", [0.5], step=270, cost=1_000_000, seconds=100.0)
    rungs = made(log)["rungs"]
    assert [(one["level"], one["cost"], one["seconds"]) for one in rungs] == [
        (10, 600_000, 60.0), (30, 300_000, 30.0), (None, 100_000, 10.0),
    ]  # fmt: skip


def test_what_a_level_cost_goes_by_steps_where_levels_have_no_time():
    log = StudyLog(SPEC)
    log.start(0, {"lr": 1e-3, "wd": 1e-3, "batch": 64, "model": "shallow", "dropout": 0.1})
    log.add(TrialReported(log.id, 0, [(10, 10, [1.0])]))
    log.end(0, "stopped", None, step=40, cost=1_000_000, seconds=100.0)
    assert [(one["level"], one["cost"], one["seconds"]) for one in made(log)["rungs"]] == [
        (10, 250_000, 25.0), (None, 750_000, 75.0),
    ]  # fmt: skip


# --- large studies ----------------------------------------------------------------------------------------------------
def test_a_sample_has_the_best_and_every_extreme():
    log = many(4 * SHOWN)
    log.start(4 * SHOWN, {"x": 0.5, "kind": "b"})  # the one that is not like the others
    log.end(4 * SHOWN, "failed", None, cost=10**9, seconds=1e6)
    found, trials = made(log), list(log.trials.values())
    shown = {one["number"] for one in found["rows"]}
    assert SHOWN <= found["sample"]["shown"] == len(shown) <= SHOWN + 2 * MOST
    assert found["sample"]["trials"] == len(trials)
    assert f"{SHOWN:,}" in found["sample"]["rule"]
    assert {one.number for one in log.view().complete()[:BEST]} <= shown
    assert {0, 4 * SHOWN} <= shown
    for name in ("x", "n"):
        values = {one.number: one.params[name] for one in trials if name in one.params}
        assert {max(values, key=values.get), min(values, key=values.get)} <= shown
    assert max(trials, key=lambda one: (one.latest or (0.0,))[0]).number in shown
    assert {"failed", "complete"} == {one["state"] for one in found["rows"]}
    assert set(found["cheapest"]) <= shown
    assert sum(part["trials"] for part in found["parameters"][0]["bins"]) == len(trials)


def test_a_long_front_keeps_its_ends_and_is_all_shown():
    log = many(3 * SHOWN, objectives=2)  # all of them are on the front
    view, found = log.view(), made(log)
    assert len(found["front"]) == MOST
    ends = sorted(view.trials.values(), key=lambda one: one.values or ())
    assert (found["front"][0], found["front"][-1]) == (ends[0].number, ends[-1].number)
    assert set(found["front"]) == {one["number"] for one in found["rows"] if one["front"]}


def test_three_objectives_are_compared_in_all_of_them():
    log = many(300, objectives=3)
    for trial, values in enumerate(([2.0, 2.0, 2.0], [-1.0, -1.0, -1.0]), start=300):
        log.start(trial, {"x": 0.5, "kind": "b"})
        log.end(trial, "complete", values)
    assert pareto(log.view(), ranking(log.view())) == [301]


@given(st.lists(st.floats(allow_nan=True), min_size=1, max_size=2000), st.integers(4, 200))
def test_a_thinned_curve_keeps_its_ends_and_its_extremes(values, most):
    points = [(float(step), value) for step, value in enumerate(values)]
    kept = thinned(points, most)
    assert len(kept) <= max(most, 4)
    assert [step for step, _ in kept] == sorted({step for step, _ in kept})
    assert kept[0] is points[0]
    assert kept[-1] is points[-1]
    finite = [value for value in values if not math.isnan(value)]
    if finite:
        assert min(finite) in {value for _, value in kept}
        assert len(finite) < len(values) or max(finite) in {value for _, value in kept}


def test_the_curves_that_are_read_have_the_best_the_median_and_the_worst():
    log = asha(150)
    view = log.view()
    order = ranking(view).order
    numbers = curve_numbers(view)
    assert numbers[0] == order[0].number
    assert numbers[-1] == order[-1].number
    found = study_report(view, with_runs(log), share_of_names)["curves"]
    assert [one["number"] for one in found] == numbers
    assert Counter(one["role"] for one in found) == {"best": 1, "median": 1, "other": len(numbers) - 2}
    assert all(one["measured"] and len(one["points"]) <= POINTS for one in found)
    levels = made(log)["curves"]
    assert not any(one["measured"] for one in levels)
    best = next(one for one in levels if one["role"] == "best")
    assert [one["step"] for one in best["points"]] == [10, 30, 90, 270]


@pytest.mark.parametrize(
    ("promotions", "firsts", "marks"),
    [
        (0, [1.0], []),
        (0, [1.0, 40.0], [(40.0, "restarted")]),
        (1, [1.0, 31.0], [(31.0, "promoted")]),
        (1, [1.0, 20.0, 31.0], [(20.0, "continued"), (31.0, "continued")]),
    ],
)
def test_a_curve_marks_where_later_attempts_began(promotions, firsts, marks):
    log = StudyLog(SPEC)
    log.start(0, {"lr": 1e-3, "wd": 1e-3, "batch": 64, "model": "shallow", "dropout": 0.1})
    for _ in range(promotions):
        log.add(TrialPaused(log.id, 0, 30))
        log.add(TrialPromoted(log.id, 0))
    assert marks_of(log.trials[0], firsts) == marks


# --- axes -------------------------------------------------------------------------------------------------------------
@given(st.floats(1e-5, 1e-1), st.floats(1e-5, 1e-1))
def test_a_logarithmic_parameter_is_drawn_on_a_logarithmic_scale(one, other):
    axis = Axis(Parameter("lr", "float", 1e-5, 1e-1, log=True))
    assert axis.place(one) == pytest.approx((math.log10(one) + 5) / 4, abs=1e-9)
    assert (one <= other) <= (axis.place(one) <= axis.place(other))
    assert axis.place(1e-3) == pytest.approx(0.5)


def test_choices_and_few_values_are_evenly_spaced_and_keep_their_types():
    axis = Axis(Parameter("kind", "choice", choices=(1, True, "1", 1.0)))
    assert [axis.place(one) for one in (1, True, "1", 1.0, "x")] == [0.125, 0.375, 0.625, 0.875, None]
    assert [axis.label(at) for at in range(axis.bins)] == ["1", "true", "1", "1"]
    steps = Axis(Parameter("depth", "int", 4, 24, step=4))
    assert [steps.place(one) for one in (4, 8, 24)] == pytest.approx([1 / 12, 3 / 12, 11 / 12])
    assert [steps.label(at) for at in range(steps.bins)] == ["4", "8", "12", "16", "20", "24"]
    powers = Axis(Parameter("width", "int", 1, 8, log=True, step=1))
    assert [powers.bin(one) for one in range(1, 9)] == list(range(8))
    many = Axis(Parameter("layer", "choice", choices=tuple(f"l{n}" for n in range(100))))
    assert sorted({many.bin(f"l{n}") for n in range(100)}) == list(range(many.bins))
    for at in range(many.bins):
        held = [f"l{n}" for n in range(100) if many.bin(f"l{n}") == at]
        assert many.label(at) == f"{held[0]} … {held[-1]}"


@given(st.lists(st.one_of(st.floats(), st.integers(-(10**6), 10**6), st.text(), st.booleans(), st.none()), max_size=20))
def test_values_that_are_not_in_the_space_have_a_place_or_none(tried):
    """A study file was changed, or somebody asked for them."""
    for parameter in (*SMALL.parameters, Parameter("y", "float", -1.0, 1.0)):
        axis = axis_of(parameter, tried)
        for value in tried:
            place = axis.place(value)
            assert place is None or (0 <= place <= 1 and 0 <= (axis.bin(value) or 0) < axis.bins)
            if parameter.kind == "choice" and isinstance(value, bool | int | float | str) and value == value:
                assert place is not None
        assert all(isinstance(axis.label(at), str) for at in range(axis.bins))


def test_a_conditional_parameter_that_is_not_there_has_no_place():
    found = made(asha(60))
    place = [one["name"] for one in found["parameters"]].index("depth")
    for one in found["rows"]:
        assert (one["places"][place] is None) == (one["params"]["model"] == "shallow")


def test_best_trials_at_an_end_of_the_space_are_said():
    log = StudyLog(StudySpec("edge", SMALL, (Objective("loss"),)))
    for trial in range(40):
        log.start(trial, {"x": 0.001 * 10 ** (3 * trial / 39), "kind": "b"})
        log.end(trial, "complete", [-float(trial)])
    found = made(log)
    assert {one["name"]: one["edge"] for one in found["parameters"]} == {"x": "high", "kind": None, "n": None}
    assert "x at the high end of its range, 1." in found["notes"][0]


def test_a_few_trials_that_went_wrong_do_not_stretch_the_scale():
    log = StudyLog(StudySpec("far", SMALL, (Objective("loss"), Objective("acc", "maximize"))))
    for trial in range(100):
        log.start(trial, {"x": 0.5, "kind": "b"})
        far = trial >= 95
        log.end(trial, "complete", [5000.0 if far else 0.2 + trial / 1000, 0.0 if far else 0.9 + trial / 2000])
    loss, accuracy = made(log)["study"]["objectives"]
    assert (loss["low"], loss["high"], loss["beyond"]) == (0.2, 5000.0, 10)
    assert loss["shown_high"] < 0.3
    assert accuracy["shown_low"] >= 0.9
    assert accuracy["shown_high"] == accuracy["high"] == pytest.approx(0.947)


def test_the_scale_is_that_of_trials_that_ran_to_their_end():
    found = made(asha(200))
    goal = found["study"]["objectives"][0]
    complete = [number(one["values"][0]) for one in found["rows"] if one["state"] == "complete" and not one["violated"]]
    assert (goal["shown_low"], goal["shown_high"]) == (min(complete), max(complete))
    assert goal["high"] > 2


# --- how it stands ----------------------------------------------------------------------------------------------------
def test_what_runs_has_cost_money_already_and_may_still_wait():
    log = asha(60, over=False)
    facts = with_runs(log)
    found = study_status(log.view(), facts, share_of_names)
    states = {one["state"]: one["trials"] for one in found["states"]}
    live = [one for one in log.trials.values() if one.live]
    assert states["queued"] + states["running"] == len(live) == SPEC.parallel
    assert states["queued"] == sum(run.waits for run in facts.runs.values())
    spent = sum(one.cost for one in log.trials.values())
    assert found["study"]["limits"]["cost"]["used"] == spent + 90_000 * len(live)
    assert found["study"]["limits"]["parallel"]["left"] == 0


def test_the_limit_that_is_reached_first_is_named():
    log = many(20)
    log.spec = StudySpec("large", SMALL, (Objective("m0"),), trials=40, until=30.0)
    view = log.view()
    view = type(view)(view.id, log.spec, view.seed, view.trials)
    limits = study_status(view, log.facts(), lambda view: {})["study"]["limits"]
    assert limits["trials"] == {"used": 20, "limit": 40, "left": 20}
    assert (limits["ends_by"], limits["ends_in"]) == ("seconds", pytest.approx(10.0))


def test_a_study_that_has_just_begun_has_a_report():
    found = made(StudyLog(SPEC))
    assert (found["best"], found["grid"], found["rows"], found["rungs"], found["curves"]) == (None, None, [], [], [])
    assert found["study"]["state"] == "running"
    assert found["progress"] == [{"metric": "val_loss", "points": [], "ended": 0, "seconds": 0.0, "cost": 0}]


def test_winners_are_told_with_what_made_them_winners():
    log = asha(200)
    found = made(log)
    assert {one["of"] for one in found["confirmed"]} == {one.number for one in log.view().complete()[:3]}
    seen = {one["number"]: one["values"] for one in found["rows"]}
    for one in found["confirmed"]:
        assert one["seen"] == seen[one["of"]][0]
        assert len(one["values"]) == one["seeds"] == 5
    told = held_up(log.view())
    assert told is not None
    assert found["verdict"] == {"better": told.beats, "p": told.p, "text": told.words}
    assert made(asha(60, over=False))["verdict"] is None


def test_a_constraint_that_every_trial_breaks_leaves_no_best():
    log = StudyLog(SPEC)
    log.start(0, {"lr": 1e-3, "wd": 1e-3, "batch": 64, "model": "shallow", "dropout": 0.1})
    log.end(0, "complete", [0.5], violated=["memory < 70GB"])
    found = made(log)
    assert found["best"] is None
    assert found["rows"][0]["rank"] == 1
    assert found["notes"] == ["Every trial that has a value breaks a constraint."]


def test_times_are_those_since_the_study_began():
    log = asha(
        40, values=two_losses, spec=StudySpec("two", SPEC.space, (Objective("loss"), Objective("speed", "maximize")))
    )
    progress = made(log, runs={0: TrialRun(cost=5)})["progress"][0]
    ends = {one.number: one.ended_at for one in log.trials.values()}
    assert all(one["seconds"] == pytest.approx(ends[one["trial"]] - BEGAN) for one in progress["points"])
    assert progress["seconds"] == pytest.approx(log.now - BEGAN)
