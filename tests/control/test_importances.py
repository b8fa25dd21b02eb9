"""The importance of a study's parameters is computed anew when its trials are others, and of many not at each."""

from __future__ import annotations

from dataclasses import replace
from threading import Barrier, Thread

import pytest

from muster.control.studies import importances
from muster.control.studies.importances import MANY, Importances
from muster.tune.importance import importance
from study_report_kit import SMALL, StudyLog, many


def grown(log: StudyLog, to: int) -> None:
    for trial in range(len(log.trials), to):
        log.start(trial, SMALL.at([trial * 0.7548 % 1, 0.1, 0.2]))
        log.end(trial, "complete", [float(trial)])


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many trials each study had that the importance was computed of."""
    found: list[int] = []

    def counted(view: importances.StudyView) -> dict[str, float]:
        found.append(len(view.trials))
        return {"x": 1.0 / len(view.trials)}

    monkeypatch.setattr(importances, "importance", counted)
    return found


def test_it_is_the_importance() -> None:
    view, remembered = many(60).view(), Importances()
    assert remembered.of(view) == importance(view) != {}
    assert remembered.of(view) is remembered.of(view)


def test_of_few_trials_each_counts(asked: list[int]) -> None:
    log, remembered = many(20), Importances()
    assert remembered.of(log.view()) is remembered.of(log.view())
    grown(log, 21)
    assert remembered.of(log.view()) == {"x": 1 / 21}
    assert asked == [20, 21]


def test_of_many_trials_a_few_more_do_not_count(asked: list[int]) -> None:
    log, remembered = many(MANY), Importances()
    remembered.of(log.view())
    grown(log, MANY + MANY // 100)
    assert remembered.of(log.view()) == {"x": 1 / MANY}
    grown(log, MANY + MANY // 20)
    assert remembered.of(log.view()) == {"x": 1 / (MANY + MANY // 20)}
    assert asked == [MANY, MANY + MANY // 20]


def test_another_space_has_another_importance(asked: list[int]) -> None:
    view, remembered = many(MANY).view(), Importances()
    remembered.of(view)
    other = replace(view.spec, space=replace(SMALL, parameters=SMALL.parameters[:2]))
    remembered.of(replace(view, spec=other))
    assert len(asked) == 2


def test_those_who_ask_at_once_wait_for_one_answer(asked: list[int]) -> None:
    view, remembered, begin = many(30).view(), Importances(), Barrier(4)

    def ask() -> None:
        begin.wait()
        remembered.of(view)

    threads = [Thread(target=ask) for _ in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert asked == [30]
