"""Replays a trace through the real controller on a virtual clock, which jumps from one event to the next.

At every instant, gang events come first, then lost and returned nodes, then submissions in the order of the trace. Then
the controller ticks, and studies are looked at, until there is nothing more to do. The same trace and setup give the
same result.
"""

from __future__ import annotations

import gc
import heapq
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import inf
from typing import Final

from pydantic import ValidationError

from muster.control.budget_watch import budget_stops, reserve_changes
from muster.control.loop import Controller
from muster.control.submit import Submission, submit
from muster.core.cost_events import AttemptCharged
from muster.core.event import Event
from muster.core.job_events import JobSubmitted
from muster.engines.sim import SimEngine
from muster.monitor.alerts.replay import Replayed, Tested, World
from muster.sim.faults import Faults
from muster.sim.inventory import ENGINE, Specs, accelerators, nodes_of, opening
from muster.sim.model import JobResult, Result, Setup, TraceJob
from muster.sim.money import MoneyTally, has_prices
from muster.sim.quota_waits import QuotaWaits
from muster.sim.samples import Samples, typical_of
from muster.sim.studies import StudyWorld
from muster.sim.trials import Trials
from muster.sim.work import Clock, JobProgress, Work
from muster.store.base import Entry, Proposal, Store
from muster.store.commit import Commit
from muster.store.direct import DirectCommit, LiveStore, SerialCommit
from muster.wire import WorkerExit

# The clock starts on a Monday, 1970-01-05 00:00 UTC, so that weekdays in the rules have a meaning and no time is 0.
EPOCH: Final = 345_600.0
AUDIT_EVERY: Final = 86_400.0  # seconds of trace time; the engine misses nothing, so this is only a check
_GC: Final = (50_000, 20, 50)  # few cycles and many objects; see `server.leader`
_MOST_TICKS: Final = 1_000  # at one instant
ALERTS_EVERY: Final = 60.0  # seconds between two looks for alerts, at least
ALERT_LOOKS: Final = 16  # between two instants, at most
BUDGETS_EVERY: Final = 300.0  # seconds between two looks at budgets


def replay(trace: Sequence[TraceJob], setup: Setup, progress: Callable[[float], None] | None = None) -> Result:
    """Simulates the trace. `progress` is called about a hundred times with the fraction of jobs that are done."""
    began = time.perf_counter()
    with few_collections():
        result = Simulation(trace, setup, progress).run()
    result.wall = time.perf_counter() - began
    return result


