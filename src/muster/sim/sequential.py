"""Whether a comparison over worlds is decided: a test that may be looked at after every world.

One policy against another: each world counts as won, lost or even, by one figure (mean completion unless said). Worlds
are drawn independently, so if the one were the better in at most half of the worlds that are not even, then

    e(w, l) = integral of (1 + x)^w (1 - x)^l over x from 0 to 1

after w wins and l losses has an expectation of at most 1, whenever one stops to look (it is a mixture of test
martingales), and exceeds 1/a at any time with a probability of at most a (Ville's inequality). Nothing is assumed of
how large differences are, or of how they are distributed. Both directions and all pairs share the error.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import comb
from typing import Final, Literal

ERROR: Final = 0.05  # of any wrong decision in a whole comparison
Verdict = Literal["less", "more", "open"]


def evidence(wins: int, losses: int) -> Fraction:
    """e(w, l): how much the bets on "wins in more than half of the worlds" would have made of 1."""
    worlds = wins + losses
    below = sum(comb(worlds + 1, k) for k in range(wins + 1))
    return Fraction(below, (worlds + 1) * comb(worlds, wins))


@dataclass(slots=True)
class Pair:
    """One policy against the first, over the worlds so far."""

    bar: Fraction  # of the evidence
    less: int = 0  # worlds in which its figure was less
    more: int = 0
    even: int = 0
    verdict: Verdict = "open"

    def add(self, mine: float, first: float) -> None:
        """The figures of one world. A verdict stays: evidence counts at the first time that it suffices."""
        if mine < first:
            self.less += 1
        elif mine > first:
            self.more += 1
        else:
            self.even += 1
        if self.verdict == "open":
            if evidence(self.less, self.more) >= self.bar:
                self.verdict = "less"
            elif evidence(self.more, self.less) >= self.bar:
                self.verdict = "more"

    @property
    def strongest(self) -> Fraction:
        return max(evidence(self.less, self.more), evidence(self.more, self.less))


class Comparison:
    """Several policies against the first of them."""

    def __init__(self, others: int, error: float = ERROR) -> None:
        bar = 2 * max(others, 1) / Fraction(str(error))
        self.pairs = [Pair(bar) for _ in range(others)]
        self.worlds = 0

    def add(self, figures: Sequence[float]) -> None:
        """The figure of each policy in one world, the first policy's first."""
        self.worlds += 1
        for pair, mine in zip(self.pairs, figures[1:], strict=True):
            pair.add(mine, figures[0])

    @property
    def decided(self) -> bool:
        return bool(self.pairs) and all(pair.verdict != "open" for pair in self.pairs)
