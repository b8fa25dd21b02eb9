"""What every stopping rule keeps, with any searcher: trials end, nothing waits for ever, and a study that is killed at
any event and made anew from its log decides the same.

Each example is a whole study in virtual time (`tune_kit`), with trials that fail, are lost, are stopped by hand,
diverge and are slow to leave.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from muster.core.entities.study import Rung, Trial, TrialLeaving
from muster.core.units import InvalidValue
from muster.tune.plugin import Option
from muster.tune.searchers import SEARCHERS
from muster.tune.spec import Confirm
from muster.tune.stopping import STOPPING
from muster.tune.view import StudyView
from strategy_kit import pick
from tune_kit import STUDY, StudyPlay, World, folded, rule_of, spec_of, trials_of

RULES = pytest.mark.parametrize("rule", list(STOPPING))
NEED_A_JOB = ("pbt",)  # and say so where somebody outside runs the trials
ORDERLY = [name for name in STOPPING if STOPPING.get(name).ANY_ORDER]


def value_of(option: Option) -> st.SearchStrategy[Any]:
    """Values of an option, small ones of numbers: the programs here report some ten times."""
    if option.kind == "choice":
        return st.sampled_from(list(option.choices))
    if option.kind == "flag":
        return st.booleans()
    if option.kind == "text":
        names = list(option.choices)
        return st.builds("{} {} {}".format, pick(*names), pick("<", ">"), pick(*names, "0.5", "3"))
    low = option.least if option.least is not None else 0
    high = min(low + 10, option.most) if option.most is not None else low + 10
    numbers = st.integers(int(low), int(high)) if option.kind == "integer" else st.floats(low, high)
    return st.just(option.default) | numbers if option.default is not None else st.none() | numbers


@st.composite
def options(draw: st.DrawFn, rule: str, **spec: Any) -> dict[str, Any]:
    some = [one for one in STOPPING.get(rule).OPTIONS if one.kind == "text" or draw(st.booleans())]
    given = {one.name: draw(value_of(one)) for one in some}
    try:
        rule_of(spec_of(rule, options=given, **spec))
    except InvalidValue:  # options that contradict each other are refused, with what to do
        assume(False)
    return given


worlds = st.builds(
    World,
    seed=st.integers(0, 10_000),
    length=pick(1, 3, 9, 14),
    fails=pick(0.0, 0.05, 0.4),
    lost=pick(0.0, 0.05, 0.4),
    by_hand=pick(0.0, 0.05),
    diverges=pick(0.0, 0.05),
    stubborn=pick(0.0, 0.5),
    leaves=pick(0.1, 5.0),
)


@st.composite
def plays(draw: st.DrawFn, rule: str, **given: Any) -> StudyPlay:
    job = {"run": "true"} if rule in NEED_A_JOB or draw(st.integers(0, 3)) else None
    spec = spec_of(
        rule,
        draw(st.sampled_from(list(SEARCHERS))),
        job=job,
        options=draw(options(rule, job=job)),
        trials=draw(pick(1, 4, 9, 20)),
        parallel=draw(pick(1, 2, 5, 30)),
        confirm=draw(pick(None, Confirm(2, 2))),
        enqueue=({"lr": 0.01, "depth": 4, "model": "plain"},) * draw(pick(0, 0, 1)),
    )
    stop_at = draw(pick(None, None, 0.5, 9.0))
    resume_at = draw(pick(None, 9.1, 40.0)) if stop_at is not None else None
    return StudyPlay(spec, draw(worlds), draw(st.integers(0, 9)), stop_at=stop_at, resume_at=resume_at, **given)


@RULES
@given(data=st.data())
def test_every_study_comes_to_its_end_and_every_trial_too(rule: str, data: st.DataObject) -> None:
    """`StudyPlay` checks each decision: only what is paused is promoted, only what runs leaves, and a round that is cut
    off after any of its decisions goes on with the others."""
    play = data.draw(plays(rule, check=True)).run()
    spec, trials = play.spec, play.trials.values()
    assert spec.trials is not None
    searched = [one for one in trials if one.origin in ("search", "enqueued") and one.replaces is None]
    assert len(searched) <= spec.trials
    stopped = play.stop_at is not None and play.resume_at is None
    if not stopped:
        assert len(searched) == spec.trials
    replaced = [one.replaces for one in trials if one.replaces is not None]
    assert len(replaced) == len(set(replaced))
    leaving = [one.data for one in play.log if isinstance(one.data, TrialLeaving)]
    told_to_go = {one.number for one in leaving if one.outcome == "replaced"}
    for trial in trials:
        if trial.replaces is not None and trial.replaces not in told_to_go:
            assert play.trials[trial.replaces].outcome == "lost"
        if trial.note.startswith("the study is over"):
            assert (trial.outcome, trial.values) == ("stopped", trial.rungs[-1].values)
    confirmed = {(one.of, one.seed) for one in trials if one.origin == "confirm"}
    complete = [one for one in trials if one.outcome == "complete" and one.origin != "confirm"]
    if spec.confirm is not None and not stopped:
        assert len(confirmed) == 2 * min(len({str(one.params) for one in complete}), 2)


@RULES
@given(data=st.data())
def test_a_study_that_is_killed_at_every_event_decides_as_one_that_is_not(rule: str, data: st.DataObject) -> None:
    play = data.draw(plays(rule))
    again = replace(play, rebuild=True)
    assert [(one.time, one.data) for one in play.run().log] == [(one.time, one.data) for one in again.run().log]


@RULES
@given(data=st.data())
@settings(max_examples=8)
def test_a_rule_that_has_seen_other_views_decides_as_a_new_one(rule: str, data: st.DataObject) -> None:
    """Also when it is asked about the past, and about another study."""
    play, other = data.draw(plays(rule)).run(), data.draw(plays(rule)).run()
    used = rule_of(play.spec)
    other.spec = play.spec
    views = [view_at(one, len(one.log) * part // 7) for one in (play, other) for part in range(1, 8)]
    for view in Random(play.seed).sample(views * 2, len(views) * 2):
        new = rule_of(play.spec)
        assert used.promote(view) == new.promote(view)
        assert used.may_ask(view) == new.may_ask(view)
        assert used.bracket(view, len(view.trials)) == new.bracket(view, len(view.trials))
        for trial in view.trials.values():
            if trial.phase == "running" and trial.rungs:
                assert used.verdict(view, trial) == new.verdict(view, trial)


@pytest.mark.parametrize("rule", ORDERLY)
@given(data=st.data())
def test_who_goes_on_does_not_depend_on_who_is_first(rule: str, data: st.DataObject) -> None:
    given = data.draw(options(rule))
    spec = spec_of(rule, options=given, trials=data.draw(pick(4, 9, 27)), parallel=data.draw(pick(1, 4)))
    seeds, lengths = st.integers(0, 10_000), pick(3, 9, 14)
    leaves = data.draw(pick(0.1, 5.0))
    world = World(data.draw(seeds), data.draw(lengths), diverges=data.draw(pick(0.0, 0.02)), leaves=leaves)
    ends = [StudyPlay(spec, replace(world, pace=data.draw(seeds))).run().outcomes for _ in range(2)]
    assert ends[0] == ends[1]


@pytest.mark.parametrize("search", list(SEARCHERS))
@RULES
def test_any_searcher_with_any_rule(rule: str, search: str) -> None:
    given = {one.name: "value > 2 * best" for one in STOPPING.get(rule).OPTIONS if one.kind == "text"}
    world = World(7, 9, fails=0.05, lost=0.05, by_hand=0.02, diverges=0.02, stubborn=0.3)
    play = StudyPlay(spec_of(rule, search, options=given, trials=16), world, seed=3).run()
    assert play.finished is not None
    assert play.finished.summary["best"]


@RULES
@given(data=st.data())
def test_levels_ascend_and_rungs_too(rule: str, data: st.DataObject) -> None:
    found = rule_of(spec_of(rule, options=data.draw(options(rule))))
    trial = Trial(STUDY, 0, {}, bracket=data.draw(pick(0, 1)))
    assert found.next_level(replace(trial, origin="confirm")) is None
    rung = found.rung_of(trial)
    for _ in range(8):
        if (level := found.next_level(trial)) is None:
            break
        assert level > (trial.rungs[-1].level if trial.rungs else 0)
        assert level == int(level)
        trial = replace(trial, rungs=(*trial.rungs, Rung(level, int(level), (0.5,))), step=int(level))
        assert found.rung_of(trial) in (rung, rung + 1)
        rung = found.rung_of(trial)


@RULES
def test_a_rule_says_what_it_is(rule: str) -> None:
    found = STOPPING.get(rule)
    assert rule == found.NAME
    assert found.DESCRIPTION
    assert not found.DESCRIPTION.endswith(".")
    assert len({one.name for one in found.OPTIONS}) == len(found.OPTIONS)
    assert all(one.words for one in found.OPTIONS)


def view_at(play: StudyPlay, count: int) -> StudyView:
    """The study after so many events."""
    state = folded(play.log[:count])
    return StudyView(STUDY, play.spec, play.seed, trials_of(state, STUDY), changes=count, closed=count % 2 == 0)
