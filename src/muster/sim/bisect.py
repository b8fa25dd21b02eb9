"""The least size that is good enough, where more is better as a rule: by doubling, then by cutting what is left."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

Evaluate = Callable[[Sequence[int]], Sequence[bool]]  # of each size, whether it is good enough


@dataclass(slots=True)
class Found:
    """`least` and its neighbours were tried; None: not even `high` is good enough."""

    least: int | None
    tried: dict[int, bool] = field(default_factory=dict)

    @property
    def is_monotone(self) -> bool:
        """Whether, of all that was tried, no larger size was worse than a smaller one."""
        good = [size for size, met in self.tried.items() if met]
        return not good or all(met for size, met in self.tried.items() if size > min(good))


def least(evaluate: Evaluate, start: int, low: int, high: int, width: int = 1) -> Found:
    """The least size from `low` to `high` that is good, and below one that is not.

    Schedules are not strictly monotone: one node more can make one job later. So the neighbour above is tried as well;
    if it is not good, the search goes on above it. `width` sizes are tried at once.
    """
    found = Found(None)

    def look(sizes: Sequence[int]) -> None:
        new = [size for size in dict.fromkeys(sizes) if size not in found.tried]
        found.tried.update(zip(new, evaluate(new), strict=True))

    below, start = low - 1, max(low, min(start, high))  # `below` is not good, or not allowed
    while True:
        above = _bracket(look, found.tried, below, max(start, below + 1), high, width)
        if above is None:
            return found
        below, above = _cut(look, found.tried, below, above, width)
        look([above + 1] if above < high else [])
        if above >= high or found.tried[above + 1]:
            found.least = above
            return found
        below = start = above + 1


def _bracket(
    look: Callable[[Sequence[int]], None], tried: dict[int, bool], below: int, start: int, high: int, width: int
) -> int | None:
    """The least good size that is known above `below`; larger and larger ones are tried until there is one."""
    size = start
    while True:
        known = [one for one, met in tried.items() if met and one > below]
        if known:
            return min(known)
        if size > high and tried.get(high) is False:
            return None
        sizes = [min(high, max(size, 1) * 2**step) for step in range(width)]
        look(sizes)
        size = sizes[-1] + 1 if sizes[-1] >= high else sizes[-1] * 2 or 1


def _cut(
    look: Callable[[Sequence[int]], None], tried: dict[int, bool], below: int, above: int, width: int
) -> tuple[int, int]:
    """Neighbours between `below` and `above`, of which the upper one alone is good."""
    while True:
        below = max([below, *(size for size, met in tried.items() if not met and below < size < above)])
        if above - below <= 1:
            return below, above
        parts = min(width + 1, above - below)
        look([below + (above - below) * part // parts for part in range(1, parts)])
        above = min(size for size, met in tried.items() if met and size > below)
