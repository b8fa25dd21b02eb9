"""How a worker's ranks are brought down: who is asked by the flag, who is told by SIGTERM, and when SIGKILL comes."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from muster import wire

FAILURE_GRACE: Final = 5.0  # seconds that the others get when one rank has failed
ASKED_SHARE: Final = 0.8  # of the grace: how long a rank that reports may take to leave by the flag alone
KILL_AGAIN: Final = 1.0  # seconds


@dataclass(slots=True)
class Ending:
    """Why a worker is coming down, and what is still to be sent. Times are monotonic."""

    outcome: wire.Outcome
    reason: str  # "" until the output of the rank that failed is all there and can be judged
    detail: str
    term_at: dict[int, float]  # by rank, those that were not told yet
    kill_at: float
    ranks: frozenset[int] = frozenset()  # those that have time to leave by themselves
    rank: int | None = None  # the one that failed first
    oom_killed: bool = False
    forced: bool = False  # SIGKILL was sent

    def due(self, now: float) -> tuple[list[int], bool]:
        """The ranks that get SIGTERM now, and whether all get SIGKILL."""
        told = [rank for rank, at in self.term_at.items() if at <= now]
        for rank in told:
            del self.term_at[rank]
        kill = now >= self.kill_at
        if kill:
            self.forced = True
            self.kill_at = now + KILL_AGAIN
        return told, kill

    def next_at(self) -> float:
        return min([self.kill_at, *self.term_at.values()])

    def hasten(self, other: Ending) -> None:
        """A later order may bring the end forward; the first cause stands, and nothing puts the end off."""
        self.kill_at = min(self.kill_at, other.kill_at)
        for rank, at in self.term_at.items():
            self.term_at[rank] = min(at, other.term_at.get(rank, other.kill_at))


def stopping(
    now: float,
    grace: float,
    ranks: Collection[int],
    reporting: Collection[int],
    outcome: wire.Outcome,
    reason: str,
    detail: str,
) -> Ending:
    """A rank that reports can see the flag, so it may save in peace; a plain program hears SIGTERM at once."""
    later = now + grace * ASKED_SHARE
    term_at = {rank: later if rank in reporting else now for rank in ranks}
    return Ending(outcome, reason, detail, term_at, now + grace, frozenset(ranks))


def failing(now: float, ranks: Collection[int], rank: int, oom_killed: bool) -> Ending:
    """One rank failed, and these still live: a gang is whole or it is nothing."""
    return Ending("failed", "", "", dict.fromkeys(ranks, now), now + FAILURE_GRACE, frozenset(ranks), rank, oom_killed)


def forcing(now: float, outcome: wire.Outcome, reason: str, detail: str) -> Ending:
    """No grace at all."""
    return Ending(outcome, reason, detail, {}, now)
