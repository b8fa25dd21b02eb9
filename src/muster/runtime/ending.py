"""How a worker's ranks are stopped: which get the stop flag, which get SIGTERM, and when SIGKILL follows."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from muster import wire

FAILURE_GRACE: Final = 5.0  # seconds for the other ranks when one has failed
ASKED_SHARE: Final = 0.8  # share of the grace that a reporting rank has to exit by the flag alone
KILL_AGAIN: Final = 1.0  # seconds


@dataclass(slots=True)
class Ending:
    """Why a worker is being stopped, and which signals are due. Times are monotonic."""

    outcome: wire.Outcome
    reason: str  # "" until the failed rank's output is complete and can be classified
    detail: str
    term_at: dict[int, float]  # rank → when SIGTERM is due, if it was not sent yet
    kill_at: float
    ranks: frozenset[int] = frozenset()  # those that have time to exit by themselves
    rank: int | None = None  # the one that failed first
    oom_killed: bool = False
    forced: bool = False  # SIGKILL was sent
    killed_at: float = 0.0  # when it was first sent

    def due(self, now: float) -> tuple[list[int], bool]:
        """The ranks that get SIGTERM now, and whether all get SIGKILL."""
        due = [rank for rank, at in self.term_at.items() if at <= now]
        for rank in due:
            del self.term_at[rank]
        kill = now >= self.kill_at
        if kill:
            self.forced, self.killed_at = True, self.killed_at or now
            self.kill_at = now + KILL_AGAIN
        return due, kill

    def next_at(self) -> float:
        return min([self.kill_at, *self.term_at.values()])

    def hasten(self, other: Ending) -> None:
        """Merges a later order: it may make the end earlier, but never later, and the first cause is kept."""
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
    """Stops ranks. A rank that reports can see the flag and gets time to save; a plain program gets SIGTERM at once."""
    later = now + grace * ASKED_SHARE
    term_at = {rank: later if rank in reporting else now for rank in ranks}
    return Ending(outcome, reason, detail, term_at, now + grace, frozenset(ranks))


def failing(now: float, ranks: Collection[int], rank: int, oom_killed: bool) -> Ending:
    """One rank failed and these still run: stops them too, because a gang runs completely or not at all."""
    return Ending("failed", "", "", dict.fromkeys(ranks, now), now + FAILURE_GRACE, frozenset(ranks), rank, oom_killed)


def forcing(now: float, outcome: wire.Outcome, reason: str, detail: str) -> Ending:
    """Stops ranks without any grace."""
    return Ending(outcome, reason, detail, {}, now)
