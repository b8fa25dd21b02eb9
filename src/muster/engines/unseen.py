"""Gangs that were requested and that no look at the cluster has reported yet:
their state until the hand-over is done."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, Literal

from muster.core.errors import EngineError
from muster.engines.base import GangLaunch, Wait, WorkerReport

HOLD_FIRST: Final = 2.0  # seconds before a held gang is handed over again, half as much more each time
HOLD_LAST: Final = 15.0
UNSEEN: Final = 30.0  # seconds after which a gang that was handed over and is not reported is handed over again
Key = tuple[str, int]  # job, attempt


@dataclass(frozen=True, slots=True)
class Order:
    """A stop order: save and exit within `grace` seconds, for this reason."""

    job: str
    attempt: int
    grace: float
    reason: str


@dataclass(frozen=True, slots=True)
class Held:
    """The result for a gang that the cluster does not take yet, because of a rule or a fault;
    it is handed over again later."""

    code: str
    message: str
    hint: str = ""
    trouble: bool = False  # the fault is the engine's own, and shown as such
    error: EngineError | None = None  # the cluster as a whole did not answer


@dataclass(slots=True)
class PendingGang:
    launch: GangLaunch
    # `wanted`: to be handed over. `handing`: hand-over in progress. `held`: see `Held`.
    # `sent`: the cluster has taken it.
    stage: Literal["wanted", "handing", "held", "sent"] = "wanted"
    at: float = 0.0  # monotonic; when it was sent, or when a held gang is retried
    tries: int = 0
    touched: bool = False  # the cluster may have parts of it
    held: Held | None = None
    order: Order | None = None  # a stop order that arrived during or after the hand-over

    def reports(self) -> list[WorkerReport]:
        key = (self.launch.job, self.launch.attempt)
        return [WorkerReport(*key, worker, "pending") for worker in range(len(self.launch.seats))]


@dataclass(slots=True)
class Unseen:
    """The set of such gangs. Not thread-safe: the owner holds its lock for every call."""

    gangs: dict[Key, PendingGang] = field(default_factory=dict)

    def __contains__(self, key: Key) -> bool:
        return key in self.gangs

    def add(self, gang: GangLaunch) -> None:
        self.gangs[gang.job, gang.attempt] = PendingGang(gang)

    def due(self, now: float, most: int) -> list[GangLaunch]:
        """Returns the gangs to hand over now and marks them as `handing`."""
        found = [g for g in self.gangs.values() if g.stage == "wanted" or (g.stage == "held" and g.at <= now)][:most]
        for gang in found:
            gang.stage, gang.touched = "handing", True
        return [gang.launch for gang in found]

    def wanted(self, key: Key) -> bool:
        gang = self.gangs.get(key)
        return gang is not None and gang.order is None

    def sent(self, key: Key, now: float) -> None:
        gang = self.gangs[key]
        gang.stage, gang.at, gang.held = "sent", now, None

    def hold(self, key: Key, why: Held, now: float) -> None:
        """Holds a gang back, longer each time and with jitter."""
        gang = self.gangs[key]
        pause = min(HOLD_FIRST * 1.5 ** min(gang.tries, 20), HOLD_LAST)
        gang.stage, gang.held, gang.at = "held", why, now + pause * random.uniform(0.75, 1.25)
        gang.tries += 1

    def again(self, key: Key) -> None:
        self.gangs[key].stage = "wanted"

    def free(self, most: int, now: float) -> None:
        """Retries the first held gangs at once, because something has gone that may have blocked them."""
        for gang in [gang for gang in self.gangs.values() if gang.stage == "held"][:most]:
            gang.at = min(gang.at, now)

    def overdue(self, now: float) -> list[Key]:
        """Gangs that were sent and that no look has reported for UNSEEN seconds."""
        return [key for key, gang in self.gangs.items() if gang.stage == "sent" and now - gang.at >= UNSEEN]

    def next_due(self) -> float | None:
        return min((gang.at for gang in self.gangs.values() if gang.stage == "held"), default=None)

    def waits(self, away: str) -> Iterator[Wait]:
        """`away`: why the engine can't be reached; "" when it can."""
        for key, gang in self.gangs.items():
            if away:
                yield Wait(*key, "away", away)
            elif gang.held is not None:
                yield Wait(*key, gang.held.code, gang.held.message, hint=gang.held.hint)

    def trouble(self) -> Held | None:
        return next((g.held for g in self.gangs.values() if g.held is not None and g.held.trouble), None)
