"""What every searcher keeps: points of the space, no point twice, the same from any instance, nothing forgotten."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from muster.tune.plugin import with_defaults
from muster.tune.searchers import SEARCHERS
from muster.tune.space import Parameter, Space, key_of
from muster.tune.spec import Plugin
from muster.tune.view import Prior
from search_kit import ENDS, MIXED, Study, loss_of, spaces

SLOWER = ("tpe", "evolution", "auto", "gp")
seldom = settings(deadline=None, max_examples=6, suppress_health_check=list(HealthCheck))
some = settings(deadline=None, max_examples=20, suppress_health_check=list(HealthCheck))
ends = st.lists(st.sampled_from(ENDS), min_size=24, max_size=24)
searches = [*([name] for name in sorted(SEARCHERS)), ["tpe", "gp", "sobol"]]
every = pytest.mark.parametrize("search", searches, ids="+".join)


def plugins(search: list[str]) -> list[Plugin]:
    return [Plugin(name, {"start": 4} if name in ("tpe", "gp") else {}) for name in search]


@pytest.mark.parametrize("name", sorted(SEARCHERS))
def test_it_says_what_it_is(name: str) -> None:
    searcher = SEARCHERS.get(name)
    assert name == searcher.NAME
    assert searcher.DESCRIPTION[0].islower()
    assert searcher.DESCRIPTION[-1] != "."
    assert searcher.OBJECTIVES >= 1
    for option in searcher.OPTIONS:
        assert option.least is None or option.least <= option.default
        assert option.most is None or option.default <= option.most
    assert with_defaults(searcher, {}).keys() == {one.name for one in searcher.OPTIONS}


@every
@seldom
@given(space=spaces(), how=ends, behind=st.integers(0, 5), seed=st.integers(0, 2**62))
def test_one_that_is_made_anew_suggests_the_same(search: list[str], space: Space, how, behind: int, seed: int) -> None:
    """Whatever became of the trials, in whatever order they ended."""
    study = Study(space, *plugins(search), seed=seed)
    for number in range(16):
        view = study.view()
        found = study.ask()
        if number % 4 == 3:
            assert study.fresh().ask(view, number) == found
        if found is None:
            break
        assert space.fits(found.params)
        assert found.by in search
        over = number - behind if number % 3 else number
        if over >= 0 and study.trials[over].phase == "running":
            study.end(over, how[number])
    restarted = replace(study.view(), trials={number: replace(trial) for number, trial in study.trials.items()})
    number = len(study.trials)
    assert study.searcher.ask(study.view(), number) == study.searcher.ask(restarted, number)


@every
@seldom
@given(space=spaces(counted=True, most=2), replicates=st.integers(1, 2), behind=st.integers(0, 3))
def test_no_point_is_tried_more_often_than_it_may_be(
    search: list[str], space: Space, replicates: int, behind: int
) -> None:
    study = Study(space, *plugins(search), replicates=replicates)
    assert space.size is not None
    for number in range(space.size * replicates):
        assert study.ask() is not None
        if number >= behind:
            study.end(number - behind)
    assert study.ask() is None
    tried = Counter(key_of(trial.params) for trial in study.trials.values())
    assert set(tried.values()) == {replicates}
    last = study.trials[len(study.trials) - 1]
    study.trials[last.number] = replace(last, phase="ended", outcome="lost", values=None, ended_at=100.0)
    again = study.searcher.ask(study.view(), len(study.trials))
    assert again is not None
    assert again.params == last.params


@every
@pytest.mark.parametrize("known", [0, 12])
def test_many_that_are_asked_for_at_once_are_different(search: list[str], known: int) -> None:
    """64 without a result between them."""
    study = Study(MIXED, *plugins(search))
    study.run(known)
    for _ in range(64):
        assert study.ask() is not None
    asked = [study.trials[number].params for number in range(known, known + 64)]
    assert len({key_of(params) for params in asked}) == 64
    if search != ["grid"] and not known:
        places = [MIXED.by_name["lr"].place(params["lr"]) for params in asked]
        assert all(sum(low <= place < low + 0.25 for place in places) >= 4 for low in (0.0, 0.25, 0.5, 0.75))


@every
@some
@given(how=ends)
def test_no_end_of_a_trial_stops_the_search(search: list[str], how) -> None:
    if set(search) & set(SLOWER):
        how = how[::3]
    study = Study(MIXED, *plugins(search), constraints=("memory < 1",))
    for number, end in enumerate(how):
        found = study.ask()
        assert found is not None
        assert MIXED.fits(found.params)
        study.end(number, end, loss=math.inf if number == 3 else None)


@every
def test_points_of_elsewhere_may_be_of_another_space(search: list[str]) -> None:
    study = Study(MIXED, *plugins(search))
    outside = {"lr": 7.0, "model": "none"}
    inside = MIXED.at([0.5] * 6)
    study.prior = (Prior(outside, (0.1,)), Prior(inside, (0.3,)), Prior(inside, (math.nan,)))
    for number in range(12):
        assert study.ask() is not None
        study.end(number)


@pytest.mark.parametrize("name", [name for name in sorted(SEARCHERS) if name not in ("cmaes", "grid")])
def test_several_objectives(name: str) -> None:
    """Half of the trials that follow are on the front, or near it: where the objectives pull apart."""
    line = Space((Parameter("x", "float", 0.0, 1.0), Parameter("y", "float", 0.0, 1.0)))
    study = Study(line, Plugin(name, {"population": 8} if name == "evolution" else {}), objectives=2)
    for number in range(40):
        found = study.ask()
        assert found is not None
        off = float(found.params["y"]) ** 2
        values = (float(found.params["x"]) + off, 1 - float(found.params["x"]) + off)
        trial = study.trials[number]
        study.trials[number] = replace(trial, phase="ended", outcome="complete", values=values, ended_at=float(number))
    if name in ("auto", "gp", "tpe", "evolution"):
        late = [float(study.trials[number].params["y"]) for number in range(24, 40)]
        assert sorted(late)[len(late) // 2] < 0.35


# One example for each.


def test_a_grid_goes_through_every_combination_in_order() -> None:
    space = Space((Parameter("lr", "float", 0.0, 1.0), Parameter("model", "choice", choices=("deep", "wide"))))
    study = Study(space, Plugin("grid", {"levels": 3}))
    found = [study.ask() for _ in range(7)]
    assert [one and (one.params["lr"], one.params["model"]) for one in found] == [
        (0.0, "deep"), (0.0, "wide"), (0.5, "deep"), (0.5, "wide"), (1.0, "deep"), (1.0, "wide"), None,
    ]  # fmt: skip


def test_random_points_are_everywhere() -> None:
    space = Space((Parameter("x", "float", 0.0, 1.0),))
    study = Study(space, Plugin("random"))
    study.run(200)
    places = [float(trial.params["x"]) for trial in study.trials.values()]
    assert min(places) < 0.05
    assert max(places) > 0.95
    assert 0.4 < sum(places) / 200 < 0.6


def test_sobol_points_leave_no_part_of_the_space_out() -> None:
    """32 of them: one in each 32nd of every parameter."""
    study = Study(Space(tuple(Parameter(f"x{index}", "float", 0.0, 1.0) for index in range(5))), Plugin("sobol"))
    study.run(32)
    for index in range(5):
        assert len({int(32 * float(trial.params[f"x{index}"])) for trial in study.trials.values()}) == 32


BOWL = Space(tuple(Parameter(f"x{index}", "float", 0.0, 1.0) for index in range(3)))


@pytest.mark.parametrize(
    ("name", "trials", "reached"),
    [("auto", 25, 0.002), ("gp", 25, 0.002), ("tpe", 60, 0.02), ("cmaes", 150, 0.002), ("evolution", 150, 0.02)],
)  # fmt: skip
def test_it_finds_the_bottom_of_a_bowl(name: str, trials: int, reached: float) -> None:
    """Which as many random points don't."""
    best = [Study(BOWL, Plugin(name), seed=seed).run(trials) for seed in range(3)]
    drawn = [Study(BOWL, Plugin("random"), seed=seed).run(trials) for seed in range(3)]
    assert sorted(best)[1] < reached
    assert sorted(best)[1] < sorted(drawn)[1]


