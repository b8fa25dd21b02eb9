"""Answers about studies that are over are computed once, and anew after anything was changed."""

from __future__ import annotations

from dataclasses import replace
from itertools import count

from muster.control.studies.ended_answers import MANY, EndedAnswers
from muster.control.studies.look import Seen
from muster.core.entities.study import Study, StudyProgress, Trial

OVER = Seen(
    Study("wide-1", "wide", "default", "ada", {}, "", 1, 0.0, ended_at=100.0), StudyProgress(changes=7),
    {number: Trial("wide-1", number, {}) for number in range(MANY)}, {}, "USD",
)  # fmt: skip
LATER = 1000.0


def test_it_is_computed_once_for_each_question_and_each_change() -> None:
    answers, made = EndedAnswers(), count()
    for _ in range(3):
        assert answers.of(OVER, LATER, "status", lambda: next(made)) == 0
        assert answers.of(OVER, LATER, "report", lambda: next(made)) == 1
    changed = replace(OVER, progress=StudyProgress(changes=8))
    assert answers.of(changed, LATER, "status", lambda: next(made)) == 2


def test_what_may_still_change_is_computed_each_time() -> None:
    answers, made = EndedAnswers(), count()
    going = replace(OVER, study=replace(OVER.study, ended_at=None))
    small = replace(OVER, trials={0: OVER.trials[0]})
    for seen, now in ((going, LATER), (small, LATER), (OVER, 130.0)):
        first, second = (answers.of(seen, now, "status", lambda: next(made)) for _ in range(2))
        assert second == first + 1
