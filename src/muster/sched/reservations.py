"""The backfill reservations of one pass: made at once, or deferred until a job has been found that could start before.

In an overload hardly any job can, and most of those that could have no place beside the first reservations.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from muster.core.job import Seat
from muster.core.state import State
from muster.sched.backfill import Outlooks, Reservation, fits_empty, reserve, undelayed_seats
from muster.sched.board import Board
from muster.sched.outlook import LATEST
from muster.sched.place import GangRequest
from muster.sched.queued_jobs import Queued, Shape


@dataclass(slots=True)
class Reservations:
    state: State
    board: Board
    now: float
    gang_of: Callable[[Queued], GangRequest]
    closing: bool  # whether any pool has maintenance planned
    by_pool: dict[str, list[Reservation]] = field(default_factory=dict)
    deferred: dict[str, deque[Queued]] = field(default_factory=dict)  # pool → jobs whose reservations come next
    _outlooks: Outlooks = field(default_factory=dict)  # until something starts; back at now between two methods

    @property
    def any(self) -> bool:
        """Whether there are reservations, be they made or deferred."""
        return bool(self.by_pool or self.deferred)

    def is_in(self, pool: str) -> bool:
        return pool in self.by_pool or pool in self.deferred

    def add(self, queued: Queued, depth: int) -> bool:
        """Makes or defers a reservation for a job that does not fit; False when there are already `depth` of them."""
        pools = queued.stream.shape.gang.pools
        if depth > 1 and self._is_sure(queued.stream.shape):
            if len(self.by_pool.get(pools[0], ())) + len(self.deferred.get(pools[0], ())) >= depth:
                return False
            self.deferred.setdefault(pools[0], deque()).append(queued)
            return True
        self._make_deferred()
        if all(len(self.by_pool.get(pool, ())) >= depth for pool in pools):
            return False
        self._make(queued)
        self._look_at_now()
        return True

    def seats_beside(
        self, gang: GangRequest, fewest: int, seats: tuple[Seat, ...], pool: str, ends: float
    ) -> tuple[Seat, ...] | None:
        """The given seats, or others, on which a gang delays no reservation until `ends`; None when there are none.

        Deferred reservations are made one by one: a gang that has no place beside some of them has none beside all.
        """
        found: tuple[Seat, ...] | None = seats
        known = 0
        while found is not None and self._delays(pool, gang, found, ends, known):
            kept = self.by_pool[pool]
            found = undelayed_seats(self.board, gang, [one for one in kept if one.start < ends], fewest)
            known = len(kept)
        if found is seats:
            for one in self.by_pool.get(pool, ()):
                one.use_spare(seats, gang.ask)
        elif found is not None:  # all are made now
            kept = self.by_pool[pool]
            found = undelayed_seats(self.board, gang, [one for one in kept if one.start < ends], fewest)
        return found

    def started(self) -> None:
        """Something has started: what will be free is no longer the same."""
        self._outlooks.clear()

    def clear(self) -> None:
        self.by_pool, self.deferred, self._outlooks = {}, {}, {}

    def _delays(self, pool: str, gang: GangRequest, seats: tuple[Seat, ...], ends: float, known: int) -> bool:
        """Whether a gang on these seats would delay any reservation of the pool after the `known` first ones. Deferred
        ones are made up to the one that it delays."""
        if any(one.delayed_by(seats, gang.ask, ends) for one in self.by_pool.get(pool, [])[known:]):
            return True
        found, deferred = False, self.deferred.get(pool, deque())
        while deferred and not found:
            made = self._make(deferred.popleft())
            found = made is not None and made.delayed_by(seats, gang.ask, ends)
        if not deferred:
            self.deferred.pop(pool, None)
        self._look_at_now()
        return found

    def _is_sure(self, shape: Shape) -> bool:
        """Whether a reservation for such a job is found in any case: then it need not be made before a job may pass."""
        if len(shape.gang.pools) > 1 or self.board.claims.by_job or self.closing:
            return False
        if shape.fits_empty[0] != self.board.free.hardware:
            gang = shape.gang.within(shape.gang.pools[0], shape.fewest)
            shape.fits_empty = self.board.free.hardware, fits_empty(self.board, gang)
        return shape.fits_empty[1] and len(self.board.gangs.ending[shape.gang.pools[0]]) <= LATEST

    def _make_deferred(self) -> None:
        deferred, self.deferred = self.deferred, {}
        for jobs in deferred.values():
            for queued in jobs:
                self._make(queued)
        self._look_at_now()

    def _make(self, queued: Queued) -> Reservation | None:
        shape = queued.stream.shape
        held = [one for pool in shape.gang.pools for one in self.by_pool.get(pool, ())]
        gang = replace(self.gang_of(queued), nodes=shape.fewest)
        found = reserve(self.board, self.state.rules, queued.job, gang, held, self.now, self._outlooks)
        if found is not None:
            self.by_pool.setdefault(found.pool, []).append(found)
        return found

    def _look_at_now(self) -> None:
        for outlook in self._outlooks.values():
            outlook.back()
