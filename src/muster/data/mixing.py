"""Counts the samples that each source has given before a step: exact, in O(sources), any weights, nothing stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate, pairwise
from math import lcm


@dataclass(frozen=True, slots=True)
class Line:
    """Sources side by side on a line. A count is the difference of two rounded ends, so its error is less than one.

    Counts never decrease from one step to the next if a batch holds at least one sample of the rarest source.
    """

    ends: tuple[int, ...]  # where each source ends; the last end is the sum of the weights

    def counts(self, given: int) -> list[int]:
        """How many of the first `given` samples come from each source."""
        borders = [0, *(given * end // self.ends[-1] for end in self.ends)]
        return [after - before for before, after in pairwise(borders)]

    def slack(self) -> float:
        """A bound: the error of every count is less than this."""
        return 1.0


@dataclass(frozen=True, slots=True)
class Tree:
    """Sources as leaves of a binary tree: each node splits its samples between its two sides by their weights.

    Counts never decrease at any sample, however rare a source is. Each split rounds to the nearest sample. So the error
    of a count is half a sample per level; the error of a higher level shrinks on the way down.
    """

    weight: int
    source: int = -1  # leaves only
    sides: tuple[Tree, Tree] | None = None

    def counts(self, given: int) -> list[int]:
        """How many of the first `given` samples come from each source."""
        found: dict[int, int] = {}
        waiting = [(self, given)]
        while waiting:
            node, count = waiting.pop()
            if node.sides is None:
                found[node.source] = count
                continue
            left = (2 * count * node.sides[0].weight + node.weight) // (2 * node.weight)
            waiting += [(node.sides[0], left), (node.sides[1], count - left)]
        return [found[source] for source in range(len(found))]

    def slack(self) -> float:
        """The maximum error of a count: less than one with up to four sources."""
        if self.sides is None:
            return 0.0
        return max(0.5 * float(sum(terms)) for side in self.sides for terms in _paths(side))


def mixing(weights: Sequence[float], batch: int) -> Line | Tree:
    """The mixing with the smaller error: a line if every batch holds every source, else a tree."""
    exact = [Fraction(float(weight)) for weight in weights]
    scale = lcm(*(weight.denominator for weight in exact))
    whole = [int(weight * scale) for weight in exact]
    if len(whole) > 2 and min(whole) * batch >= sum(whole):
        return Line(tuple(accumulate(whole)))
    return _tree(sorted(range(len(whole)), key=lambda source: (-whole[source], source)), whole)


def _tree(sources: list[int], weights: list[int]) -> Tree:
    """Builds the tree. Sources are sorted, heaviest first."""
    if len(sources) == 1:
        return Tree(weights[sources[0]], sources[0])
    left, right = (_tree(side, weights) for side in _halves(sources, weights))
    return Tree(left.weight + right.weight, sides=(left, right))


def _halves(sources: list[int], weights: list[int]) -> tuple[list[int], list[int]]:
    """Two sides of nearly the same weight. Four sources are split two and two: the error stays below one sample."""
    if len(sources) == 4:
        return [sources[0], sources[3]], [sources[1], sources[2]]
    left: list[int] = []
    right: list[int] = []
    ahead = 0  # how much heavier the left side is
    for source in sources:
        if ahead > 0:
            right.append(source)
            ahead -= weights[source]
        else:
            left.append(source)
            ahead += weights[source]
    return left, right


def _paths(node: Tree) -> list[list[Fraction]]:
    """For each leaf below: its weight divided by the weight of each node from the leaf up to this one."""
    if node.sides is None:
        return [[Fraction(1)]]
    below = ((side, terms) for side in node.sides for terms in _paths(side))
    return [[*terms, terms[-1] * side.weight / node.weight] for side, terms in below]