class Simulation:
    """One setup. With a `store` that keeps its log, the server can be killed in the middle, and `restart` goes on."""

    def __init__(
        self,
        trace: Sequence[TraceJob],
        setup: Setup,
        progress: Callable[[float], None] | None = None,
        store: Store | None = None,
    ) -> None:
        self._setup, self._progress = setup, progress
        self._jobs = [JobResult(job) for job in trace]
        self._order = sorted(range(len(trace)), key=lambda index: (trace[index].submit, index))
        self._next = 0  # index in `_order` of the next submission
        first, last = (trace[self._order[end]].submit for end in (0, -1)) if trace else (inf, inf)
        self._submits_at = EPOCH + first
        self.clock = self._clock = Clock(EPOCH + min([first, 0.0, *(study.submit for study in setup.studies)]))
        nodes = nodes_of(setup.cluster)
        self._engine = SimEngine(nodes, self._clock.now, name=ENGINE, audit_every=AUDIT_EVERY, remember=False)
        self._quota_waits = QuotaWaits(setup.rules, setup.cluster.pools)
        pools = {node.name: node.pool for node in nodes}
        self.work = self._work = Work(self._clock, setup.costs, self._engine, self._quota_waits, pools)
        self._engine.player = self._work
        spot = frozenset(pool.name for pool in setup.cluster.pools if pool.spot)
        self._faults = Faults(nodes, spot, setup.costs, self._clock.time)
        self.store, self._commit = _store_of(store, self.committed)
        self.studies: StudyWorld | None = None
        if setup.studies:
            self._engine.player = trials = Trials(self._clock, setup.costs, self._engine, self._work)
            self.studies = StudyWorld(setup, self.store, self._clock, EPOCH, trials, whole=store is None)
        self.start(self._commit)
        self._specs, self._whole = Specs(setup), store is None
        self._admitted: set[int] = set()  # ids of specs admitted since nodes were last added or lost
        self.on_refusal: Callable[[JobResult], None] | None = None
        self._total = accelerators(nodes)
        self._samples = Samples(EPOCH, last - first if trace else 0.0, typical_of(trace, self._specs))
        self._rounds = 0
        self._reported = 0.0
        self._alerts: World | None = None
        self._money: MoneyTally | None = None
        self._budgets_at = EPOCH if setup.budgets else inf  # when budgets are looked at next
        self._later: list[tuple[float, int, Callable[[], None]]] = []

    def run(self) -> Result:
        self.open()
        while self.step():
            pass
        return self.result()

    def start(self, commit: Commit) -> None:
        """Makes the server's part, which commits by `commit`. It knows nothing but what the store has."""
        self._controller = Controller(commit, self._engine, self._clock, lambda job, attempt: "", lambda: True)
        if self.studies is not None:
            self.studies.start(commit)

    def restart(self, commit: Commit) -> None:
        """After the server was killed: another one takes over what runs."""
        self.store.reload()
        self.start(commit)
        self._controller.adopt()

    def at(self, seconds: float, do: Callable[[], None]) -> None:
        """Something that happens at a time of the trace."""
        heapq.heappush(self._later, (EPOCH + seconds, len(self._later), do))

    def propose(self, *proposals: Proposal) -> list[list[Event] | Exception]:
        """What people and launchers do: it is not lost when the server is killed, since they do it again."""
        return self._commit.each(proposals)

    def open(self) -> None:
        self.store.open()
        now = self._clock.time
        if (rules := self._setup.alerts) is not None:
            self._alerts = World(rules, Replayed({name: Tested() for name in rules.rules}, now), self.store.state())
        self._commit.run([lambda state: Entry(opening([result.job for result in self._jobs], self._setup, now))])
        if has_prices(self._setup):
            self._money = MoneyTally(self.store.state(), self._setup.cluster, now)
        self._controller.adopt()
        self.settle()

    def step(self) -> bool:
        """Goes on to the next instant; False if there is none."""
        if (at := self._next_instant()) == inf:
            return False
        self._look_for_alerts(at)
        self._clock.time = max(at, self._clock.time)
        self._deliver()
        self.settle()
        self._quota_waits.settle(self._clock.time)
        if self._clock.time >= self._samples.due:
            self._samples.take(self._clock.time, self._work, self._total, self.store.state())
        self._report_progress()
        return True

    def _look_for_alerts(self, until: float) -> None:
        """Looks some times before the next instant: nothing happens until then, but waits grow."""
        if self._alerts is None or until - self._alerts.looked < ALERTS_EVERY:
            return
        first = max(self._clock.time, self._alerts.looked + ALERTS_EVERY)
        step = max(ALERTS_EVERY, (until - first) / ALERT_LOOKS)
        while first < until:
            self._alerts.look(first, inf)
            first += step

    def committed(self, events: Sequence[Event]) -> None:
        """Called after each commit that wrote something."""
        self._controller.on_commit(events)
        if self._money is not None:
            for event in events:
                if isinstance(event.data, AttemptCharged):
                    self._money.add(event.data)
        if self._alerts is not None:
            for event in events:
                self._alerts.note(event)
        if self.studies is not None:
            self.studies.on_commit(events, self.store.state())

    def _next_instant(self) -> float:
        """The time of the next event; inf when all jobs have ended, or the remaining ones can never start."""
        happens, wake, faults = self._submits_at, self._controller.next_wake(), self._faults
        if self._later:
            happens = min(happens, self._later[0][0])
        if happens == inf and not self.store.state().jobs and (self.studies is None or self.studies.is_over):
            return inf
        happens = min(happens, self._work.next_time(), inf if wake is None else wake, faults.next_repair)
        if self.studies is not None:
            happens = self.studies.next_time(happens)
        if happens < inf:  # a look at budgets alone changes nothing for jobs that can never start
            happens = min(happens, self._budgets_at)
        return happens if happens == inf else min(happens, faults.next_failure)

    def _deliver(self) -> None:
        now = self._clock.time
        if self._work.next_time() <= now and (saves := self._work.deliver()):
            self._commit.run([lambda state: Entry(saves)])
        if self.studies is not None:
            if self.studies.trials.next_time() <= now and (kept := self.studies.trials.deliver()):
                self._commit.run([lambda state: Entry(kept)])
            self.studies.begin(self._commit)
        if self._faults.next_failure <= now or self._faults.next_repair <= now:
            self._fail_nodes()
        if self._submits_at <= now:
            self._submit()
        while self._later and self._later[0][0] <= now:
            heapq.heappop(self._later)[2]()
        if self._budgets_at <= now:
            self._budgets_at = now + BUDGETS_EVERY
            self._commit.run([lambda state: Entry([*reserve_changes(state, now), *budget_stops(state, now)])])

    def _fail_nodes(self) -> None:
        now = self._clock.time
        self._admitted.clear()
        for node in self._faults.repaired(now):
            self._engine.join(node)
            self._total += node.resources.accelerators
        for node in self._faults.failed(now):
            for job_id in sorted(self.store.state().nodes[node.name].jobs):
                self._break(job_id, node.name)
            self._engine.lose(node.name)
            self._total -= node.resources.accelerators

    def _break(self, job_id: str, node: str) -> None:
        """Ends the job's workers on a lost node."""
        attempt = self.store.state().jobs[job_id].attempt
        assert attempt is not None
        self._work.fail(job_id)
        if self.studies is not None:
            self.studies.trials.fail(job_id)
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
                self._refuse(result, "; ".join(f"{one['loc']}: {one['msg']}" for one in error.errors()))
                continue
            submission, known = Submission(spec, result.job.user or "nobody"), id(like) in self._admitted
            now, quota = self._clock.time, self._setup.quota
            proposals.append(submit(self.store, submission, now, False, self._whole, admitted=known, quota=quota))
            results.append((result, id(like)))
        for (result, kind), answer in zip(results, self._commit.each(proposals), strict=True):
            if isinstance(answer, Exception):
                self._refuse(result, str(answer))
            else:
                event = answer[0]
                self._admitted.add(kind)
                assert isinstance(event.data, JobSubmitted)
                queue = event.data.queue
                bound = self._setup.cluster.bound.get(queue, "")
                self._work.enter(event.job, JobProgress(result, event.project, queue, bound))

    def _refuse(self, result: JobResult, why: str) -> None:
        result.refused = why
        if self.on_refusal is not None:
            self.on_refusal(result)

    def _advance(self) -> JobResult:
        """Returns the next job in the order of submission and moves on."""
        result = self._jobs[self._order[self._next]]
        self._next += 1
        more = self._next < len(self._order)
        self._submits_at = EPOCH + self._jobs[self._order[self._next]].job.submit if more else inf
        return result

    def settle(self) -> None:
        """Ticks, and looks at studies, until there is nothing more to do at this instant."""
        wake = self._controller.next_wake()
        due = self._controller.pending or (wake is not None and wake <= self._clock.time)
        for _ in range(_MOST_TICKS):
            if due:
                self._controller.tick()
                self._rounds += 1
            looked = not self._controller.pending and self.studies is not None and self.studies.look()
            due = self._controller.pending
            if not due and not looked:
                return
        raise RuntimeError(f"the plans at {self._clock.time - EPOCH} s follow each other without an end")

    @property
    def share(self) -> float:
        """The fraction of the jobs that are done."""
        return (self._next - len(self._work.plays)) / max(len(self._jobs), 1)

    def _report_progress(self) -> None:
        if self._progress is not None and (share := self.share) - self._reported >= 0.01:
            self._reported = share
            self._progress(share)

    def result(self) -> Result:
        for result in self._jobs:
            if result.started is not None:
                result.started -= EPOCH
            if result.finished is not None:
                result.finished -= EPOCH
        fired = {name: one.fired for name, one in self._alerts.found.rules.items()} if self._alerts is not None else {}
        version = self.store.state().version
        money = self._money.total(self._clock.time) if self._money is not None else None
        studies = self.studies.finish(self.store.state()) if self.studies is not None else []
        return Result(
            self._setup, self._jobs, self._samples.taken, self._rounds, version, alerts=fired, money=money,
            studies=studies,
        )  # fmt: skip


def _store_of(store: Store | None, on_commit: Callable[[Sequence[Event]], None]) -> tuple[Store, SerialCommit]:
    """Unless one is given, a store that keeps the live state alone."""
    if store is not None:
        return store, SerialCommit(store, on_commit)
    live = LiveStore()
    return live, DirectCommit(live, on_commit)


@contextmanager
def few_collections() -> Iterator[None]:
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
