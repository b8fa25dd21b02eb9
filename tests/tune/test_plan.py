"""The rounds of a study: what starts, goes on and leaves, what fits into money and time, and how it ends."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.core.entities.study import StudyChanged, Trial
from muster.tune.decisions import End, Facts, Finish, Leave, Plan, Promote, Start
from muster.tune.plan import MOST_REPEATS, Planner
from muster.tune.spec import Confirm, StudySpec
from strategy_kit import pick
from tune_kit import StudyPlay, World, a_trial, a_view, rule_of, spec_of

FREE = Facts(now=10.0)
DONE = {"phase": "ended", "outcome": "complete", "seconds": 9.0, "cost": 90}


def decided(spec: StudySpec, *trials: Trial, facts: Facts = FREE, passed: tuple[int, ...] = ()) -> Plan:
    return Planner(spec, rule_of(spec)).decide(a_view(spec, *trials), facts, passed)


def kinds(plan: Plan) -> list[tuple[str, int]]:
    return [(type(one).__name__, one.number) for one in plan.decisions if not isinstance(one, Finish)]


def finish_of(plan: Plan) -> Finish:
    (last,) = [one for one in plan.decisions if isinstance(one, Finish)]
    assert last is plan.decisions[-1]
    return last


# what starts


def test_a_study_starts_as_many_trials_as_may_run_at_once() -> None:
    spec = spec_of("hyperband", trials=5, parallel=3)
    plan = decided(spec)
    assert [(one.number, one.bracket, one.params) for one in plan.decisions if isinstance(one, Start)] == [
        (0, 0, None), (1, 1, None), (2, 0, None),
    ]  # fmt: skip
    assert kinds(decided(spec, a_trial(0), a_trial(1, phase="leaving"))) == [("Start", 2)]
    assert kinds(decided(spec, *[a_trial(number, **DONE) for number in range(3)])) == [("Start", 3), ("Start", 4)]


def test_no_more_start_than_there_are_places_now_and_the_study_is_not_over() -> None:
    spec = spec_of("fifo", trials=9, parallel=4)
    assert kinds(decided(spec, facts=replace(FREE, places=2))) == [("Start", 0), ("Start", 1)]
    assert decided(spec, facts=replace(FREE, places=0)).decisions == ()


def test_points_that_are_enqueued_are_tried_first_also_when_the_search_has_no_other() -> None:
    plan = decided(spec_of("fifo", parallel=3), facts=replace(FREE, enqueued=2))
    assert [one.origin for one in plan.decisions if isinstance(one, Start)] == ["enqueued", "enqueued", "search"]
    plan = decided(spec_of("fifo", parallel=3), facts=replace(FREE, enqueued=1, exhausted=True))
    assert [one.origin for one in plan.decisions if isinstance(one, Start)] == ["enqueued"]


def test_a_trial_that_the_platform_lost_is_tried_again_and_counts_once() -> None:
    spec = spec_of("halving", options={"cohort": 3}, trials=3, parallel=3)
    lost = a_trial(1, phase="ended", outcome="lost", origin="enqueued", by="ada", seed=4)
    plan = decided(spec, a_trial(0), lost, a_trial(2))
    (again,) = plan.decisions
    assert isinstance(again, Start)
    assert (again.number, again.params, again.origin, again.by, again.seed) == (3, lost.params, "enqueued", "ada", 4)
    assert (again.replaces, again.note) == (1, "trial 1 was lost")
    assert decided(spec, a_trial(0), lost, a_trial(2), a_trial(3, replaces=1)).decisions == ()


def test_a_trial_that_is_lost_every_time_is_given_up() -> None:
    play = StudyPlay(spec_of("asha", trials=3, parallel=2), World(lost=1.0)).run()
    assert len(play.trials) == 3 * (MOST_REPEATS + 1)
    assert set(play.outcomes.values()) == {"lost"}


def test_a_space_without_points_left_ends_the_study() -> None:
    plan = decided(spec_of("fifo"), a_trial(0, **DONE), facts=replace(FREE, exhausted=True))
    assert finish_of(plan).why == "no point of its space is left to try"


def test_a_study_that_waits_says_for_what() -> None:
    spec = spec_of("halving", options={"cohort": 2}, parallel=4)
    plan = decided(spec, a_trial(0), a_trial(1))
    assert (plan.decisions, plan.waits) == ((), "`halving` waits for trials that run")
    assert decided(spec_of("asha", parallel=2), a_trial(0), a_trial(1)).waits == ""


# verdicts


def test_a_verdict_becomes_what_the_trial_does() -> None:
    spec = spec_of("asha", parallel=3)
    trials = [a_trial(number, {1: 0.5 - 0.1 * number}) for number in range(3)]
    plan = decided(spec, *trials, passed=(0, 2))
    (leave,) = plan.decisions
    assert leave == Leave(0, "", "number 3 of 3 at 1, of which 1 go on")
    nan = a_trial(1, {1: float("nan")})
    assert decided(spec, trials[0], nan, trials[2], passed=(1,)).decisions[0] == Leave(
        1, "diverged", "its objective is no number"
    )


def test_a_trial_that_would_be_the_next_to_go_on_stays() -> None:
    """The last of a cohort to pass is the best of it: it would leave, and start again at once."""
    spec = spec_of("halving", options={"cohort": 3}, trials=3, parallel=3)
    paused = [a_trial(0, {1: 0.5}, "paused"), a_trial(1, {1: 0.6}, "paused")]
    assert decided(spec, *paused, a_trial(2, {1: 0.4}), passed=(2,)).decisions == ()
    assert kinds(decided(spec, *paused, a_trial(2, {1: 0.9}), passed=(2,))) == [("Leave", 2), ("Promote", 0)]


def test_an_exploit_replaces_a_trial_and_takes_its_place() -> None:
    spec = spec_of("pbt", trials=4, parallel=4)
    trials = [a_trial(number, {5: 0.1 * number}) for number in range(4)]
    leave, start = decided(spec, *trials, passed=(3,)).decisions
    assert isinstance(leave, Leave)
    assert isinstance(start, Start)
    assert (leave.number, leave.outcome) == (3, "replaced")
    assert (start.origin, start.of, start.replaces, start.by, start.bracket) == ("exploit", 0, 3, "pbt", 0)
    leaving = replace(trials[3], phase="leaving", outcome="replaced")
    assert decided(spec, *trials[:3], leaving, a_trial(4, origin="exploit", replaces=3)).decisions == ()


def test_a_trial_that_leaves_for_another_has_no_place_of_its_own() -> None:
    leaving = a_trial(1, phase="leaving", outcome="replaced")
    trials = [a_trial(0), leaving, a_trial(2, origin="exploit", replaces=1)]
    assert kinds(decided(spec_of("fifo", parallel=3), *trials)) == [("Start", 3)]


def test_a_stopped_study_lets_what_runs_go_on_and_starts_nothing() -> None:
    spec = spec_of("asha", parallel=4, confirm=Confirm(1, 2))
    done, paused = a_trial(0, {1: 0.3}, **DONE), a_trial(1, {1: 0.4}, "paused")
    stopped = replace(FREE, stopped=True)
    last = [a_trial(number, {5: 0.1 * number}) for number in range(4)]
    assert decided(spec_of("pbt", parallel=4), *last, facts=stopped, passed=(3,)).decisions == ()
    assert decided(spec, done, paused, a_trial(2), facts=stopped).decisions == ()
    (finish,) = decided(spec, done, paused, facts=stopped).decisions  # what is paused may be resumed
    assert isinstance(finish, Finish)
    assert (finish.why, finish.summary["trials"]) == ("it was stopped", {"complete": 1, "paused": 1})
    plan = decided(spec_of("asha", trials=2), done, paused)
    assert plan.decisions[0] == End(1, (0.4,), "the study is over: 2 trials were tried")


def test_trials_that_ran_when_the_study_was_stopped_go_on_first() -> None:
    spec = spec_of("asha", trials=9, parallel=2)
    held = a_trial(2, {1: 0.9}, "paused", held=True)
    trials = [
        a_trial(0, {1: 0.1}, "paused"),
        a_trial(1, phase="ended", outcome="lost"),
        held,
        a_trial(3, {1: 0.2}, "paused"),
    ]
    assert kinds(decided(spec, *trials)) == [("Promote", 2), ("Start", 4)]


# money and time


def test_a_new_trial_starts_only_if_it_can_be_finished() -> None:
    """Complete trials cost 90 each in 9 seconds; one that runs has needed 4 seconds of its 9."""
    spec = spec_of("fifo", trials=None, parallel=4)
    trials = [a_trial(0, **DONE), a_trial(1, **DONE), a_trial(2)]
    facts = replace(FREE, spent=220, ran={2: 4.0})
    assert kinds(decided(spec, *trials, facts=replace(facts, limit=220 + 50 + 89))) == []
    assert kinds(decided(spec, *trials, facts=replace(facts, limit=220 + 50 + 90))) == [("Start", 3)]
    assert kinds(decided(spec, *trials, facts=replace(facts, until=18.9))) == []
    assert kinds(decided(spec, *trials, facts=replace(facts, until=19.0))) == [("Start", 3), ("Start", 4), ("Start", 5)]


def test_what_the_confirmation_of_winners_needs_is_left_aside() -> None:
    """Two runs of 90 for the best trial."""
    spec = spec_of("fifo", trials=None, parallel=1, confirm=Confirm(1, 2))
    done = a_trial(0, **DONE)
    assert kinds(decided(spec, done, facts=replace(FREE, spent=90, limit=90 + 180 + 90))) == [("Start", 1)]
    (first,) = decided(spec, done, facts=replace(FREE, spent=90, limit=90 + 180 + 89)).decisions
    assert isinstance(first, Start)
    assert (first.origin, first.of, first.seed) == ("confirm", 0, 1)
    # Nine runs need 810, but at most half of the money is kept for them: 90 are left of 360, and 89 of 358.
    many = replace(spec, confirm=Confirm(1, 9))
    for limit, origin in ((360, "search"), (358, "confirm")):
        (start,) = decided(many, done, facts=replace(FREE, spent=90, limit=limit)).decisions
        assert isinstance(start, Start)
        assert start.origin == origin


def test_the_expected_cost_of_a_trial_counts_while_none_has_ended() -> None:
    spec = spec_of("fifo", trials=None, parallel=4)
    facts = replace(FREE, limit=250, trial_cost=100.0)
    assert kinds(decided(spec, facts=facts)) == [("Start", 0), ("Start", 1)]
    assert kinds(decided(spec, facts=replace(facts, limit=99))) == [("Start", 0)]  # it may need less
    lost = a_trial(0, phase="ended", outcome="lost")
    assert kinds(decided(spec, lost, facts=replace(facts, limit=99))) == [("Start", 1)]
    plan = decided(spec, a_trial(0, phase="ended", outcome="failed"), facts=replace(facts, limit=99))
    assert finish_of(plan).why == "another trial does not fit into what is left of its money or time"
    done = a_trial(0, phase="ended", outcome="complete", seconds=4.0, cost=40)
    assert kinds(decided(spec, done, facts=replace(facts, limit=99, spent=40))) == [("Start", 1)]


def test_a_promotion_is_deferred_when_the_trial_can_not_be_finished() -> None:
    """The trial has passed level 1 after a second, for 10; programs end after nine times that."""
    spec = spec_of("asha", trials=4, parallel=2)
    done = a_trial(3, {1: 0.9, 3: 0.8}, **DONE)
    paused = [a_trial(number, {1: 0.1 * number}, "paused", seconds=1.0, cost=10) for number in range(3)]
    facts = replace(FREE, spent=120, limit=120 + 79)
    plan = decided(spec, *paused, done, facts=facts)
    assert [number for kind, number in kinds(plan) if kind == "End"] == [0, 1, 2]
    assert finish_of(plan).summary["best"][0]["number"] == 3
    assert kinds(decided(spec, *paused, done, facts=replace(facts, limit=120 + 80))) == [("Promote", 0)]
    running = replace(paused[0], phase="running")
    assert kinds(decided(spec, running, *paused[1:], done, facts=replace(facts, ran={0: 1.0}))) == []


def test_a_new_trial_goes_before_a_promotion_that_can_hardly_improve_the_best() -> None:
    """From level 1 to 3 trials gain 0.1, and the best has 0.1 there. A paused trial at 0.5 will be at 0.4; of new ones,
    which come to anything from 0 to 1, some will be better."""
    spec = spec_of("asha", trials=40, parallel=1)
    passed = [
        a_trial(number, {1: 0.2 + 0.03 * number, 3: 0.1 + 0.029 * number}, "paused", seconds=3.0) for number in range(6)
    ]
    done = [a_trial(number, {1: 0.9, 3: 0.8}, **DONE) for number in (6, 7)]
    hopeless = [a_trial(number, {1: 0.5 + 0.02 * number}, "paused", seconds=1.0) for number in range(8, 30)]
    limited = replace(FREE, until=1000.0)
    trials = [*[replace(one, phase="ended", outcome="stopped") for one in passed], *done, *hopeless]
    assert kinds(decided(spec, *trials)) == [("Promote", 8)]  # time is not limited: as the rule says
    assert kinds(decided(spec, *trials, facts=limited)) == [("Start", 30)]
    good = replace(hopeless[0], rungs=a_trial(8, {1: 0.15}).rungs)
    assert kinds(decided(spec, *trials[:8], good, *hopeless[1:], facts=limited)) == [("Promote", 8)]
    closed = replace(spec, trials=30)  # no new one may come
    assert kinds(decided(closed, *trials, facts=limited)) == [("Promote", 8)]


def test_trials_that_run_are_told_to_leave_when_the_money_or_the_time_is_spent() -> None:
    spec = spec_of("asha", trials=None, parallel=4)
    trials = [a_trial(0), a_trial(1, phase="leaving"), a_trial(2, {1: 0.5}, "paused")]
    plan = decided(spec, *trials, facts=replace(FREE, limit=100, spent=100))
    assert plan.decisions == (Leave(0, "stopped", "the money of the study is spent"),)
    plan = decided(spec, *trials, facts=replace(FREE, until=10.0))
    assert plan.decisions == (Leave(0, "stopped", "the time of the study is over"),)
    assert kinds(decided(spec, trials[2], facts=replace(FREE, until=10.0))) == [("End", 2)]


@given(data=st.data(), rule=pick("fifo", "asha", "hyperband", "median", "pbt", "halving"))
def test_a_limit_is_overspent_by_what_leaving_costs_alone(data: st.DataObject, rule: str) -> None:
    parallel, price, cost = data.draw(pick(1, 4)), 1000, data.draw(st.integers(1000, 200_000))
    spec = spec_of(rule, trials=data.draw(pick(None, 30)), parallel=parallel, cost=cost)
    world = World(data.draw(st.integers(0, 999)), price=price, lost=data.draw(pick(0.0, 0.1)))
    play = StudyPlay(spec, world, check=True).run()
    spent = sum(one.cost for one in play.trials.values())
    leaving = 2 * parallel if rule == "pbt" else parallel  # while a trial leaves, the one that replaces it has begun
    assert spent <= cost + leaving * (world.leaves * price + 2)
    assert play.now <= cost / price + 1


@pytest.mark.parametrize("rule", ["fifo", "asha"])
def test_most_of_the_money_is_used(rule: str) -> None:
    """What is left at the end is less than the dearest trial: 9 reports of 2.4 seconds at most."""
    play = StudyPlay(spec_of(rule, trials=None, cost=300_000), World(price=1000)).run()
    spent = sum(one.cost for one in play.trials.values())
    assert 300_000 - 9 * 2_400 < spent <= 300_000
    assert "does not fit" in play.finished.why if play.finished else False


def test_no_trial_runs_after_the_time_is_over() -> None:
    play = StudyPlay(spec_of("asha", trials=None, until=40.0), World()).run()
    assert 30 < play.now <= 40.0 + play.world.leaves


def test_a_study_ends_when_another_trial_is_worth_less_than_it_costs() -> None:
    spec = spec_of("fifo", trials=None, parallel=1, worth=1000)
    done = [a_trial(number, **DONE, values=(1.0 + number,)) for number in range(10)]
    # The distances of the best are 1: the next gains 3/11 on average, which is worth 272.
    facts = replace(FREE, trial_cost=90.0)
    assert kinds(decided(spec, *done, facts=facts)) == [("Start", 10)]
    plan = decided(replace(spec, worth=300), *done, facts=facts)
    assert finish_of(plan).why == "another trial is expected to gain 0.27, which is worth less than it costs"
    assert kinds(decided(spec, *done, facts=replace(facts, gain=0.08))) == []  # as control knows better
    assert kinds(decided(spec, *done, facts=replace(facts, gain=0.1))) == [("Start", 10)]


# the end


def test_winners_run_again_with_other_seeds_and_then_the_study_ends() -> None:
    spec = spec_of("fifo", trials=3, parallel=2, confirm=Confirm(2, 2), pools=("cheap", "fast"))
    trials = [a_trial(number, **DONE, values=(value,)) for number, value in enumerate([0.3, 0.1, 0.2])]
    trials[2] = replace(trials[2], params={"lr": 0.2, "depth": 4, "model": "plain"})  # the others are the same
    plan = decided(spec, *trials)
    starts = [one for one in plan.decisions if isinstance(one, Start)]
    assert [(one.origin, one.of, one.seed) for one in starts] == [("confirm", 1, 1), ("confirm", 1, 2)]
    assert starts[0].params == trials[1].params
    assert [one.rung for one in starts] == [1, 1]
    confirm: dict[str, Any] = {"origin": "confirm", "of": 1}
    again = [a_trial(3, **DONE, **confirm, seed=1), a_trial(4, phase="ended", outcome="lost", **confirm, seed=2)]
    plan = decided(spec, *trials, *again)
    starts = [one for one in plan.decisions if isinstance(one, Start)]
    assert [(one.of, one.seed, one.replaces) for one in starts] == [(1, 2, 4), (2, 1, None)]
    failed = [a_trial(5, **DONE, **confirm, seed=2, replaces=4)]
    confirm["of"] = 2
    failed += [a_trial(6 + seed, phase="ended", outcome="failed", **confirm, seed=seed + 1) for seed in range(2)]
    running = a_trial(8, origin="confirm", of=0, seed=1)
    assert decided(spec, *trials, *again, *failed, running).decisions == ()
    found = finish_of(decided(spec, *trials, *again, *failed))
    assert found.why == "3 trials were tried"
    assert [one["number"] for one in found.summary["best"]] == [1, 2]
    assert [one["number"] for one in found.summary["held_up"]["groups"]] == [1]


def test_a_study_that_is_extended_goes_on_searching() -> None:
    spec = spec_of("asha", trials=4, parallel=2)
    play = StudyPlay(spec, World()).run()
    known = len(play.trials)
    play.spec, play.finished = replace(spec, trials=8), None
    play._planner = play._new_planner()
    play._append(StudyChanged(play.spec.to_doc(), "", "trials 4 to 8"))
    play.round()
    assert len(play.trials) == known + 2


def test_a_study_whose_trials_all_fail_ends_too() -> None:
    play = StudyPlay(spec_of("hyperband", trials=5), World(fails=1.0)).run()
    assert set(play.outcomes.values()) == {"failed"}
    assert play.finished is not None
    assert play.finished.summary == {"why": "5 trials were tried", "trials": {"failed": 5}, "best": []}


def test_at_least_one_trial_runs_to_its_end_however_few_there_are() -> None:
    for rule in ("asha", "halving", "hyperband"):
        for trials in (1, 2, 3, 5):
            play = StudyPlay(spec_of(rule, trials=trials, parallel=2), World(length=20)).run()
            complete = [one for one in play.trials.values() if one.outcome == "complete"]
            assert complete, (rule, trials)
            promoted = [one.number for _, one in play.told if isinstance(one, Promote)]
            assert trials > 1 or not promoted  # alone, it never leaves its place
