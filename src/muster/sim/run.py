"""Replays a trace through the real controller on a virtual clock, which jumps from one event to the next.

At every instant, gang events come first, then lost and returned nodes, then submissions in the order of the trace. Then
the controller ticks until it has nothing more to do. The same trace and setup give the same result.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import inf
from typing import Final

from pydantic import ValidationError

from muster.control.loop import Controller
from muster.control.submit import Submission, submit
from muster.core.event import Event
from muster.core.job_events import JobSubmitted
from muster.engines.sim import SimEngine
from muster.monitor.alerts.replay import Replayed, Tested, World
from muster.sim.faults import Faults
from muster.sim.inventory import ENGINE, Specs, accelerators, nodes_of, opening
from muster.sim.model import JobResult, Result, Setup, TraceJob
from muster.sim.quota_waits import QuotaWaits
from muster.sim.samples import Samples, typical_of
from muster.sim.work import Clock, JobProgress, Work
from muster.store.base import Entry, Proposal
from muster.store.direct import DirectCommit, LiveStore
from muster.wire import WorkerExit

# The clock starts on a Monday, 1970-01-05 00:00 UTC, so that weekdays in the rules have a meaning and no time is 0.
EPOCH: Final = 345_600.0
AUDIT_EVERY: Final = 86_400.0  # seconds of trace time; the engine misses nothing, so this is only a check
_GC: Final = (50_000, 20, 50)  # few cycles and many objects; see `server.leader`
_MOST_TICKS: Final = 1_000  # at one instant
ALERTS_EVERY: Final = 60.0  # seconds between two looks for alerts, at least
ALERT_LOOKS: Final = 16  # between two instants, at most


def replay(trace: Sequence[TraceJob], setup: Setup, progress: Callable[[float], None] | None = None) -> Result:
    """Simulates the trace. `progress` is called about a hundred times with the fraction of jobs that are done."""
    began = time.perf_counter()
    with _few_collections():
        replay_ = _Replay(trace, setup, progress)
        result = replay_.run()
    result.wall = time.perf_counter() - began
    return result


class _Replay:
    def __init__(self, trace: Sequence[TraceJob], setup: Setup, progress: Callable[[float], None] | None) -> None:
        self._setup, self._progress = setup, progress
        self._jobs = [JobResult(job) for job in trace]
        self._order = sorted(range(len(trace)), key=lambda index: (trace[index].submit, index))
        self._next = 0  # index in `_order` of the next submission
        first, last = (trace[self._order[end]].submit for end in (0, -1)) if trace else (inf, inf)
        self._submits_at = EPOCH + first
        self._clock = Clock(EPOCH + min(first, 0.0))
        nodes = nodes_of(setup.cluster)
        self._engine = SimEngine(nodes, self._clock.now, name=ENGINE, audit_every=AUDIT_EVERY, remember=False)
        self._quota_waits = QuotaWaits(setup.rules, setup.cluster.pools)
        pools = {node.name: node.pool for node in nodes}
        self._work = self._engine.player = Work(self._clock, setup.costs, self._engine, self._quota_waits, pools)
        spot = frozenset(pool.name for pool in setup.cluster.pools if pool.spot)
        self._faults = Faults(nodes, spot, setup.costs, self._clock.time)
        self._store = LiveStore()
        self._commit = DirectCommit(self._store, self._committed)
        self._controller = Controller(self._commit, self._engine, self._clock, lambda job, attempt: "", lambda: True)
        self._specs = Specs(setup)
        self._admitted: set[int] = set()  # ids of specs admitted since nodes were last added or lost
        self._total = accelerators(nodes)
        self._samples = Samples(EPOCH, last - first if trace else 0.0, typical_of(trace, self._specs))
        self._rounds = 0
        self._reported = 0.0
        self._alerts: World | None = None

    def run(self) -> Result:
        self._store.open()
        now = self._clock.time
        if (rules := self._setup.alerts) is not None:
            self._alerts = World(rules, Replayed({name: Tested() for name in rules.rules}, now), self._store.state())
        self._commit.run([lambda state: Entry(opening([result.job for result in self._jobs], self._setup, now))])
        self._controller.adopt()
        self._settle()
        while (at := self._next_instant()) < inf:
            self._look_for_alerts(at)
            self._clock.time = max(at, self._clock.time)
            self._deliver()
            self._settle()
            self._quota_waits.settle(self._clock.time)
            if self._clock.time >= self._samples.due:
                self._samples.take(self._clock.time, self._work, self._total, self._store.state())
            self._report_progress()
        return self._result()

    def _look_for_alerts(self, until: float) -> None:
        """Looks some times before the next instant: nothing happens until then, but waits grow."""
        if self._alerts is None or until - self._alerts.looked < ALERTS_EVERY:
            return
        first = max(self._clock.time, self._alerts.looked + ALERTS_EVERY)
        step = max(ALERTS_EVERY, (until - first) / ALERT_LOOKS)
        while first < until:
            self._alerts.look(first, inf)
            first += step

    def _committed(self, events: Sequence[Event]) -> None:
        self._controller.on_commit(events)
        if self._alerts is not None:
            for event in events:
                self._alerts.note(event)

    def _next_instant(self) -> float:
        """The time of the next event; inf when all jobs have ended, or the remaining ones can never start."""
        happens, wake, faults = self._submits_at, self._controller.next_wake(), self._faults
        if happens == inf and not self._store.state().jobs:
            return inf
        happens = min(happens, self._work.next_time(), inf if wake is None else wake, faults.next_repair)
        return happens if happens == inf else min(happens, faults.next_failure)

    def _deliver(self) -> None:
        now = self._clock.time
        if self._work.next_time() <= now and (saves := self._work.deliver()):
            self._commit.run([lambda state: Entry(saves)])
        if self._faults.next_failure <= now or self._faults.next_repair <= now:
            self._fail_nodes()
        if self._submits_at <= now:
            self._submit()

    def _fail_nodes(self) -> None:
        now = self._clock.time
        self._admitted.clear()
        for node in self._faults.repaired(now):
            self._engine.join(node)
            self._total += node.resources.accelerators
        for node in self._faults.failed(now):
            for job_id in sorted(self._store.state().nodes[node.name].jobs):
                self._break(job_id, node.name)
            self._engine.lose(node.name)
            self._total -= node.resources.accelerators

    def _break(self, job_id: str, node: str) -> None:
        """Ends the job's workers on a lost node."""
        attempt = self._store.state().jobs[job_id].attempt
        assert attempt is not None
        self._work.fail(job_id)
        gone = WorkerExit("failed", "node_lost", f"{node} is gone", self._clock.time)
        for index, worker in enumerate(attempt.workers):
            if worker.seat.node == node:
                self._engine.end(job_id, attempt.number, gone, index)

    def _submit(self) -> None:
        """Submits all jobs of this instant; each is accepted or rejected separately."""
        proposals: list[Proposal] = []
        results: list[tuple[JobResult, int]] = []
        while self._submits_at <= self._clock.time:
            result = self._advance()
            try:
                spec, like = self._specs.of(result.job)
            except ValidationError as error:
                result.refused = "; ".join(f"{one['loc']}: {one['msg']}" for one in error.errors())
                continue
            submission, known = Submission(spec, result.job.user or "nobody"), id(like) in self._admitted
            now, quota = self._clock.time, self._setup.quota
            proposals.append(submit(self._store, submission, now, False, whole=True, admitted=known, quota=quota))
            results.append((result, id(like)))
        for (result, kind), answer in zip(results, self._commit.each(proposals), strict=True):
            if isinstance(answer, Exception):
                result.refused = str(answer)
            else:
                event = answer[0]
                self._admitted.add(kind)
                assert isinstance(event.data, JobSubmitted)
                queue = event.data.queue
                bound = self._setup.cluster.bound.get(queue, "")
                self._work.enter(event.job, JobProgress(result, event.project, queue, bound))

    def _advance(self) -> JobResult:
        """Returns the next job in the order of submission and moves on."""
        result = self._jobs[self._order[self._next]]
        self._next += 1
        more = self._next < len(self._order)
        self._submits_at = EPOCH + self._jobs[self._order[self._next]].job.submit if more else inf
        return result

    def _settle(self) -> None:
        """Ticks until there is nothing more to do at this instant."""
        wake = self._controller.next_wake()
        if not self._controller.pending and (wake is None or wake > self._clock.time):
            return
        for _ in range(_MOST_TICKS):
            self._controller.tick()
            self._rounds += 1
            if not self._controller.pending:
                return
        raise RuntimeError(f"the plans at {self._clock.time - EPOCH} s follow each other without an end")

    def _report_progress(self) -> None:
        share = (self._next - len(self._work.plays)) / len(self._jobs)
        if share - self._reported >= 0.01 and self._progress is not None:
            self._reported = share
            self._progress(share)

    def _result(self) -> Result:
        for result in self._jobs:
            if result.started is not None:
                result.started -= EPOCH
            if result.finished is not None:
                result.finished -= EPOCH
        fired = {name: one.fired for name, one in self._alerts.found.rules.items()} if self._alerts is not None else {}
        version = self._store.state().version
        return Result(self._setup, self._jobs, self._samples.taken, self._rounds, version, alerts=fired)


@contextmanager
def _few_collections() -> Iterator[None]:
    """Excludes existing objects from garbage collection and runs it less often.

    If objects are already frozen, they stay as they are: one full collection may take longer than the replay.
    """
    before, frozen = gc.get_threshold(), gc.get_freeze_count()
    if not frozen:
        gc.collect()
        gc.freeze()
    gc.set_threshold(*_GC)
    try:
        yield
    finally:
        gc.set_threshold(*before)
        if not frozen:
            gc.unfreeze()
