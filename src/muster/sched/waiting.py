"""The waiting side of the board: queued jobs, their shapes and streams, and the pools that they may use."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Hashable
from dataclasses import replace
from math import inf

from muster.core.job import Job
from muster.core.spec import fewest_nodes
from muster.sched.board_state import BoardState, weight_of
from muster.sched.order import Policy, remaining
from muster.sched.place import GangRequest
from muster.sched.queued_jobs import Queued, Shape, Stream
from muster.sched.quota import EPSILON
from muster.sched.windows import opens, shuts

OVERRUN = 0.5  # a job that runs longer than expected is assumed to go on for this fraction of its time so far


class Waiting(BoardState):
    """Queued jobs, in the order in which they are considered."""

    __slots__ = ()

    def goes_first(self, stream: Stream, pool: str | None = None) -> bool:
        """Whether the stream is overdue, and overdue jobs hold so little of a pool that it may go ahead of others."""
        if not stream.overdue:
            return False
        for name in stream.shape.gang.pools if pool is None else (pool,):
            held = sum(self.privileged(name).values()) + self._promised(name)
            if not held or held + stream.shape.weight <= self._overdue_limit(name) + EPSILON:
                return True
        return False

    def privileged(self, pool: str) -> dict[str, float]:
        """Running gangs of overdue jobs, oldest first, that can't be preempted by rank: up to the `overdue_share`."""
        found, room = dict[str, float](), self._overdue_limit(pool)
        for _, _, name in self._late_running.get(pool, ()):
            weight = self.running[name].weight
            if any(found.values()) and weight > room + EPSILON:
                break
            found[name] = weight
            room -= weight
        return found

    def near(self, job: Job) -> frozenset[str]:
        """Names of nodes or data that the job should be placed near to now."""
        spec = job.spec
        if spec.placement == "group":
            nodes = self._groups.get(f"{job.project}/{spec.group}") if spec.group else None
            return frozenset(node for node, count in (nodes or {}).items() if count)
        if spec.placement != "locality":
            return frozenset()
        last = {worker.seat.node for worker in job.attempt.workers} if job.attempt else set()
        return frozenset(spec.near or spec.data) | last

    def pools_of(self, job: Job, now: float) -> tuple[str, ...]:
        """The pools that the job may use now, preferred first."""
        assert self._state is not None
        spec = job.spec
        late = spec.use_spot and spec.deadline is not None and now >= self.spot_until(job)
        some = self.bursts and spec.pool is None
        opened = tuple([pool for pool in self.bursts if self.opens_at(job, pool) <= now]) if some else ()
        name = (job.queue, spec.pool, spec.kind, spec.use_spot, late, opened)
        found = self._pools.get(name)
        if found is None:
            found = self._pools[name] = tuple(self._allowed(job, late, opened))
        return found

    def opens_at(self, job: Job, pool: str) -> float:
        """When a burst pool opens to the job: after the pool's burst wait, counted over all its waits."""
        return job.since + self.bursts[pool] - job.waited

    def allows(self, job: Job, pool: str) -> bool:
        """Whether the rules and the job's own spec ever let the job use the pool."""
        assert self._state is not None
        spec, rules, rule = job.spec, self._rules.queue(job.queue), self._rules.pool(pool)
        if spec.pool not in (None, pool) or (rules.pools and pool not in rules.pools):
            return False
        if rule.kinds and spec.kind not in rule.kinds:
            return False
        return spec.use_spot or not self._taken_away(pool)

    def spot_until(self, job: Job) -> float:
        """When a job with a deadline must stop using spot nodes, to finish in time."""
        assert job.spec.deadline is not None
        left = remaining(job, self._rules)
        return job.submitted_at + job.spec.deadline - left * (1 + OVERRUN)

    def _promised(self, pool: str) -> float:
        """Accelerators reserved by claims of overdue jobs."""
        claims = [claim for claim in self.claims.values() if claim.pool == pool and claim.job.id in self.queued]
        return sum(weight_of(claim.seats) for claim in claims if self.queued[claim.job.id].stream.overdue)

    def _overdue_limit(self, pool: str) -> float:
        """Accelerators of the pool that overdue jobs may hold ahead of the others."""
        return self.free.accelerators(pool)[1] * self._rules.overdue_share

    def _enter(self, job: Job, now: float) -> None:
        rules, policy = self._queue(job.queue)
        standing = policy.standing(job, self._rules, rules, now)
        until, late = standing.until, False
        if rules.overdue is not None:
            at = job.since + rules.overdue - job.waited
            late = now >= at
            until = until if late else min(until, at)
        pools, resting, shuts_at = self._quiet(job, self.pools_of(job, now), now)
        if resting > now:
            until = min(until, resting)
        if job.spec.use_spot and job.spec.deadline is not None and self.spot_until(job) > now:
            until = min(until, self.spot_until(job))
        if self.bursts and job.spec.pool is None:
            until = min([until, *(at for pool in self.bursts if (at := self.opens_at(job, pool)) > now)])
        shape = self._shape(job, pools)
        stream = self._stream(job, shape, policy, standing.band, late, resting if resting > now else 0.0)
        entry = (standing.key, job.number, job.id)
        if not stream.entries:
            self._open(stream)
        stream.add(entry)
        self.queued[job.id] = Queued(job, stream, entry)
        self.shapes_changed[shape] = None
        for pool in pools:
            self.pools_changed[pool] = None
        self._wake(job.id, min(until, shuts_at))

    def _quiet(self, job: Job, pools: tuple[str, ...], now: float) -> tuple[tuple[str, ...], float, float]:
        """Pools that the job may use, the time before which it may not start, and when this result becomes outdated."""
        if not job.spec.off_peak or not pools:
            return pools, job.not_before, inf
        windows = {pool: self._rules.pool(pool).off_peak for pool in pools}
        opening = {pool: opens(window, now) for pool, window in windows.items()}
        first = min(opening.values())
        quiet = tuple(pool for pool in pools if opening[pool] <= max(first, now))
        ends = min(shuts(windows[pool], now) for pool in quiet)
        later = min((at for at in opening.values() if at > first), default=inf)
        return quiet, max(job.not_before, first), min(ends, later)

    def _stream(self, job: Job, shape: Shape, policy: Policy, band: Hashable, overdue: bool, resting: float) -> Stream:
        user = job.user if self._by_user else ""
        name = (job.queue, user, shape, band, overdue, resting)
        stream = self._streams.get(name)
        if stream is None:
            self._made += 1
            stream = Stream(
                job.queue, user, job.user, job.project, shape, band, overdue, resting, policy,
                self._rules.queue(job.queue), self._made,
            )  # fmt: skip
            self._streams[name] = stream
        return stream

    def _open(self, stream: Stream) -> None:
        """Adds a stream to the indexes when it gets its first job."""
        assert self._state is not None
        shape = stream.shape
        if not shape.streams:
            for pool in shape.gang.pools:
                self.shapes.setdefault(pool, {})[shape] = None
        shape.streams[stream] = None
        self.lines[stream.queue][stream] = None
        self._user_streams[stream.whose][stream] = None
        if stream.policy.values:
            stream.worth = stream.policy.worth(stream.band, self._state.history)
        for pool in shape.gang.pools:
            if stream.policy.values:
                insort(self.most_valuable[pool], (-stream.worth, stream.number, stream))
            if stream.overdue:
                self.late[pool][stream] = None

    def _leave_line(self, queued: Queued) -> None:
        stream = queued.stream
        stream.remove(queued.entry)
        if stream.entries:
            return
        shape = stream.shape
        del shape.streams[stream], self.lines[stream.queue][stream], self._user_streams[stream.whose][stream]
        if stream.policy.values:
            self._drop_worth(stream)
        if stream.overdue:
            for pool in shape.gang.pools:
                self.late[pool].pop(stream, None)
        if not shape.streams:
            for pool in shape.gang.pools:
                del self.shapes[pool][shape]
                if not self.shapes[pool]:
                    del self.shapes[pool]
            self.shapes_changed.pop(shape, None)
        if len(self._streams) > 2 * len(self.queued) + 1000:
            self._streams = {name: one for name, one in self._streams.items() if one.entries}
            self._shapes = {name: one for name, one in self._shapes.items() if one.streams}

    def _drop_worth(self, stream: Stream) -> None:
        for pool in stream.shape.gang.pools:
            line = self.most_valuable[pool]
            del line[bisect_left(line, (-stream.worth, stream.number))]

    def _revalue(self, stream: Stream) -> None:
        assert self._state is not None
        if not stream.policy.values:
            return
        worth = stream.policy.worth(stream.band, self._state.history)
        if worth != stream.worth:
            self._drop_worth(stream)
            stream.worth = worth
            for pool in stream.shape.gang.pools:
                insort(self.most_valuable[pool], (-worth, stream.number, stream))
                self.pools_changed[pool] = None

    def _shape(self, job: Job, pools: tuple[str, ...]) -> Shape:
        spec = job.spec
        own = job.id if spec.placement in ("group", "locality") or _blamed(job) else ""
        topology = spec.topology
        name = (
            job.ask, spec.num_nodes, spec.min_nodes, pools, spec.placement, topology.require, topology.prefer, own,
        )  # fmt: skip
        shape = self._shapes.get(name)
        if shape is None or own:
            gang = GangRequest(job.ask, spec.num_nodes, pools, spec.placement, topology.require, topology.prefer)
            if own:
                gang = replace(gang, avoid=_blamed(job))
            shape = self._shapes[name] = Shape(gang, fewest_nodes(spec), job.ask.weight)
        return shape

    def _allowed(self, job: Job, late: bool, opened: tuple[str, ...]) -> list[str]:
        """Allowed pools in order: regular pools before burst pools, then the cheapest first. At the same price, pools
        that Muster schedules itself come before pools whose engine has its own queue."""
        assert self._state is not None
        pools = [pool for pool in self._state.pools.values() if self.allows(job, pool.name)]
        pools.sort(key=lambda pool: (self._rules.pool(pool.name).price, pool.delegated, pool.name))
        bursts = self.bursts if job.spec.pool is None else {}
        owned = [pool for pool in pools if pool.name not in bursts]
        burst = [pool for pool in pools if pool.name in bursts and (pool.name in opened or not owned)]
        there = [[pool.name for pool in some if not pool.away] for some in (owned, burst)]
        if not job.spec.use_spot:
            return [*there[0], *there[1]]
        spot, steady = (
            [[pool for pool in some if self._taken_away(pool) is away] for some in there] for away in (True, False)
        )
        if late:
            return [*steady[0], *steady[1]] or [*spot[0], *spot[1]]
        return [*spot[0], *steady[0], *spot[1], *steady[1]]

    def _taken_away(self, pool: str) -> bool:
        assert self._state is not None
        rule = self._rules.pool(pool).spot
        return self._state.pools[pool].spot if rule is None else rule


def _blamed(job: Job) -> frozenset[str]:
    """The node that caused the job's last attempt to fail, if any."""
    attempt = job.attempt
    if attempt is None or attempt.reason is None or attempt.outcome in (None, "succeeded", "stopped"):
        return frozenset()
    node = attempt.reason.data.get("node")
    return frozenset({node}) if node and attempt.reason.category in ("node", "worker") else frozenset()
