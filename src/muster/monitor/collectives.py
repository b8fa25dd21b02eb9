"""Which ranks are behind in their collectives, by how many each has begun in its process groups. Pure functions.

All ranks of a process group begin the same collectives in the same order. So a rank with a lower count than another one
of the group has not come to a collective in which the others wait for it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from muster.monitor.activity import RankActivity

FEW: Final = 16  # collectives by which a rank may always be behind
SHARE: Final = 0.25  # of all that were begun: no rank is behind by more
STEPS: Final = 2.0  # nor by more than those of so many steps


def late_ranks(ranks: Sequence[RankActivity]) -> dict[int, int]:
    """The ranks that the others wait for, each with how many collectives it is behind; none if no rank stands out.

    A rank that is behind in one group and ahead in another waits itself.
    """
    known = [one for one in ranks if one.no_collective is not None]
    steps = max((one.steps * one.stride for one in ranks), default=0)
    behind: dict[int, int] = {}
    ahead: set[int] = set()
    for group in sorted({name for one in known for name in one.collectives}):
        counts = {one.rank: one.collectives[group] for one in known if group in one.collectives}
        high, low = max(counts.values()), min(counts.values())
        if 0 < high - low <= _most(high, steps):
            ahead |= {rank for rank, count in counts.items() if count > low}
            behind |= {rank: max(behind.get(rank, 0), high - low) for rank, count in counts.items() if count == low}
    return {rank: lag for rank, lag in behind.items() if rank not in ahead}


def quiet(ranks: Sequence[RankActivity]) -> float:
    """Seconds since any of these ranks began a collective; infinite if that is known of none."""
    return min((one.no_collective for one in ranks if one.no_collective is not None), default=math.inf)


def waiters(ranks: Sequence[RankActivity], limit: float) -> list[RankActivity]:
    """The ranks that have been for so long in a collective which others have not begun. Some libraries use the CPU
    while they wait."""
    late = late_ranks(ranks)
    counted = [one for one in ranks if one.no_collective is not None and one.no_collective >= limit]
    return [one for one in counted if late and one.rank not in late]


def _most(high: int, steps: int) -> float:
    """How many collectives a rank may be behind. Backends that also count what two ranks send each other, as in a
    pipeline, have counts that grow apart: they say nothing."""
    most = max(FEW, SHARE * high)
    return min(most, FEW + STEPS * high / steps) if steps else most
