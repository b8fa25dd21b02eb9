"""Queued jobs: their requests (shapes), and the streams that one queue, user and request form."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from heapq import nsmallest
from math import inf

from muster.core.job import Job
from muster.core.spec import fewest_nodes
from muster.core.state import State
from muster.sched.changes import Changes
from muster.sched.failed_preemptions import QuietPool
from muster.sched.order import Policy
from muster.sched.place import GangRequest
from muster.sched.pool_access import PoolAccess
from muster.sched.queued_jobs import Queued, Shape, Stream
from muster.sched.rules_view import RulesView
from muster.sched.spares import spares_for
from muster.sched.timers import Timers


@dataclass(slots=True)
class WaitingJobs:
    state: State
    rules: RulesView
    pools: PoolAccess
    changes: Changes
    timers: Timers
    queued: dict[str, Queued] = field(default_factory=dict)  # by job
    streams: defaultdict[str, dict[Stream, None]] = field(default_factory=lambda: defaultdict(dict))  # by queue
    shapes: dict[str, dict[Shape, None]] = field(default_factory=dict)  # by pool
    # Pool → its streams, highest value first.
    most_valuable: defaultdict[str, list[tuple[float, int, Stream]]] = field(default_factory=lambda: defaultdict(list))
    overdue: defaultdict[str, dict[Stream, None]] = field(default_factory=lambda: defaultdict(dict))  # by pool
    _longest_overdue: dict[str, Sequence[Stream]] = field(default_factory=dict)  # by pool, until those that wait change
    restarting: dict[str, None] = field(default_factory=dict)  # jobs that lost a node of a pool with spares
    timed: dict[str, None] = field(default_factory=dict)  # for `reselect`: jobs whose place time alone will change
    _user_streams: defaultdict[str, dict[Stream, None]] = field(default_factory=lambda: defaultdict(dict))
    _known_shapes: dict[Hashable, Shape] = field(default_factory=dict)
    _known_streams: dict[Hashable, Stream] = field(default_factory=dict)
    quiet: dict[str, QuietPool] = field(default_factory=dict)  # pools in which nobody can preempt
    _made: int = 0  # number of streams created so far

    @property
    def any_overdue(self) -> bool:
        return any(self.overdue.values())

    @property
    def users(self) -> list[str]:
        """The users whose finished jobs may change the value of a stream."""
        return list(self._user_streams)

    def longest_overdue(self, pool: str, most: int) -> Sequence[Stream]:
        """The overdue streams of the pool with the lowest first job number, at most `most`."""
        found = self._longest_overdue.get(pool)
        if found is None:
            late = self.overdue[pool]
            found = nsmallest(most, late, key=lambda stream: stream.entries[0][1])
            self._longest_overdue[pool] = found
        return found

    def add(self, job: Job, now: float) -> None:
        rules, policy = self.rules.queue(job.queue)
        standing = policy.standing(job, self.rules.rules, rules, now)
        until, late = standing.until, False
        if rules.overdue is not None:
            at = job.since + rules.overdue - job.waited
            late = now >= at
            until = until if late else min(until, at)
        pools, not_before, outdated = self.pools.off_peak(job, self.pools.pools_of(job, now), now)
        if not_before > now:
            until = min(until, not_before)
        shape = self._shape(job, pools)
        stream = self._stream(job, shape, policy, standing.band, late, not_before if not_before > now else 0.0)
        entry = (standing.key, job.number, job.id)
        if not stream.entries:
            self._open(stream)
        stream.add(entry)
        if late:
            self._forget_longest_overdue(shape)
        queued = self.queued[job.id] = Queued(job, stream, entry)
        if self.rules.rules.reselect:
            queued.turn = ((*standing.key[:-1], job.submitted_at, job.since), job.number, job.id)
            insort(stream.turns, queued.turn)
            if standing.until < inf:
                self.timed[job.id] = None
        if shape.gang.spares:
            self.restarting[job.id] = None
        self._may_end_quiet(stream)
        self.mark_changed(shape)
        self.timers.set(job.id, min(until, outdated, self.pools.next_change(job, now)))

    def remove(self, name: str) -> Queued | None:
        queued = self.queued.pop(name, None)
        if queued is None:
            return None
        self._may_end_quiet(queued.stream)
        queued.stream.remove(queued.entry)
        if queued.stream.overdue:
            self._forget_longest_overdue(queued.stream.shape)
        if queued.turn is not None:
            del queued.stream.turns[bisect_left(queued.stream.turns, queued.turn)]
            self.timed.pop(name, None)
        if queued.stream.shape.gang.spares:
            del self.restarting[name]
        if not queued.stream.entries:
            self._close(queued.stream)
        return queued

    def mark_changed(self, shape: Shape) -> None:
        self.changes.shapes[shape] = None
        for pool in shape.gang.pools:
            self.changes.pools[pool] = None

    def mark_pool(self, pool: str) -> None:
        """Marks everything that waits for the pool as changed."""
        if pool in self.shapes:
            self.changes.shapes.update(self.shapes[pool])
            self.changes.pools[pool] = None

    def mark_queue(self, queue: str) -> None:
        self.changes.shapes.update((stream.shape, None) for stream in self.streams[queue])

    def revalue(self, user: str) -> None:
        """Updates the values of the user's streams after new ends in the history."""
        for stream in self._user_streams.get(user, ()):
            if not stream.policy.values:
                continue
            value = stream.policy.value(stream.band, self.state.history)
            if value != stream.value:
                self._drop_value(stream)
                self._may_end_quiet(stream)
                stream.value = value
                self._may_end_quiet(stream)
                for pool in stream.shape.gang.pools:
                    insort(self.most_valuable[pool], (-value, stream.number, stream))
                    self.changes.pools[pool] = None

    def _stream(
        self, job: Job, shape: Shape, policy: Policy, band: Hashable, overdue: bool, not_before: float
    ) -> Stream:
        user = job.user if self.rules.by_user else ""
        name = (job.queue, user, shape, band, overdue, not_before)
        stream = self._known_streams.get(name)
        if stream is None:
            self._made += 1
            stream = Stream(
                job.queue, user, job.user, job.project, shape, band, overdue, not_before, policy,
                self.rules.queue(job.queue)[0], self._made,
            )  # fmt: skip
            self._known_streams[name] = stream
        return stream

    def _open(self, stream: Stream) -> None:
        """Adds a stream to the indexes when it gets its first job."""
        shape = stream.shape
        if not shape.lines:
            for pool in shape.gang.pools:
                self.shapes.setdefault(pool, {})[shape] = None
        shape.lines.setdefault(stream.line, {})[stream] = None
        self.streams[stream.queue][stream] = None
        self._user_streams[stream.band_user][stream] = None
        if stream.policy.values:
            stream.value = stream.policy.value(stream.band, self.state.history)
        for pool in shape.gang.pools:
            if stream.policy.values:
                insort(self.most_valuable[pool], (-stream.value, stream.number, stream))
            if stream.overdue:
                self.overdue[pool][stream] = None

    def _close(self, stream: Stream) -> None:
        """Removes a stream from the indexes after its last job has left."""
        shape = stream.shape
        del shape.lines[stream.line][stream]
        if not shape.lines[stream.line]:
            del shape.lines[stream.line]
        del self.streams[stream.queue][stream], self._user_streams[stream.band_user][stream]
        if stream.policy.values:
            self._drop_value(stream)
        if stream.overdue:
            for pool in shape.gang.pools:
                self.overdue[pool].pop(stream, None)
        if not shape.lines:
            for pool in shape.gang.pools:
                del self.shapes[pool][shape]
                if not self.shapes[pool]:
                    del self.shapes[pool]
            self.changes.shapes.pop(shape, None)
        if len(self._known_streams) > 2 * len(self.queued) + 1000:
            self._known_streams = {name: one for name, one in self._known_streams.items() if one.entries}
            self._known_shapes = {name: one for name, one in self._known_shapes.items() if one.lines}

    def _may_end_quiet(self, stream: Stream) -> None:
        """The stream changes: what is known of pools where it is a candidate to preempt is outdated."""
        for pool in stream.shape.gang.pools:
            quiet = self.quiet.get(pool)
            if quiet is not None:
                if stream.overdue or stream.value > quiet.least:
                    del self.quiet[pool]
                else:
                    quiet.next_value = max(quiet.next_value, stream.value)

    def _forget_longest_overdue(self, shape: Shape) -> None:
        for pool in shape.gang.pools:
            self._longest_overdue.pop(pool, None)

    def _drop_value(self, stream: Stream) -> None:
        for pool in stream.shape.gang.pools:
            line = self.most_valuable[pool]
            del line[bisect_left(line, (-stream.value, stream.number))]

    def _shape(self, job: Job, pools: tuple[str, ...]) -> Shape:
        spec = job.spec
        own = job.id if spec.placement in ("group", "locality") or _blamed(job) else ""
        topology, spares, nodes = spec.topology, "", spec.num_nodes
        if job.attempt is not None and (spares := spares_for(job, self.rules.rules)):
            nodes = min(nodes, len(job.attempt.workers))  # spares replace lost nodes; an elastic gang grows later
        name = (
            job.ask, nodes, spec.min_nodes, pools, spec.placement, topology.require, topology.prefer, own, spares,
        )  # fmt: skip
        shape = self._known_shapes.get(name)
        if shape is None or own:
            gang = GangRequest(job.ask, nodes, pools, spec.placement, topology.require, topology.prefer, spares=spares)
            if own:
                gang = replace(gang, avoid=_blamed(job))
            shape = self._known_shapes[name] = Shape(gang, fewest_nodes(spec), job.ask.weight)
        return shape


def _blamed(job: Job) -> frozenset[str]:
    """The node that caused the job's last attempt to fail, if any."""
    attempt = job.attempt
    if attempt is None or attempt.reason is None or attempt.outcome in (None, "succeeded", "stopped"):
        return frozenset()
    node = attempt.reason.data.get("node")
    return frozenset({node}) if node and attempt.reason.category in ("node", "worker") else frozenset()
