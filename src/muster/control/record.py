"""Writes down once a minute what every pool looked like and how long jobs waited, in roll-ups that are kept for years.

What is stored is merged with what is new and put back, in one transaction with how far it goes. So a server that is
killed loses the minute it was in at most, one that starts goes on in the buckets that it finds, and no start is counted
twice or left out: they are read from the log, from where the stored roll-ups end.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Final

from muster.control.beside import Beside
from muster.control.clock import Clock
from muster.control.submit import peek
from muster.core.estate import Node
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
from muster.monitor.sample import Sampler, add_usable, idle_nodes
from muster.sched.room.fragment import fragmentation
from muster.store.base import Entry, EventFilter, JobFilter, Store
from muster.store.commit import Commit
from muster.store.past import Rollup

EVERY: Final = float(MINUTE)
LONGEST: Final = 3 * EVERY  # seconds that a sample may stand for; of a longer gap nothing is known
_PAGE: Final = 500  # events read at a time

Key = tuple[int, int, str]  # resolution, start, pool


class Recorder:
    """One thread, beside the control loop: neither waits for the other."""

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
            None  # when the last sample was taken, in ms, and what it says
        )
        self._pending: dict[Key, Bucket] = {}  # not stored yet, as far as we know
        self._sent = 0  # ms: up to when the use goes that a write was last tried with
        self._seq: int | None = None  # of the last event that is counted; None: ask the store
        self._begin: int | None = None  # of the last event before the record, where this recorder began it
        self._thread = Beside("record", self.step, may_act, self._until_next)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Writes what there is, if it can."""
        self._thread.close(once_more=True)

    def step(self) -> None:
        """One sample, stored with what came before it. Raises Unavailable or Conflict when it can't be stored now."""
        if self._seq is None:
            self._recover()
        now = round(1000 * self._clock.now())
        samples, version = self._look()
        if self._seq is None:  # a store without a past
            self._seq = self._begin = version
        self._count_use(now, samples)
        self._flush(now, version)

    def _until_next(self, spent: float) -> float:
        return EVERY - self._clock.now() % EVERY

    def _recover(self) -> None:
        """Goes on from what is stored; a write whose answer was lost may be there after all."""
        mark = self._store.rollup_mark(DAY)
        if self._sent and mark.until >= self._sent:
            self._pending.clear()
        self._seq = mark.seq if mark.until else self._begin

    def _look(self) -> tuple[dict[str, Sample], int]:
        """What every pool looks like, and the version that says so."""

        def look(state: State) -> tuple[dict[str, dict[str, int]], list[Node], int]:
            return self._sampler.sample(state), idle_nodes(state), state.version

        found: list[tuple[dict[str, dict[str, int]], list[Node], int]] = []
        self._commit.submit(peek(found, look)).result()
        samples, nodes, version = found[0]
        # This takes longer than the rest, so it is done when nobody waits for the state.
        pools = fragmentation(nodes, self._sampler.typical()).pools
        add_usable(samples, {pool: part.usable for pool, part in pools.items()})
        return {**samples}, version

    def _count_use(self, now: int, samples: dict[str, Sample]) -> None:
        """The last sample held until now."""
        last, self._last = self._last, (now, samples)
        if last is None or now - last[0] > 1000 * LONGEST:
            return
        for pool, sample in last[1].items():
            for resolution in KEPT:
                for start, bucket in held(sample, last[0], now, resolution):
                    key = (resolution, start, pool)
                    self._pending[key] = merge([self._pending.get(key, EMPTY), bucket])

    def _flush(self, now: int, version: int) -> None:
        assert self._seq is not None
        new: defaultdict[Key, list[Bucket]] = defaultdict(list)
        for key, bucket in (*self._pending.items(), *self._waits(self._seq, version)):
            new[key].append(bucket)
        if not new:
            return
        rows = self._merged(new, version, now)
        forget = {each: start_of(now / 1000 - kept, each) for each, kept in KEPT.items() if kept is not None}
        self._sent, self._seq = now, None
        self._commit.submit(lambda state: Entry(rollups=rows, forget=forget)).result()
        self._pending.clear()
        self._seq = version

    def _merged(self, new: dict[Key, list[Bucket]], seq: int, until: int) -> list[Rollup]:
        stored: dict[Key, Bucket] = {}
        for resolution in KEPT:
            starts = [key[1] for key in new if key[0] == resolution]
            for row in self._store.rollups(resolution, None, min(starts), max(starts) + 1):
                stored[(row.resolution, row.start, row.pool)] = from_text(row.data)
        return [
            Rollup(*key, seq, until, to_text(merge([stored.get(key, EMPTY), *buckets]))) for key, buckets in new.items()
        ]

    def _waits(self, after: int, version: int) -> Iterator[tuple[Key, Bucket]]:
        """One bucket for each resolution, and for the pool and all pools, of every job that started since."""
        for job in self._started(after, version):
            assert job.started_at is not None
            bucket = waited(job.started_at - job.submitted_at)
            for pool in {ALL, self._pool(job)}:
                for resolution in KEPT:
                    yield (resolution, start_of(job.started_at, resolution), pool), bucket

    def _started(self, after: int, version: int) -> Iterator[Job]:
        """Jobs whose first start is among the events after one and up to another."""
        while page := self._starts(after):
            begun = {(event.job, event.time) for event in page if event.seq <= version}
            ids = sorted({job_id for job_id, _ in begun})
            jobs = self._store.jobs(JobFilter(ids=ids, limit=len(ids))) if ids else []
            yield from (job for job in jobs if (job.id, job.started_at) in begun)
            after = page[-1].seq
            if after > version:
                break

    def _starts(self, after: int) -> list[Event]:
        return self._store.events(EventFilter(kind="attempt.running", after=after, limit=_PAGE))

    def _pool(self, job: Job) -> str:
        """Where it sits, or what it asked for if its node has left since."""
        return (job.attempt.pool if job.attempt is not None else "") or job.spec.pool or ALL
