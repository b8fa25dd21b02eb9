"""The pools that a job may use, now and ever: by the rules, by its own file, by price, and by the time of day."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field
from math import inf

from muster.core.entities.price_book import prices_of
from muster.core.job import Job
from muster.core.money import parse_amount
from muster.core.prices import Prices, Quantity, quantity
from muster.core.resources import Resources
from muster.core.rules import Rules
from muster.core.state import State
from muster.core.windows import open_until, opens
from muster.sched.order import remaining

_ONE = quantity(Resources(accelerators=1), 1)  # prices of the policy are the same for all that a worker holds
OVERRUN = 0.5  # a job that runs longer than expected is assumed to go on for this fraction of its time so far


@dataclass(slots=True)
class PoolAccess:
    state: State
    rules: Rules
    prices: Prices
    prices_at: float  # the time whose prices count; a new object is made when a price changes
    bursts: dict[str, float] = field(default_factory=dict)  # burst pool → wait in seconds after which it opens
    away: dict[str, str] = field(default_factory=dict)  # pool whose engine can't be reached → error text
    _found: dict[Hashable, tuple[str, ...]] = field(default_factory=dict)
    _hourly: dict[tuple[str, Quantity], int] = field(default_factory=dict)

    @classmethod
    def of(cls, state: State, now: float | None = None) -> PoolAccess:
        rules = state.rules.pools
        bursts = {name: rule.burst for name in sorted(rules) if (rule := rules[name]).burst is not None}
        away = {name: pool.away for name, pool in state.pools.items() if pool.away}
        return cls(state, state.rules, prices_of(state), state.time if now is None else now, bursts, away)

    def delegated(self, pool: str) -> bool:
        """Whether a cluster chooses the machines of the pool."""
        found = self.state.pools.get(pool)
        return found is not None and found.delegated

    def usable(self, pool: str) -> float:
        """The machines in service of a pool whose cluster chooses among them; inf where its nodes are seen as such."""
        found = self.state.pools.get(pool)
        return inf if found is None or found.usable is None else found.usable

    def price(self, job: Job, pool: str) -> int:
        """Millionths for an hour of one worker of the job; 0 where the pool has no price."""
        held = quantity(job.ask, 1) if self.prices.book.pools else _ONE
        found = self._hourly.get((pool, held))
        if found is None:
            found = self._hourly[(pool, held)] = self.prices.hourly(pool, held, self.prices_at) or 0
        return found

    def prices_change(self) -> float:
        """When time alone next changes the price of a pool; inf for never."""
        if not self.prices.any:
            return inf
        return min((self.prices.next_change(pool, self.prices_at) for pool in self.state.pools), default=inf)

    def pools_of(self, job: Job, now: float) -> tuple[str, ...]:
        """The pools that the job may use now, preferred first."""
        spec = job.spec
        late = spec.use_spot and spec.deadline is not None and now >= self.spot_until(job)
        some = self.bursts and job.pool is None
        opened = tuple([pool for pool in self.bursts if self.opens_at(job, pool) <= now]) if some else ()
        held = quantity(job.ask, 1) if self.prices.book.pools else _ONE
        name = (job.queue, job.pool, spec.kind, spec.use_spot, late, opened, held)
        found = self._found.get(name)
        if found is None:
            found = self._found[name] = tuple(self._allowed(job, late, opened))
        if spec.max_hourly_cost is not None:
            dear = self.too_dear(job, found, now)
            return tuple([pool for pool in found if pool not in dear])
        return found

    def too_dear(self, job: Job, pools: Iterable[str], now: float) -> dict[str, int]:
        """Of these pools those that cost more than the job's `max_hourly_cost`, and what they cost for an hour."""
        if job.spec.max_hourly_cost is None:
            return {}
        most, held = parse_amount(job.spec.max_hourly_cost).micros, quantity(job.ask, job.spec.num_nodes)
        rates = {pool: self.prices.hourly(pool, held, now) or 0 for pool in pools}
        return {pool: rate for pool, rate in rates.items() if rate > most}

    def off_peak(self, job: Job, pools: tuple[str, ...], now: float) -> tuple[tuple[str, ...], float, float]:
        """Of these pools those that the job may use, the time before which it may not start, and when this result
        becomes outdated."""
        if not job.spec.off_peak or not pools:
            return pools, job.not_before, inf
        windows = {pool: self.rules.pool(pool).off_peak for pool in pools}
        opening = {pool: opens(window, now) for pool, window in windows.items()}
        first = min(opening.values())
        quiet = tuple(pool for pool in pools if opening[pool] <= max(first, now))
        ends = min(open_until(windows[pool], now) for pool in quiet)
        later = min((at for at in opening.values() if at > first), default=inf)
        return quiet, max(job.not_before, first), min(ends, later)

    def next_change(self, job: Job, now: float) -> float:
        """When time alone next changes the pools that the job may use; inf for never."""
        until, spec = inf, job.spec
        if spec.use_spot and spec.deadline is not None and self.spot_until(job) > now:
            until = self.spot_until(job)
        if self.bursts and job.pool is None:
            until = min([until, *(at for pool in self.bursts if (at := self.opens_at(job, pool)) > now)])
        if spec.max_hourly_cost is not None:
            until = min([until, *(self.prices.next_change(pool, now) for pool in self.state.pools)])
        return until

    def opens_at(self, job: Job, pool: str) -> float:
        """When a burst pool opens to the job: after the pool's burst wait, counted over all its waits."""
        return job.since + self.bursts[pool] - job.waited

    def allows(self, job: Job, pool: str) -> bool:
        """Whether the rules and the job's own spec ever let the job use the pool."""
        spec, rules, rule = job.spec, self.rules.queue(job.queue), self.rules.pool(pool)
        if job.pool not in (None, pool) or (rules.pools and pool not in rules.pools):
            return False
        if rule.kinds and spec.kind not in rule.kinds:
            return False
        return spec.use_spot or not self._is_spot(pool)

    def spot_until(self, job: Job) -> float:
        """When a job with a deadline must stop using spot nodes, to finish in time."""
        assert job.spec.deadline is not None
        return job.submitted_at + job.spec.deadline - remaining(job, self.rules) * (1 + OVERRUN)

    def _allowed(self, job: Job, late: bool, opened: tuple[str, ...]) -> list[str]:
        """Allowed pools in order: regular pools before burst pools, then the cheapest first. At the same price, pools
        that Muster schedules itself come before pools whose engine has its own queue."""
        pools = [pool for pool in self.state.pools.values() if self.allows(job, pool.name)]
        pools.sort(key=lambda pool: (self.price(job, pool.name), pool.delegated, pool.name))
        bursts = self.bursts if job.pool is None else {}
        owned = [pool for pool in pools if pool.name not in bursts]
        burst = [pool for pool in pools if pool.name in bursts and (pool.name in opened or not owned)]
        there = [[pool.name for pool in some if not pool.away] for some in (owned, burst)]
        if not job.spec.use_spot:
            return [*there[0], *there[1]]
        spot, steady = (
            [[pool for pool in some if self._is_spot(pool) is wanted] for some in there] for wanted in (True, False)
        )
        if late:
            return [*steady[0], *steady[1]] or [*spot[0], *spot[1]]
        return [*spot[0], *steady[0], *spot[1], *steady[1]]

    def _is_spot(self, pool: str) -> bool:
        rule = self.rules.pool(pool).spot
        return self.state.pools[pool].spot if rule is None else rule
