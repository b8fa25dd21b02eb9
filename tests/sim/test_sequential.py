"""The sequential test: what its evidence is, and that it errs as rarely as it says, whenever one looks."""

from __future__ import annotations

from fractions import Fraction
from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.sim.sequential import ERROR, Comparison, Pair, evidence

_COUNTS = st.integers(0, 40)


def integral(wins: int, losses: int) -> Fraction:
    """Of (1 + x)^w (1 - x)^l over x from 0 to 1, term by term."""
    total = Fraction(0)
    for a in range(wins + 1):
        for b in range(losses + 1):
            total += Fraction(comb(wins, a) * comb(losses, b) * (-1) ** b, a + b + 1)
    return total


@given(st.integers(0, 12), st.integers(0, 12))
def test_evidence_is_the_integral_that_the_text_says(wins, losses):
    assert evidence(wins, losses) == integral(wins, losses)


@given(_COUNTS, _COUNTS)
def test_a_fair_coin_neither_adds_nor_takes(wins, losses):
    """A martingale: one more world in which both are as likely leaves the expectation as it was."""
    assert (evidence(wins + 1, losses) + evidence(wins, losses + 1)) / 2 == evidence(wins, losses)
    assert evidence(0, 0) == 1


@pytest.mark.parametrize("others", [1, 4])
def test_policies_that_are_alike_are_told_apart_as_rarely_as_promised(others):
    """Exactly, over all sequences of 120 fair worlds: the chance that any look decides, for one pair and any side."""
    bar = Comparison(others).pairs[0].bar
    open_, wrong = {0: Fraction(1)}, Fraction(0)  # wins → probability, of sequences that are not decided yet
    for worlds in range(1, 121):
        following: dict[int, Fraction] = {}
        for wins, chance in open_.items():
            for more in (0, 1):
                following[wins + more] = following.get(wins + more, Fraction(0)) + chance / 2
        decided = [w for w in following if max(evidence(w, worlds - w), evidence(worlds - w, w)) >= bar]
        wrong += sum((following.pop(w) for w in decided), Fraction(0))
        open_ = following
    assert 0 < wrong <= Fraction(str(ERROR)) / others


def test_what_is_clear_is_decided_after_eight_worlds():
    comparison = Comparison(1)
    for world in range(1, 9):
        assert not comparison.decided
        comparison.add([100.0, 50.0 + world])
    assert comparison.decided
    assert comparison.pairs[0].verdict == "less"
    later = Comparison(1)
    for _ in range(8):
        later.add([100.0, 150.0])
    assert later.pairs[0].verdict == "more"


def test_more_policies_need_more_evidence():
    assert Comparison(5).pairs[0].bar == 5 * Comparison(1).pairs[0].bar == 200


def test_worlds_in_which_both_are_even_decide_nothing():
    comparison = Comparison(1)
    for _ in range(1000):
        comparison.add([3.0, 3.0])
    assert (comparison.decided, comparison.pairs[0].even, comparison.pairs[0].strongest) == (False, 1000, 1)


def test_a_verdict_stays():
    pair = Pair(Fraction(40))
    for mine in [1.0] * 8 + [3.0] * 8:
        pair.add(mine, 2.0)
    assert (pair.less, pair.more, pair.verdict) == (8, 8, "less")


def test_one_policy_alone_has_nothing_to_decide():
    comparison = Comparison(0)
    comparison.add([1.0])
    assert not comparison.decided