@pytest.mark.parametrize("name", ["auto", "gp", "tpe"])
def test_what_was_learnt_elsewhere_counts(name: str) -> None:
    """The first points are around the best of those from elsewhere."""
    known = Study(BOWL, Plugin("sobol"))
    known.run(40)
    study = Study(BOWL, Plugin(name))
    study.prior = tuple(Prior(one.params, one.values) for one in known.trials.values() if one.values)
    assert study.run(5) < 0.5 * sorted(one.values[0] for one in study.prior)[10]
    assert sum(loss_of(BOWL, trial.params) for trial in study.trials.values()) / 5 < 0.15


@pytest.mark.parametrize("name", ["auto", "gp", "tpe"])
def test_what_is_refused_is_not_tried_again_nearby(name: str) -> None:
    """Half of the space does not fit into memory, and the bottom of the bowl is in it."""
    study = Study(BOWL, Plugin(name), constraints=("memory < 1",))
    for number in range(40):
        found = study.ask()
        assert found is not None
        study.end(number, "infeasible" if float(found.params["x0"]) < 0.5 else "complete")
    late = [float(study.trials[number].params["x0"]) for number in range(20, 40)]
    assert sum(place < 0.45 for place in late) <= 6


def test_auto_prefers_cheap_trials_that_are_as_good() -> None:
    """Whatever `size` is, the loss is the same, and the time a hundred times as long."""
    space = Space((Parameter("x", "float", 0.0, 1.0), Parameter("size", "float", 0.0, 1.0)))
    study = Study(space, Plugin("auto"))
    for number in range(30):
        found = study.ask()
        assert found is not None
        x, size = float(found.params["x"]), float(found.params["size"])
        study.end(number, loss=(x - 0.3) ** 2, seconds=100**size)
    assert sum(float(study.trials[number].params["size"]) for number in range(15, 30)) / 15 < 0.25


def test_trials_that_were_stopped_tell_the_model_where_not_to_go() -> None:
    """Nothing has ended, and the rungs alone say which points are good."""
    study = Study(BOWL, Plugin("auto"))
    for number in range(30):
        assert study.ask() is not None
        study.end(number, "stopped")
    assert min(loss_of(BOWL, study.trials[number].params) for number in range(30)) < 0.005


def test_a_portfolio_takes_turns_and_passes_over_who_has_nothing_left() -> None:
    space = Space((Parameter("x", "float", 0.0, 1.0),))
    study = Study(space, Plugin("grid", {"levels": 2}), Plugin("random"))
    assert [found.by for _ in range(6) if (found := study.ask())] == ["grid", "random", "grid"] + ["random"] * 3
