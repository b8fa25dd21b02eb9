"""Cheap answers are always new; expensive ones are kept for a while, and computed once for all who ask."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from muster.server.kept_answers import LONGEST, MOST, TIMES, KeptAnswers


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_what_took_long_is_kept_as_long_many_times_over() -> None:
    clock, made = Clock(), list[int]()
    kept = KeptAnswers[int](clock)

    def make(seconds: float) -> int:
        clock.now += seconds
        made.append(len(made))
        return made[-1]

    assert [kept.get("cheap", lambda: make(0.1)) for _ in range(2)] == [0, 1]
    assert [kept.get("dear", lambda: make(2.0)) for _ in range(3)] == [2, 2, 2]
    clock.now += 2.0 * TIMES
    assert kept.get("dear", lambda: make(0.1)) == 3
    assert kept.get("dear", lambda: make(LONGEST)) == 4  # it was cheap the last time
    clock.now += LONGEST
    assert kept.get("dear", lambda: make(2.0)) == 5
    for number in range(MOST):
        kept.get(number, lambda: make(2.0))
    assert kept.get("dear", lambda: make(0.0)) == 6 + MOST


def test_a_failure_is_not_kept() -> None:
    kept = KeptAnswers[int](Clock())
    with pytest.raises(ZeroDivisionError):
        kept.get("a", lambda: 1 // 0)
    assert kept.get("a", lambda: 1) == 1


def test_all_who_ask_for_what_is_known_to_be_expensive_wait_for_one_answer() -> None:
    clock, begun, go, made = Clock(), threading.Event(), threading.Event(), list[str]()
    kept = KeptAnswers[str](clock)

    def make(word: str) -> str:
        made.append(word)
        begun.set()
        assert go.wait(60)
        clock.now += 2.0
        return word

    go.set()
    kept.get("a", lambda: make("old"))
    clock.now += 2.0 * TIMES
    go.clear()
    begun.clear()
    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(kept.get, "a", lambda: make("new"))
        assert begun.wait(60)
        others = [pool.submit(kept.get, "a", lambda: make("never")) for _ in range(3)]
        go.set()
        assert {one.result(60) for one in (first, *others)} == {"new"}
    assert made == ["old", "new"]
