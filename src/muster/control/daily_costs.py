"""Charges idle capacity and stored bytes once for each day that is over, beside the control loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from muster.control.background import Background
from muster.control.clock import Clock
from muster.control.submit import peek
from muster.core.entities.charged_day import charged_until
from muster.core.entities.price_book import PRICE_BOOKS, book_zone, prices_of
from muster.core.event import SYSTEM, Event
from muster.core.prices import SECOND, quantity
from muster.core.state import State
from muster.cost.daily import COMMITTED, DayBounds, day_bounds, days_between, idle_charge, storage_charge
from muster.cost.ledger import local_day
from muster.store.base import Entry
from muster.store.commit import Commit
from muster.track.cost_rows import pool_use
from muster.track.tracking import Tracking
from muster.track.usage import project_bytes

EVERY: Final = 600.0  # seconds between two looks
PAST: Final = 60  # days that are charged after a time in which no server ran

Use = Mapping[tuple[str, str], Mapping[str, int]]  # pool and day → project → thousandths of accelerators × ms


class DailyCosts:
    def __init__(
        self,
        track: Tracking,
        commit: Commit,
        clock: Clock,
        may_act: Callable[[], bool],
        reach: Callable[[], object],
    ) -> None:
        """`reach`: has the rows of the ledger follow the log."""
        self._track, self._commit, self._clock, self._reach = track, commit, clock, reach
        self._thread = Background("daily-costs", self.charge_days, may_act, lambda took: EVERY)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._thread.close()

    def charge_days(self) -> None:
        """Charges every day that is over and is not charged yet."""
        now = self._clock.now()
        found: list[list[tuple[str, DayBounds]]] = []
        self._commit.submit(peek(found, lambda state: _wanted(state, now))).result()
        wanted = found[0]
        if not wanted:
            return
        self._reach()
        pools = [(pool, day) for pool, day in wanted if pool]
        with self._track.db.reading() as connection:
            use = {(pool, day.name): pool_use(connection, pool, day.name) for pool, day in pools}
            stored = project_bytes(connection)
        self._commit.submit(lambda state: _charges(state, wanted, use, stored, now)).result()


def _wanted(state: State, now: float) -> list[tuple[str, DayBounds]]:
    """Pools and days that are to be charged; the pool "" stands for the bytes of all projects."""
    book, in_force = prices_of(state).book, PRICE_BOOKS.all(state).get("")
    if in_force is None:
        return []
    zone = book_zone(state)
    today, first = local_day(now, zone), local_day(in_force.first_at - 86_400, zone)
    names = [name for name, prices in book.pools.items() if any(one.kind in COMMITTED for one in prices)]
    found = [
        (name, day_bounds(day, zone))
        for name in sorted(names)
        for day in days_between(max(first, charged_until(state, f"pool/{name}")), today, PAST)
    ]
    if book.storage is not None:
        last = max((charged_until(state, f"project/{name}") for name in state.projects), default="")
        found += [("", day_bounds(day, zone)) for day in days_between(max(first, last), today, PAST)]
    return found


def _charges(
    state: State, wanted: Sequence[tuple[str, DayBounds]], use: Use, stored: Mapping[str, int], now: float
) -> Entry:
    """The events of days that nobody has charged meanwhile."""
    prices, events = prices_of(state), list[Event]()
    at = max(now, state.time)
    for pool, day in wanted:
        if pool and day.name > charged_until(state, f"pool/{pool}"):
            held = dict(use[(pool, day.name)])
            for project, time in _live(state, pool, day, now):
                held[project] = held.get(project, 0) + time
            idle = idle_charge(prices, pool, day, held, list(state.projects))
            events += [Event(idle, at, SYSTEM)] if idle is not None else []
        elif not pool:
            for project in sorted(state.projects):
                if day.name > charged_until(state, f"project/{project}"):
                    kept = storage_charge(prices.book, day, stored.get(project, 0))
                    events += [Event(kept, at, SYSTEM, project)] if kept is not None else []
    return Entry(events)


def _live(state: State, pool: str, day: DayBounds, now: float) -> list[tuple[str, int]]:
    """What attempts that are not charged yet held of the pool on the day."""
    found = []
    for job in (state.jobs[name] for name in state.active):
        attempt = job.attempt
        if attempt is not None and attempt.pool == pool:
            begin, end = max(day.begin, round(attempt.planned_at * SECOND)), min(day.end, round(now * SECOND))
            held = quantity(job.ask, len(attempt.workers)).accelerators
            found.append((job.project, held * max(0, end - begin) // 1000))
    return found
