"""Why a queued job waits: the dominant reason first, then every other reason that applies now."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import islice
from math import ceil
from typing import Any, Final

from muster.core.array import array_of
from muster.core.entities.price_book import book_of, prices_of
from muster.core.job import Job, Seat
from muster.core.money import MICRO, format_amount
from muster.core.needs import ENDINGS, never_starts
from muster.core.prices import quantity
from muster.core.reasons import Reason, reason, with_granter
from muster.core.state import State
from muster.sched.backfill import Reservation, expected_duration, reserve, undelayed_seats
from muster.sched.board import Board
from muster.sched.elastic import most_that_fit, waits_to_grow
from muster.sched.gate import gate, gates
from muster.sched.likely_end import Ends
from muster.sched.place import GangRequest
from muster.sched.position import QueuePositions
from muster.sched.queued_jobs import Queued, Shape
from muster.sched.shortage import NAMED, shortage

RESERVED: Final = 8  # maximum reservations of a queue that are computed
WALKED: Final = 64  # maximum jobs of a queue that are checked for reservations
COUNTED: Final = 2_000  # streams that brief answers scan in total, over all jobs, to count the jobs ahead
HIDDEN: Final = "a job of another project"


def explain(state: State, job: Job, now: float, board: Board | None = None, brief: bool = False) -> list[Reason]:
    """Every reason why the job waits now; only the dominant one when `brief`."""
    return Explainer.of(state, now, board).explain(job, brief)


@dataclass(slots=True)
class Explainer:
    """Explains many jobs at one point in time. Results for a shape or a queue are computed once and cached.

    `sees` says which jobs the asking user may see by name. The board is not changed.
    """

    state: State
    board: Board
    now: float
    sees: Callable[[Job], bool] = lambda job: True
    ends: Ends = field(default_factory=dict)  # of running jobs, by the progress that they report
    positions: QueuePositions = field(init=False)
    _fits: dict[tuple[Shape, GangRequest], tuple[Seat, ...] | None] = field(default_factory=dict)
    _shortages: dict[tuple[Shape, bool], Reason] = field(default_factory=dict)
    _kept: dict[str, list[Reservation]] = field(default_factory=dict)
    _first: dict[str, list[Job]] = field(default_factory=dict)
    _budget: int = COUNTED

    @classmethod
    def of(
        cls,
        state: State,
        now: float,
        board: Board | None = None,
        sees: Callable[[Job], bool] = lambda job: True,
        ends: Ends | None = None,
    ) -> Explainer:
        """`board` is the scheduler's, to save work; without it the answer is the same."""
        board = Board() if board is None else board
        board.sync(state, now)
        return cls(state, board, now, sees, ends or {})

    def __post_init__(self) -> None:
        self.positions = QueuePositions(self.state, self.board, self.now)

    def fewer_nodes(self, job: Job) -> list[Reason]:
        """That a running elastic gang has fewer nodes than it asked for, and what it waits for to grow."""
        known = self.board.gangs.running.get(job.id)
        waits = waits_to_grow(self.board, self.state.rules, known, self.now) if known is not None else ""
        if known is None or not waits:
            return []
        has, asked = len(known.seats), job.spec.num_nodes
        message = f"it runs on {has} of the {asked} nodes that it asked for; to grow it waits for {waits}"
        return [reason("fewer_nodes", message, nodes=has, asked=asked, waits_for=waits)]

    def explain(self, job: Job, brief: bool = False) -> list[Reason]:
        queued = self.board.waiting.queued.get(job.id)
        if job.awaits and job.phase == "queued":
            return [self._awaits(job)]
        if queued is None:
            return [job.reason] if job.reason is not None else []
        found: list[Reason] = []
        for step in (self._claimed, self._held, self._gated, self._placed):
            found += [one for one in step(queued, brief) if one not in found]
            if found and (brief or step == self._claimed):
                break
        if not brief:
            found += [self._overdue(queued)] if queued.stream.overdue else []
            found += [] if job.id in self.board.claims.by_job else self._other_pools(queued)
        if len(found) > 1:
            found = [one for one in found if one.code != "about_to_start"]
        return [with_granter(one) for one in (found[:1] if brief else found)]

    def _awaits(self, job: Job) -> Reason:
        if never_starts(job) and job.reason is not None:
            return job.reason
        wanted = dict(job.needs)
        jobs = [name for name in job.awaits if name != job.array]
        if not jobs and job.array is not None:
            limit = array_of(self.state.jobs[job.array]).limit
            message = f"{limit} {'task' if limit == 1 else 'tasks'} of {job.array} may run at once"
            return reason("array_limit", message, array=job.array, limit=limit)
        told = []
        for name in jobs[:NAMED]:
            needed = self.state.jobs.get(name)
            phase = f" ({needed.phase})" if needed is not None else ""
            told.append(f"until {name}{phase} {ENDINGS[wanted[name]]}")
        more = f", and for {len(jobs) - NAMED} more" if len(jobs) > NAMED else ""
        return reason("waits_for_jobs", f"it waits {' and '.join(told)}{more}", jobs=jobs)

    def named(self, job: Job) -> str:
        return job.id if self.sees(job) else HIDDEN

    def starts(
        self, queued: Queued, gang: GangRequest, fewest: int, lasts: float | None = None
    ) -> tuple[Seat, ...] | None:
        """The seats on which the job would start now with this gang and a run time of `lasts`; None if it would not."""
        weight = gang.ask.weight * fewest
        rules = self.state.rules
        pools = tuple([p for p in gang.pools if gate(self.board, rules, queued.job, p, weight) is None])
        seats = most_that_fit(self.board, replace(gang, pools=pools), fewest) if pools else None
        if seats is None or queued.stream.rules.backfill == "greedy":
            return seats
        if queued.stream.rules.backfill == "none":
            return seats if not self.positions.ahead_of(queued.job.id) else None
        ends = self.now + (expected_duration(queued.job, rules, self.now) if lasts is None else lasts)
        kept = self.reservations(queued)
        if any(one.delayed_by(seats, gang.ask, ends) for one in kept):
            return undelayed_seats(
                self.board, replace(gang, pools=pools), [one for one in kept if one.start < ends], fewest
            )
        return seats

    def reservations(self, queued: Queued) -> list[Reservation]:
        """Backfill reservations of the jobs that are ahead of this one in its queue."""
        queue, mine = queued.stream.queue, self.positions.key_of(queued)
        if queue not in self._kept:
            self._kept[queue] = self._reserve(queue, queued.stream.rules.backfill)
        return [r for r in self._kept[queue] if self.positions.key_of(self.board.waiting.queued[r.job.id]) < mine]

    # --- reasons for the wait, in the order in which they are checked -------------------------------------------------
    def _claimed(self, queued: Queued, brief: bool) -> list[Reason]:
        claim = self.board.claims.by_job.get(queued.job.id)
        if claim is None:
            return []
        sitting = {name for seat in claim.seats if (node := self.state.nodes.get(seat.node)) for name in node.jobs}
        jobs = [self.state.jobs[name] for name in sorted(sitting)]
        leaving = [job for job in jobs if job.stop is not None]
        nodes = sorted({seat.node for seat in claim.seats})
        names = [self.named(job) for job in leaving]
        by = max([job.stop.at + job.stop.grace for job in leaving if job.stop is not None], default=self.now)
        message = f"{_listed(names)} {'is' if len(names) == 1 else 'are'} leaving {_listed(nodes)} for it"
        if not names:
            message = f"{_listed(nodes)} {'is' if len(nodes) == 1 else 'are'} kept for it"
        return [reason("waits_for_seats", message, nodes=nodes, leaving=names, by=by)]

    def _held(self, queued: Queued, brief: bool) -> list[Reason]:
        job, until = queued.job, queued.stream.not_before
        if until <= self.now:
            return []
        if job.not_before >= until:
            because = f" after: {job.reason.message}" if job.reason else ""
            wait = ceil(until - self.now)
            return [reason("backing_off", f"the next attempt starts in {wait} s{because}", until=until)]
        message = f"it asked for quiet hours, and those begin in {_span(until - self.now)}"
        return [reason("off_peak", message, until=until)]

    def _gated(self, queued: Queued, brief: bool) -> list[Reason]:
        shape = queued.stream.shape
        if not shape.gang.pools:
            return self._too_dear(queued.job) or self._away(queued.job) or [self._no_pool(queued.job)]
        rules, weight = self.state.rules, shape.each * shape.fewest
        closed = [gates(self.board, rules, queued.job, pool, weight) for pool in shape.gang.pools]
        return list({one.code: one for found in reversed(closed) for one in found}.values()) if all(closed) else []

    def _placed(self, queued: Queued, brief: bool) -> list[Reason]:
        """Free capacity, and where there is none, the jobs that are ahead."""
        if not queued.stream.shape.gang.pools:
            return []
        open_pools = tuple([p for p in queued.stream.shape.gang.pools if self._gate(queued, p) is None])
        gang = self.positions.filling.gang(queued)
        there = replace(gang, pools=open_pools or gang.pools)
        if self._seats(queued, there) is not None:
            return [self._passing(queued, there, brief)] if open_pools else []
        short = self._short(queued, gang, brief)
        behind = self._behind(queued, brief)
        if behind is None:
            return [short]
        return [short, behind] if short.code in ("nodes_unhealthy", "maintenance") else [behind, short]

    def _passing(self, queued: Queued, gang: GangRequest, brief: bool) -> Reason:
        """The job fits: it is held back by the order of its queue, by a reservation, or by nothing."""
        rule = queued.stream.rules.backfill
        if rule == "none":
            return self._behind(queued, brief) or reason("about_to_start")
        if rule == "greedy" or (brief and not self._countable(queued)):
            return reason("about_to_start")
        if self.starts(queued, gang, queued.stream.shape.fewest) is not None:
            return reason("about_to_start")
        first = min(self.reservations(queued), key=lambda one: one.start)
        name, wait = self.named(first.job), first.start - self.now
        message = f"what is free is reserved for {name}, which is expected to start in {_span(wait)}"
        return reason("reserved", message, job=name, start=first.start, nodes=sorted(first.spare)[:NAMED])

    def _behind(self, queued: Queued, brief: bool) -> Reason | None:
        if brief and not self._countable(queued):
            return None
        queue, ahead = queued.stream.queue, self.positions.ahead_of(queued.job.id)
        self._budget -= self.positions.streams_of(queue) if brief else 0
        if ahead == 0:
            return None
        first = [job for job in self._heads(queue) if job.id != queued.job.id][:ahead]
        names = [self.named(job) for job in first]
        message = f"{'1 job goes' if ahead == 1 else f'{ahead} jobs go'} first in {queue!r}, beginning with {names[0]}"
        asks = [{"job": self.named(job), "num_nodes": job.spec.num_nodes, "each": str(job.ask)} for job in first]
        return reason("behind_in_queue", message, ahead=ahead, first=names, asks=asks)

    def _countable(self, queued: Queued) -> bool:
        """Whether counting the jobs ahead is within the budget of brief answers."""
        return self.positions.streams_of(queued.stream.queue) <= self._budget

    # --- cached results -----------------------------------------------------------------------------------------------
    def _heads(self, queue: str) -> list[Job]:
        if queue not in self._first:
            self._first[queue] = [one.job for one in islice(self.positions.in_order(queue, include_held=True), NAMED)]
        return self._first[queue]

    def _seats(self, queued: Queued, gang: GangRequest) -> tuple[Seat, ...] | None:
        shape, free = queued.stream.shape, self.board.free
        if gang.pools == shape.gang.pools and shape.blocked == tuple([free.grew(pool) for pool in gang.pools]):
            return None  # the scheduler has tried, and nothing has become free since
        key = (shape, gang)
        if key not in self._fits:
            self._fits[key] = most_that_fit(self.board, gang, shape.fewest)
        return self._fits[key]

    def _short(self, queued: Queued, gang: GangRequest, brief: bool) -> Reason:
        key = (queued.stream.shape, brief)
        if key not in self._shortages:
            fewest = queued.stream.shape.fewest
            self._shortages[key] = shortage(
                self.state, self.board, gang, fewest, self.now, self.named, brief, self.ends
            )
        return self._shortages[key]

    def _reserve(self, queue: str, rule: str) -> list[Reservation]:
        depth = min(self.state.rules.depth, RESERVED) if rule == "conservative" else 1
        found: list[Reservation] = []
        for queued in islice(self.positions.in_order(queue), WALKED):
            gang = self.positions.filling.gang(queued)
            if len(found) == depth or any(self._gate(queued, pool) for pool in gang.pools):
                continue
            if self._seats(queued, gang) is None:
                there = replace(gang, nodes=queued.stream.shape.fewest)
                kept = reserve(self.board, self.state.rules, queued.job, there, found, self.now)
                found += [kept] if kept is not None else []
        return found

    def _gate(self, queued: Queued, pool: str) -> Reason | None:
        shape = queued.stream.shape
        return gate(self.board, self.state.rules, queued.job, pool, shape.each * shape.fewest)

    def _no_pool(self, job: Job) -> Reason:
        rules = self.state.rules.queue(job.queue)
        data: dict[str, Any] = {"pool": job.pool, "queue_pools": list(rules.pools), "kind": job.spec.kind}
        return reason("no_pool", f"no pool is open to {job.spec.kind} jobs of queue {job.queue!r} as it asks", **data)

    def _too_dear(self, job: Job) -> list[Reason]:
        allowed = [name for name in self.state.pools if self.board.pools.allows(job, name)]
        dear = self.board.pools.too_dear(job, allowed, self.now)
        if not dear:
            return []
        pool = min(dear, key=lambda name: dear[name])
        currency = book_of(self.state).currency
        told = f"pool {pool!r} costs {format_amount(dear[pool], currency)} an hour for it"
        message = f"{told}, and its `max_hourly_cost` is {job.spec.max_hourly_cost}"
        return [reason("too_dear", message, pool=pool, per_hour=dear[pool], pools=sorted(dear))]

    def _away(self, job: Job) -> list[Reason]:
        """Pools that the job could use if their engines could be reached."""
        found = []
        for name, word in self.board.pools.away.items():
            if self.board.pools.allows(job, name):
                engine = self.state.pools[name].engine
                message = f"the engine {engine!r} of pool {name!r} can't be reached: {word}"
                found.append(reason("engine_away", message, engine=engine, pool=name))
        return found

    def _other_pools(self, queued: Queued) -> list[Reason]:
        """Pools that are not open to the job now, but will be without any change to it."""
        job, board = queued.job, self.board
        found = self._away(job) if queued.stream.shape.gang.pools else []
        for pool in board.pools.bursts if job.pool is None else ():
            if pool in queued.stream.shape.gang.pools or pool in board.pools.away or pool not in self.state.pools:
                continue
            at = board.pools.opens_at(job, pool)
            if at > self.now and board.pools.allows(job, pool):
                cost = hourly(self.state, job, pool, self.now)
                told = f"; it would cost about {cost:.2f} an hour there" if cost else ""
                message = f"pool {pool!r} opens to it in {_span(at - self.now)}{told}"
                found.append(reason("opens_later", message, pool=pool, opens_at=at, per_hour=cost))
        return found

    def _overdue(self, queued: Queued) -> Reason:
        waited = queued.job.waited + self.now - queued.job.since
        message = f"it has waited {_span(waited)} in all: it goes first, and gives way to nobody once it runs"
        return reason("overdue", message, waited=waited)


def hourly(state: State, job: Job, pool: str, now: float) -> float | None:
    """Cost per hour of the whole gang in the pool, at the price of now; None where it has no price."""
    found = prices_of(state).hourly(pool, quantity(job.ask, job.spec.num_nodes), now)
    return None if found is None else found / MICRO


def _listed(names: list[str]) -> str:
    shown = ", ".join(names[:NAMED])
    return shown + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")


def _span(seconds: float) -> str:
    if seconds < 120:
        return f"{max(seconds, 0):.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
