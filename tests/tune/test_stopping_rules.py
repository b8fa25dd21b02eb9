"""Each stopping rule on tables of values, against what was worked out by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.core.entities.study import Trial
from muster.core.units import InvalidValue
from muster.tune.mutate import mutated
from muster.tune.spec import Objective
from muster.tune.stopping.base import Stopping, Verdict
from muster.tune.stopping.hyperband import shares
from muster.tune.stopping.levels import Levels, Steady
from muster.tune.view import StudyView
from strategy_kit import pick
from tune_kit import SPACE, StudyPlay, World, a_trial, a_view, rule_of, spec_of


def judged(rule: Stopping, view: StudyView, number: int) -> str:
    return rule.verdict(view, view.trials[number]).do


def levels(rule: Stopping, trial: Trial, most: int = 6) -> list[float]:
    found: list[float] = []
    while len(found) < most and (level := rule.next_level(trial)) is not None:
        found.append(level)
        trial = a_trial(0, {int(one): 0.5 for one in found}, bracket=trial.bracket)
    return found


# asha


def test_asha_pauses_and_promotes_as_worked_out_by_hand() -> None:
    """One of three goes on. What follows each value, of the trials that have passed the first rung by then:"""
    spec = spec_of("asha", trials=9)
    rule = rule_of(spec)
    trials: dict[int, Trial] = {}
    told: list[tuple[str, int | None]] = []
    for number, value in enumerate([0.9, 0.5, 0.7, 0.4, 0.8, 0.6, 0.45, 0.3, 0.95]):
        trials[number] = a_trial(number, {1: value})
        view = a_view(spec, *trials.values())
        verdict = judged(rule, view, number)
        if verdict == "pause":
            trials[number] = replace(trials[number], phase="paused", saved=1)
        view = a_view(spec, *trials.values())
        promoted = rule.promote(view)
        if promoted is not None:
            trials[promoted.number] = replace(trials[promoted.number], phase="running")
        told.append((verdict, promoted.number if promoted is not None else None))
    assert told == [
        ("pause", None),  # 1 trial: none goes on
        ("pause", None),
        ("pause", 1),  # 3 trials, 1 goes on: 0.5
        ("go", None),  # 0.4 is the best of 4
        ("pause", None),
        ("pause", None),  # 6 trials, 2 go on: 0.4 and 0.5 do already
        ("go", None),  # 0.45 is second of 7
        ("go", None),  # 0.3 is the best of 8
        ("pause", None),  # 9 trials, 3 go on: 0.3, 0.4 and 0.45
    ]


def test_asha_promotes_at_the_highest_rung_first() -> None:
    spec = spec_of("asha")
    low = [a_trial(number, {1: 0.1 * number + 0.5}, "paused") for number in range(3)]
    high = [a_trial(number, {1: 0.3, 3: 0.2 + 0.01 * number}, "paused") for number in range(3, 6)]
    rule = rule_of(spec)
    found = rule.promote(a_view(spec, *low, *high))
    assert found is not None
    assert (found.number, found.note) == (3, "number 1 of 3 at 3 by now, of which 1 go on")


def test_asha_gives_the_place_of_a_trial_that_failed_to_the_next() -> None:
    spec = spec_of("asha")
    trials = [a_trial(number, {1: 0.5 + 0.1 * number}, "paused") for number in range(6)]
    trials[0] = replace(trials[0], phase="running")
    trials[1] = replace(trials[1], phase="running")
    rule = rule_of(spec)
    assert rule.promote(a_view(spec, *trials)) is None
    trials[0] = replace(trials[0], phase="ended", outcome="failed")
    assert rule.promote(a_view(spec, *trials)) is None  # one of five goes on, and it runs
    trials[1] = replace(trials[1], phase="ended", outcome="failed")
    found = rule.promote(a_view(spec, *trials))
    assert found is not None
    assert found.number == 2


def test_asha_lets_the_best_run_to_its_end_when_nothing_else_will_come() -> None:
    spec = spec_of("asha")
    trials = [a_trial(0, {1: 0.5}, "paused"), a_trial(1, {1: 0.4}, "paused")]
    rule = rule_of(spec)
    assert rule.promote(a_view(spec, *trials)) is None
    found = rule.promote(a_view(spec, *trials, closed=True))
    assert found is not None
    assert found.number == 1
    assert rule.promote(a_view(spec, *trials, a_trial(2), closed=True)) is None  # one runs yet
    done = a_trial(2, {1: 0.3}, "ended", outcome="complete")
    assert rule.promote(a_view(spec, *trials, done, closed=True)) is None


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_trial_whose_objective_is_no_number_never_passes(value: float) -> None:
    for name, options in (("asha", {}), ("halving", {}), ("median", {"trials": 1}), ("rule", {"when": "value < 0"})):
        spec = spec_of(name, options=options)
        view = a_view(spec, a_trial(0, {3: value}), a_trial(1, {3: 0.5}), a_trial(2, {3: 0.6}))
        assert judged(rule_of(spec), view, 0) == "stop"


def test_asha_stops_trials_of_programs_that_save_nothing() -> None:
    """Then the best so far goes on even while there are too few: it could not come back."""
    first, second = a_trial(0, {1: 0.5}), a_trial(1, {1: 0.6})
    for spec in (spec_of("asha", options={"pause": False}), spec_of("asha", job=None)):
        rule = rule_of(spec)
        assert judged(rule, a_view(spec, first), 0) == "go"
        assert judged(rule, a_view(spec, first, second), 1) == "stop"
    spec = spec_of("asha", job=None, options={"pause": True})
    assert judged(rule_of(spec), a_view(spec, first), 0) == "pause"


def test_a_maximum_is_better_when_it_is_larger() -> None:
    spec = spec_of("asha", objectives=(Objective("accuracy", "maximize"),))
    view = a_view(spec, *[a_trial(number, {1: 0.1 * number}) for number in range(3)])
    assert [judged(rule_of(spec), view, number) for number in range(3)] == ["pause", "pause", "go"]


def test_levels_are_powers_of_eta_that_leave_room_to_the_end() -> None:
    assert levels(rule_of(spec_of("asha")), a_trial(0)) == [1, 3, 9, 27, 81, 243]
    assert levels(rule_of(spec_of("asha", options={"max": 81})), a_trial(0)) == [1, 3, 9, 27]
    assert levels(rule_of(spec_of("asha", options={"max": 100})), a_trial(0)) == [1, 3, 9, 27]
    assert levels(rule_of(spec_of("asha", options={"min": 2, "eta": 2.5})), a_trial(0), 4) == [2, 5, 13, 32]
    assert levels(rule_of(spec_of("asha", options={"by": "step", "max": 8100})), a_trial(0)) == [100, 300, 900, 2700]
    assert levels(rule_of(spec_of("asha")), a_trial(0, origin="confirm")) == []


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("asha", {"by": "step"}),
        ("asha", {"min": 10, "max": 20}),
        ("hyperband", {"max": 9, "brackets": 4}),
        ("median", {"by": "step"}),
        ("pbt", {"by": "step"}),
        ("rule", {"by": "step", "when": "value > 1"}),
        ("rule", {"when": "valu > 1"}),
    ],
)
def test_options_that_contradict_each_other_are_refused(name: str, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidValue, match=r"\w{4}"):
        rule_of(spec_of(name, options=options))


def test_a_rule_that_copies_checkpoints_is_refused_where_another_program_runs_the_trials() -> None:
    with pytest.raises(InvalidValue, match="another program runs"):
        rule_of(spec_of("pbt", job=None))


# hyperband


def test_hyperband_has_the_brackets_of_the_paper() -> None:
    """Table 1 of Li et al. (2017): R = 81 and eta = 3."""
    assert shares(5, 3) == [81, 34, 15, 8, 5]
    rule = rule_of(spec_of("hyperband", options={"max": 81}))
    found = [levels(rule, a_trial(0, bracket=bracket)) for bracket in range(5)]
    assert found == [[1, 3, 9, 27], [3, 9, 27], [9, 27], [27], []]
    assert [rule.rung_of(a_trial(0, bracket=bracket)) for bracket in range(5)] == [0, 1, 2, 3, 4]
    assert rule.rung_of(a_trial(0, {3: 0.5}, bracket=1)) == 2


def test_hyperband_shares_trials_out_by_the_sizes_of_its_brackets() -> None:
    spec = spec_of("hyperband", options={"max": 81}, trials=143)
    rule = rule_of(spec)
    trials: list[Trial] = []
    for number in range(143):
        trials.append(a_trial(number, bracket=rule.bracket(a_view(spec, *trials), number)))
    brackets = [one.bracket for one in trials]
    assert [brackets.count(bracket) for bracket in range(5)] == [81, 34, 15, 8, 5]
    # In units of 1/81, one of the 81 is due at 1, 2, 3, ..., one of the 34 at 2.4, 4.8, 7.1, ..., of the 15 at 5.4.
    assert brackets[:11] == [0, 0, 1, 0, 0, 1, 0, 2, 0, 0, 1]


def test_a_bracket_of_hyperband_does_not_judge_the_trials_of_another() -> None:
    spec = spec_of("hyperband")
    others = [a_trial(number, {3: 0.1}) for number in range(3)]
    mine = [a_trial(number, {3: 0.5 + number / 10}, bracket=1) for number in range(3, 6)]
    view = a_view(spec, *others, *mine)
    assert [judged(rule_of(spec), view, number) for number in (3, 4, 5)] == ["go", "pause", "pause"]


# halving


def test_halving_waits_for_its_cohort_and_then_takes_the_best() -> None:
    spec = spec_of("halving", options={"cohort": 9}, trials=18, parallel=9)
    rule = rule_of(spec)
    assert levels(rule, a_trial(0)) == [1, 3]  # 9 → 3 → 1
    trials = [a_trial(number, {1: 0.1 * number}, "paused") for number in range(8)]
    assert rule.may_ask(a_view(spec, *trials))
    trials.append(a_trial(8))
    view = a_view(spec, *trials)
    assert (rule.may_ask(view), rule.promote(view)) == (False, None)  # number 8 is on its way
    trials[8] = a_trial(8, {1: 0.05}, "paused")
    promoted = []
    for _ in range(3):
        found = rule.promote(a_view(spec, *trials))
        assert found is not None
        promoted.append(found.number)
        trials[found.number] = replace(trials[found.number], phase="running")
    assert promoted == [0, 8, 1]
    assert rule.promote(a_view(spec, *trials)) is None
    trials[0] = a_trial(0, {1: 0.0, 3: 0.3}, "paused")
    trials[8] = a_trial(8, {1: 0.05, 3: 0.2}, "paused")
    assert rule.promote(a_view(spec, *trials)) is None
    trials[1] = replace(trials[1], phase="ended", outcome="failed")  # nobody waits for it
    found = rule.promote(a_view(spec, *trials))
    assert found is not None
    assert found.number == 8
    trials[8] = a_trial(8, {1: 0.05, 3: 0.2}, "ended", outcome="complete")
    view = a_view(spec, *trials)
    assert (rule.promote(view), rule.may_ask(view), rule.bracket(view, 9)) == (None, True, 1)


def test_halving_takes_the_best_of_a_cohort_that_will_not_be_full() -> None:
    spec = spec_of("halving", options={"cohort": 9})
    trials = [a_trial(number, {1: 0.1 * number}, "paused") for number in range(6)]
    rule = rule_of(spec)
    assert rule.promote(a_view(spec, *trials)) is None
    trials[0] = replace(trials[0], phase="running")
    found = rule.promote(a_view(spec, *trials, closed=True))
    assert found is not None
    assert found.number == 1  # two of six go on


def test_halving_waits_for_a_trial_that_will_go_on_when_it_has_left() -> None:
    """Of 9 trials 0, 1 and 2 go on. Trial 0 is slow to leave; the others are at the next rung already."""
    spec = spec_of("halving", options={"cohort": 9})
    others = [a_trial(number, {1: 0.1 * number}, "paused") for number in range(3, 9)]
    ahead = [a_trial(number, {1: 0.1 * number, 3: 0.05}, "paused") for number in (1, 2)]
    rule = rule_of(spec)
    assert rule.promote(a_view(spec, a_trial(0, {1: 0.0}, "leaving"), *ahead, *others)) is None
    found = rule.promote(a_view(spec, a_trial(0, {1: 0.0}, "paused"), *ahead, *others))
    assert found is not None
    assert found.number == 0
    found = rule.promote(
        a_view(spec, a_trial(3, {1: 0.3}, "leaving"), a_trial(0, {1: 0, 3: 0.2}, "paused"), *ahead, *others[1:])
    )
    assert found is not None
    assert found.number == 1  # nobody waits for one that will not


def test_halving_waits_for_a_trial_that_goes_on_when_its_study_is_resumed() -> None:
    spec = spec_of("halving", options={"cohort": 3})
    trials = [a_trial(number, {1: 0.1 * number}, "paused") for number in range(2)]
    rule = rule_of(spec)
    held = a_trial(2, phase="paused", held=True)
    assert rule.promote(a_view(spec, *trials, held)) is None
    assert rule.promote(a_view(spec, *trials, replace(held, held=False))) is not None
    ended = replace(held, phase="ended", outcome="complete", values=(0.5,))  # it was at its end when it left
    assert rule.promote(a_view(spec, *trials, ended)) is not None


def test_halving_keeps_a_place_for_a_trial_that_was_lost() -> None:
    spec = spec_of("halving", options={"cohort": 2})
    trials = [a_trial(0, {1: 0.5}, "paused"), a_trial(1, phase="ended", outcome="lost")]
    rule = rule_of(spec)
    view = a_view(spec, *trials)
    assert (rule.may_ask(view), rule.bracket(view, 2), rule.promote(view)) == (True, 0, None)
    found = rule.promote(a_view(spec, *trials, a_trial(2, {1: 0.4}, "paused", replaces=1)))
    assert found is not None
    assert found.number == 2


# median


def test_the_median_rule_stops_what_is_worse_than_half_of_the_others() -> None:
    """Means up to level 4 of the others: 0.5, 0.7, 0.9 and, of one that ended at 3, 0.8."""
    spec = spec_of("median", options={"trials": 4})
    others = [
        a_trial(0, {3: 0.6, 4: 0.4}),
        a_trial(1, {3: 0.8, 4: 0.6}),
        a_trial(2, {3: 1.0, 4: 0.8}, "paused"),
        a_trial(3, {3: 0.8}, "ended", outcome="stopped"),
    ]
    rule = rule_of(spec)

    def verdict(third: float, fourth: float) -> str:
        return judged(rule, a_view(spec, *others, a_trial(4, {3: third, 4: fourth})), 4)

    assert verdict(0.9, 0.75) == "go"  # its best, 0.75, is worse than two of four
    assert verdict(0.75, 0.9) == "go"
    assert verdict(0.9, 0.81) == "stop"  # worse than three
    assert levels(rule, a_trial(0)) == [3, 4, 5, 7, 9, 12]


def test_the_median_rule_stops_nothing_while_there_is_too_little_to_compare() -> None:
    spec = spec_of("median", options={"trials": 3})
    trials = [a_trial(0, {3: 0.1}), a_trial(1, {3: 0.1}), a_trial(2, {3: 9.0})]
    assert judged(rule_of(spec), a_view(spec, *trials), 2) == "go"
    assert judged(rule_of(spec), a_view(spec, *trials, a_trial(3, {3: 0.2})), 2) == "stop"
    lost = replace(a_trial(3, {3: 0.2}, "ended"), outcome="lost")
    assert judged(rule_of(spec), a_view(spec, *trials, lost), 2) == "go"


# rule


@pytest.mark.parametrize(
    ("when", "holds"),
    [
        ("value > 2 * best", True),  # 0.9 > 2 · 0.3
        ("value > 4 * best", False),
        ("value > median", True),  # of 0.3 and 0.5, without its own: 0.4
        ("median == 0.4", True),
        ("rank == 3 and trials == 3", True),
        ("own_best == 0.8 and value > own_best", True),
        ("previous == 0.8", True),
        ("since_best >= 1 and report == 2 and step == 2", True),
        ("seconds >= 2", True),
        ("seconds > 2", False),
    ],
)
def test_a_rule_reads_what_it_says(when: str, holds: bool) -> None:
    spec = spec_of("rule", options={"when": when})
    view = a_view(spec, a_trial(0, {1: 1.0, 2: 0.3}), a_trial(1, {1: 1.0, 2: 0.5}), a_trial(2, {1: 0.8, 2: 0.9}))
    verdict = rule_of(spec).verdict(view, view.trials[2])
    assert verdict.do == ("stop" if holds else "go")
    assert (when.split()[0] in verdict.note) == holds


def test_a_rule_does_not_hold_for_what_is_not_known_yet() -> None:
    for when in ("value > median", "value > previous", "value / 0 > 1"):
        spec = spec_of("rule", options={"when": when})
        assert judged(rule_of(spec), a_view(spec, a_trial(0, {1: 5.0})), 0) == "go"


def test_a_rule_speaks_of_a_maximum_in_its_own_numbers() -> None:
    spec = spec_of("rule", options={"when": "value < best / 2"}, objectives=(Objective("accuracy", "maximize"),))
    view = a_view(spec, a_trial(0, {1: 0.8}), a_trial(1, {1: 0.3}), a_trial(2, {1: 0.5}))
    assert [judged(rule_of(spec), view, number) for number in (1, 2)] == ["stop", "go"]


# pbt


def population(*values: float, level: int = 5) -> list[Trial]:
    return [a_trial(number, {level: value}) for number, value in enumerate(values)]


def exploited(verdict: Verdict) -> tuple[int, dict[str, Any]]:
    assert verdict.do == "exploit"
    assert verdict.source is not None
    assert verdict.params is not None
    return verdict.source, dict(verdict.params)


def test_pbt_replaces_the_worst_by_a_changed_copy_of_the_best() -> None:
    spec = spec_of("pbt", options={"resample": 0.0}, parallel=4)
    view = a_view(spec, *population(0.2, 0.4, 0.6, 0.8))
    rule = rule_of(spec)
    assert [judged(rule, view, number) for number in range(4)] == ["go", "go", "go", "exploit"]
    source, params = exploited(rule.verdict(view, view.trials[3]))
    assert source == 0
    assert params["lr"] in (pytest.approx(0.1 * 1.2), pytest.approx(0.1 / 1.2))
    assert params["depth"] in (2, 6)  # 4 · 1.2 is 4 again by steps of 2: its neighbour
    assert params["model"] == "plain"
    assert exploited(rule_of(spec).verdict(view, view.trials[3])) == (source, params)


def test_pbt_waits_until_enough_of_the_population_can_be_compared() -> None:
    spec = spec_of("pbt", parallel=8)
    assert judged(rule_of(spec), a_view(spec, *population(0.2, 0.4, 0.6)), 2) == "go"  # a quarter of 3 is none
    assert judged(rule_of(spec), a_view(spec, *population(0.2, 0.4, 0.6, 0.8)), 3) == "exploit"


def test_pbt_compares_members_at_the_same_step() -> None:
    """A trial at step 5 is not behind others because they are at step 10 by now."""
    spec = spec_of("pbt", parallel=4)
    others = [a_trial(number, {5: 0.9, 10: 0.1}) for number in range(3)]
    assert judged(rule_of(spec), a_view(spec, *others, a_trial(3, {5: 0.8})), 3) == "go"
    assert judged(rule_of(spec), a_view(spec, *others, a_trial(3, {5: 0.95})), 3) == "exploit"


def test_pbt_starts_from_trials_that_have_a_checkpoint_and_something_left_to_train() -> None:
    spec = spec_of("pbt", options={"quantile": 0.5}, parallel=6)
    trials = population(0.1, 0.2, 0.3, 0.4, 0.5, 0.9)
    trials[0] = replace(trials[0], phase="ended", outcome="complete", values=(0.1,))
    trials[1] = replace(trials[1], phase="ended", outcome="failed")
    rule = rule_of(spec)
    sources = set()
    for seed in range(20):
        view = replace(a_view(spec, *trials, checkpoints={2: 5, 5: 5}), seed=seed)
        sources.add(exploited(rule.verdict(view, trials[5]))[0])
    assert sources == {2}
    assert judged(rule, a_view(spec, *trials, checkpoints={5: 5}), 5) == "go"  # nobody to start from
    assert exploited(rule.verdict(a_view(spec, *trials), trials[5]))[0] in (2, 3)


def test_pbt_replaces_nobody_by_one_that_is_no_better() -> None:
    spec = spec_of("pbt", options={"quantile": 0.5}, parallel=4)
    assert [judged(rule_of(spec), a_view(spec, *population(0.5, 0.5, 0.5, 0.5)), n) for n in range(4)] == ["go"] * 4


def test_pbt_replaces_a_member_that_diverged() -> None:
    spec = spec_of("pbt", parallel=4)
    assert judged(rule_of(spec), a_view(spec, *population(0.2, 0.4, 0.6, math.nan)), 3) == "exploit"
    assert judged(rule_of(spec), a_view(spec, *population(0.2, math.nan)), 1) == "stop"


def test_pbt_takes_turns_where_not_all_can_run_at_once() -> None:
    spec = spec_of("pbt", options={"population": 3}, parallel=1)
    rule = rule_of(spec)
    first = a_trial(0, {5: 0.5})
    assert judged(rule, a_view(spec, first), 0) == "pause"
    first = replace(first, phase="paused")
    view = a_view(spec, first)
    assert (rule.promote(view), rule.may_ask(view)) == (None, True)  # the others have not begun
    assert rule.promote(replace(view, closed=True)) is not None  # and never will
    ahead = [a_trial(1, {5: 0.4, 10: 0.3}, "paused"), a_trial(2, {5: 0.4, 10: 0.2}, "paused")]
    view = a_view(spec, first, *ahead)
    found = rule.promote(view)
    assert found is not None
    assert (found.number, rule.may_ask(view)) == (0, False)


def test_a_population_follows_the_last_one_when_that_is_over() -> None:
    spec = spec_of("pbt", options={"population": 2}, parallel=2)
    done = [a_trial(number, {5: 0.5}, "ended", outcome="complete") for number in range(2)]
    rule = rule_of(spec)
    assert rule.may_ask(a_view(spec, *done))
    assert rule.bracket(a_view(spec, *done), 2) == 1
    assert not rule.may_ask(a_view(spec, done[0], a_trial(1)))


def test_a_trial_that_starts_from_a_checkpoint_is_looked_at_an_interval_later() -> None:
    by_step = rule_of(spec_of("pbt", options={"by": "step", "interval": 100}))
    assert by_step.next_level(a_trial(9, origin="exploit", step=730)) == 800
    assert by_step.next_level(a_trial(9, {800: 0.5}, origin="exploit")) == 900
    assert rule_of(spec_of("pbt")).next_level(a_trial(9, origin="exploit", step=730)) == 5


def test_a_population_gets_better_than_the_same_trials_alone() -> None:
    """Its best trials' state is used by the others: at the end all are better than without."""

    def loss(trial: Trial, step: int) -> float:
        return abs(math.log10(trial.params["lr"]) + 2) + 1 / step

    world = World(3, 40, loss=loss)
    given = {"trials": 8, "parallel": 8}
    alone = StudyPlay(spec_of("fifo", **given), world).run()
    together = StudyPlay(spec_of("pbt", **given), world).run()

    def mean(play: StudyPlay) -> float:
        ended = [one.values[0] for one in play.trials.values() if one.outcome == "complete" and one.values]
        return sum(ended) / len(ended)

    assert mean(together) < 0.7 * mean(alone)
    assert sum(one.outcome == "replaced" for one in together.trials.values()) >= 4


