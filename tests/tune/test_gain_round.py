"""A round of a study whose file says what its objective is worth ends it when another trial gains too little."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from muster.control.studies.round import Outside, Round, Runtime, Site
from muster.control.studies.snapshot import Money, Snapshot
from muster.control.studies.steps import Note
from muster.core.entities.study import Study as StudyEntity
from muster.core.entities.study import StudyEnded, StudyProgress, TrialStarted
from muster.core.payload import Payload
from muster.core.trial_map import TrialMap
from muster.tune.space import Parameter, Space
from muster.tune.spec import Plugin
from search_kit import Study, loss_of

LINE = Space((Parameter("x", "float", 0.0, 1.0), Parameter("y", "float", 0.0, 1.0)))
PRICE = 1_000_000  # of a trial


class _Nothing:
    """A site of a study whose trials somebody outside runs: nothing is asked of it."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"{name} of a study without jobs was asked for")


def events_of(study: Study, places: int = 1) -> Collection[Payload]:
    doc = study.spec.to_doc()
    entity = StudyEntity("study", "study", "default", "ada", doc, seed=study.seed)
    trials = TrialMap()
    for number, trial in study.trials.items():
        trials.put(number, trial)
    progress = StudyProgress(len(study.trials), len(study.trials))
    snapshot = Snapshot(
        entity, progress, trials, (), {}, (), alive=True, allowed=True,
        money=Money(0, 0, PRICE),
    )  # fmt: skip
    site = Site(*[_Nothing()] * 6)
    steps = Round(snapshot, Runtime.of(doc), site, (), 100.0, Outside(places=places)).decide()
    return [step.data for step in steps if isinstance(step, Note)]


def test_it_goes_on_while_another_trial_gains_more_than_it_costs_and_then_ends() -> None:
    study = Study(LINE, Plugin("auto"), worth=100 * PRICE)  # a hundredth is worth one trial
    study.run(12, lambda params: loss_of(LINE, params))
    kinds = []
    for _ in range(30):
        kinds = [type(one) for one in events_of(study)]
        if kinds != [TrialStarted]:
            break
        study.run(1)
    (ended,) = events_of(study)
    assert kinds == [StudyEnded]
    assert isinstance(ended, StudyEnded)
    assert "which is worth less than it costs" in str(ended.summary)
    assert 0 < min(loss_of(LINE, one.params) for one in study.trials.values()) < 0.01  # no more than that was left


def test_it_goes_on_if_a_little_is_worth_much() -> None:
    study = Study(LINE, Plugin("auto"), worth=10**9 * PRICE)
    study.run(20)
    assert [type(one) for one in events_of(study)] == [TrialStarted]


def test_without_a_worth_no_model_is_made() -> None:
    assert Runtime.of(Study(LINE, Plugin("auto")).spec.to_doc()).gain is None
