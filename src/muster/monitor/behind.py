"""Which ranks of a gang that hangs the others wait for: none, if nothing tells them apart. Pure functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from muster.monitor.activity import RankActivity
from muster.monitor.collectives import late_ranks

# Where a process sleeps that waits for its own sake; one that waits for others is in a socket, a poll or a lock.
_OWN_WAITS: Final = ("nanosleep", "pipe_", "pause", "wait_on_page", "folio_wait", "io_schedule", "do_wait")
_OWN: Final = "waits for itself"


def ranks_behind(ranks: Sequence[RankActivity], idle: Sequence[RankActivity]) -> list[RankActivity]:
    """The ranks that the others wait for; none if nothing tells them apart."""
    every = len(ranks)
    furthest = max((one.step for one in ranks if one.step is not None), default=None)
    if furthest is not None:
        late = [one for one in ranks if one.step is not None and furthest - one.step >= one.stride]
        if late and len(late) < every:
            last = min(one.step for one in late if one.step is not None)
            return [one for one in late if one.step == last]
    uncollected = late_ranks(ranks)
    for found in (
        [one for one in ranks if one.stopped],
        [one for one in ranks if one.rank in uncollected],
        [one for one in ranks if one.blocked],
        list(idle),
        [one for one in ranks if not one.spinning and any(other.spinning for other in ranks)],
        [one for one in ranks if _place(one) == _OWN],
        _minority(ranks),
    ):
        if 0 < len(found) < every:
            return found
    return list(ranks) if every == 1 else []


def _place(one: RankActivity) -> str:
    place = one.pulse.waits_in if one.pulse is not None else ""
    return _OWN if any(word in place for word in _OWN_WAITS) else place


def _minority(ranks: Sequence[RankActivity]) -> list[RankActivity]:
    """Ranks that sleep elsewhere than most."""
    count = Counter(_place(one) for one in ranks)
    place, most = count.most_common(1)[0]
    return [one for one in ranks if _place(one) != place] if 2 * most > len(ranks) else []