@given(
    st.lists(st.floats(0, 1), min_size=4, max_size=4),
    st.integers(0, 2**32),
    pick(1.01, 1.2, 3.0),
    pick(0.0, 0.25, 1.0),
)
def test_changed_parameters_are_in_the_space(places: list[float], seed: int, factor: float, chance: float) -> None:
    params = SPACE.at(places)
    found = mutated(SPACE, params, np.random.default_rng(seed), factor, chance)
    assert SPACE.fits(found)
    if chance == 0 and 1e-4 * factor < params["lr"] < 1 / factor:
        assert found["lr"] in (pytest.approx(params["lr"] * factor), pytest.approx(params["lr"] / factor))


# levels


@given(st.integers(1, 50), st.floats(2, 10), st.none() | st.integers(1, 10_000))
def test_levels_are_whole_and_ascend(first: int, eta: float, end: int | None) -> None:
    found = [Levels(first, eta, end).level(index) for index in range(12)]
    there = [one for one in found if one is not None]
    assert found == there + [None] * (12 - len(there))
    assert there == sorted(set(there))
    assert all(one == int(one) for one in there)


@given(st.integers(1, 50), st.none() | st.integers(1, 50), st.floats(0, 1000))
def test_steady_levels_are_above_where_the_trial_is(first: int, every: int | None, start: float) -> None:
    level = Steady(first, every).next(a_trial(0), start)
    assert level >= first
    assert level > start or start < first
    if every is not None:
        assert (level - first) % every == 0
        assert level - start <= max(every, first)
