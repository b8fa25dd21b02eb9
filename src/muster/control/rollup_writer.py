"""Records once a minute the use of every pool and the waits of jobs, in roll-ups that are kept for years.

New values are merged with the stored ones and written in one transaction with the mark of the follower. So a server
that is killed loses at most the current minute, a server that starts continues the stored buckets, and no start is
counted twice or left out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from muster.control.clock import Clock
from muster.control.follow import Follower
from muster.control.submit import peek
from muster.core.entities import Node
from muster.core.entities.demand import TypicalWork, typical_work
from muster.core.event import Event
from muster.core.job import Job
from muster.core.state import State
from muster.monitor.rollup import (
    ALL,
    DAY,
    EMPTY,
    KEPT,
    MINUTE,
    Bucket,
    Sample,
    from_text,
    held,
    merge,
    start_of,
    to_text,
    waited,
)
from muster.monitor.sample import Sampler, add_stranded, add_usable, idle_nodes
from muster.sched.capacity.fragment import fragmentation
from muster.sched.capacity.stranded import stranded
from muster.store.base import Entry, JobFilter, Store
from muster.store.commit import Commit
from muster.store.past import Rollup

EVERY: Final = float(MINUTE)
LONGEST: Final = 3 * EVERY  # maximum seconds that a sample stands for; a longer gap counts as unknown

Key = tuple[int, int, str]  # resolution, start, pool


class RollupWriter:
    """The fold of `follower`, whose thread runs beside the control loop: neither waits for the other."""

    def __init__(
        self,
        store: Store,
        commit: Commit,
        clock: Clock,
        may_act: Callable[[], bool],
    ) -> None:
        self._store, self._commit, self._clock = store, commit, clock
        self._sampler = Sampler()
        self._last: tuple[int, dict[str, Sample]] | None = (
            None  # the time of the last sample in ms, and the sample by pool
        )
        self._pending: dict[Key, Bucket] = {}  # not stored yet, as far as known
        self._sent = 0  # ms: end of the use that the last write contained, whether or not it succeeded
        self.follower = Follower(
            "rollups", self.fold, store, commit, may_act, kind="attempt.running", begin="last", every=self._until_next
        )

    def fold(self, events: Sequence[Event]) -> Entry:
        """Takes one sample; returns it with the starts among the events and what could not be stored before."""
        if self._sent and self._store.rolled_up_until(DAY) >= self._sent:
            self._pending.clear()
        now = round(1000 * self._clock.now())
        self._count_use(now, self._look())
        new: defaultdict[Key, list[Bucket]] = defaultdict(list)
        for key, bucket in (*self._pending.items(), *self._waits(events)):
            new[key].append(bucket)
        if not new:
            return Entry()
        forget = {each: start_of(now / 1000 - kept, each) for each, kept in KEPT.items() if kept is not None}
        self._sent = now
        return Entry(rollups=self._merged(new, now), forget=forget)

    def _until_next(self) -> float:
        return EVERY - self._clock.now() % EVERY

    def _look(self) -> dict[str, Sample]:
        """A sample of every pool."""

        def look(state: State) -> tuple[dict[str, dict[str, int]], list[Node], TypicalWork]:
            return self._sampler.sample(state), idle_nodes(state), typical_work(state)

        found: list[tuple[dict[str, dict[str, int]], list[Node], TypicalWork]] = []
        self._commit.submit(peek(found, look)).result()
        samples, nodes, typical = found[0]
        # This takes longer than the rest, so it runs outside the commit.
        pools = fragmentation(nodes, self._sampler.typical()).pools
        add_usable(samples, {pool: part.usable for pool, part in pools.items()})
        lost = stranded(nodes, typical)
        add_stranded(samples, {pool: (one.cpus, one.memory, one.accelerators) for pool, one in lost.items()})
        return {**samples}

    def _count_use(self, now: int, samples: dict[str, Sample]) -> None:
        """Adds the last sample to the pending buckets, for the time from then until now."""
        last, self._last = self._last, (now, samples)
        if last is None or now - last[0] > 1000 * LONGEST:
            return
        for pool, sample in last[1].items():
            for resolution in KEPT:
                for start, bucket in held(sample, last[0], now, resolution):
                    key = (resolution, start, pool)
                    self._pending[key] = merge([self._pending.get(key, EMPTY), bucket])

    def _merged(self, new: dict[Key, list[Bucket]], until: int) -> list[Rollup]:
        stored: dict[Key, Bucket] = {}
        for resolution in KEPT:
            starts = [key[1] for key in new if key[0] == resolution]
            for row in self._store.rollups(resolution, None, min(starts), max(starts) + 1):
                stored[(row.resolution, row.start, row.pool)] = from_text(row.data)
        return [Rollup(*key, until, to_text(merge([stored.get(key, EMPTY), *buckets]))) for key, buckets in new.items()]

    def _waits(self, events: Sequence[Event]) -> Iterator[tuple[Key, Bucket]]:
        """Buckets for each first start of a job: for each resolution, in its pool and in all pools."""
        begun = {(event.job, event.time) for event in events}
        ids = sorted({job_id for job_id, _ in begun})
        for job in self._store.jobs(JobFilter(ids=ids, limit=len(ids))) if ids else []:
            if job.started_at is None or (job.id, job.started_at) not in begun:
                continue
            bucket = waited(job.started_at - job.submitted_at)
            for pool in {ALL, self._pool(job)}:
                for resolution in KEPT:
                    yield (resolution, start_of(job.started_at, resolution), pool), bucket

    def _pool(self, job: Job) -> str:
        """The pool that the job runs in, or the one that it asked for if its node has left since."""
        return (job.attempt.pool if job.attempt is not None else "") or job.pool or ALL
