"""One simulated future: the real scheduler on a copy of the state, where gangs end after randomly drawn run times."""

from __future__ import annotations

from heapq import heappop, heappush
from math import inf
from typing import Final, Literal

from muster.core.attempt_events import AttemptEnded, AttemptPlanned, AttemptRunning
from muster.core.event import SYSTEM, Event
from muster.core.job import Job
from muster.core.job_events import JobClaimed, JobRequeued, JobStopping, JobSubmitted, JobSucceeded
from muster.core.payload import Payload
from muster.core.plan import Plan
from muster.core.reasons import reason
from muster.core.state import apply
from muster.sched.board import Board
from muster.sched.draws import Draw
from muster.sched.order import attained
from muster.sched.schedule import schedule
from muster.sched.settle import settle
from muster.sched.snapshot import Snapshot

LEAVES: Final = 10.0  # seconds that a preempted gang takes to save and leave, within its grace
GRAIN: Final = 0.03  # a round may be late by this fraction of the simulated time so far, which saves rounds
LEAST: Final = 1.0  # minimum seconds between rounds when rounds may be late
SETUP: Final = 20.0  # copying this many jobs costs as much as one round of a small cluster, about a millisecond
NODES: Final = 40.0  # and this many nodes as well
HEAVY: Final = 20.0  # a round costs one more small-cluster round for every 20 running gangs

What = Literal["end", "leave"]


class Future:
    """A future without new submissions and without node failures, in which every gang succeeds."""

    def __init__(
        self,
        snapshot: Snapshot,
        draw: Draw,
        sample: int,
        leaves: float = LEAVES,
        grain: float = GRAIN,
        learns: bool = False,
    ) -> None:
        """`learns`: run times are the true ones, not drawn from the history, so the history should learn from them."""
        self.state, self.board, self.now = snapshot.new_state(), Board(), snapshot.now
        self.started: dict[str, float] = {}  # job → start time of its next attempt
        self.cost = len(snapshot.jobs) / SETUP + len(snapshot.nodes) / NODES  # in rounds of a small cluster
        self._draw, self._sample, self._leaves, self._grain = draw, sample, leaves, grain
        self._began, self._learns = snapshot.now, learns
        self._totals: dict[str, float] = {}  # total run time of each job in seconds
        self._timed_events: list[tuple[float, str, What, int]] = []  # when, job, what, attempt
        for name in self.state.active:
            self._foresee(self.state.jobs[name])

    def run(self, wanted: set[str], until: float, rounds: float) -> bool:
        """Runs until all `wanted` jobs have started; False when the time or the rounds ran out first."""
        while True:
            wake = self.settle()
            if wanted <= self.started.keys():
                return True
            at = min(self._timed_events[0][0] if self._timed_events else inf, inf if wake is None else wake)
            if at == inf:
                self.now = inf  # nothing will change any more
                return False
            if at > until or self.cost >= rounds:
                return False
            self.now = max(at, self._not_before())
            self._deliver()

    def _not_before(self) -> float:
        """The earliest time of the next round."""
        return self.now + max(self._grain * (self.now - self._began), LEAST) if self._grain else self.now

    def settle(self) -> float | None:
        """Runs rounds at one instant until no decision is left. Returns when time alone will change that, or None."""
        while True:
            while self.state.settled:
                for event in settle(self.state, self.now):
                    self._apply(event.data, self.state.jobs[event.job])
            plan = schedule(self.state, self.now, self.board)
            self.cost += 1.0 + len(self.state.active) / HEAVY
            self._carry_out(plan)
            if self._timed_events and self._timed_events[0][0] <= self.now:
                self._deliver()
            elif not (plan.starts or plan.yields):
                return plan.wake_at if plan.wake_at is not None and plan.wake_at > self.now else None

    def submit(self, job: Job) -> None:
        needs = dict(job.needs) or None
        self._apply(JobSubmitted(job.number, job.queue, job.user, job.spec, expect=job.expect, needs=needs), job, 0)

    def _carry_out(self, plan: Plan) -> None:
        for start in plan.starts:
            job = self.state.jobs[start.job]
            number = (job.attempt.number if job.attempt else 0) + 1
            self._apply(AttemptPlanned(start.seats), job, number)
            self._apply(AttemptRunning(), job, number)
            self.started.setdefault(job.id, self.now)
            self._foresee(job)
        for leave in plan.yields:
            self._apply(JobStopping(leave.reason, "queued", leave.grace), self.state.jobs[leave.job])
            self._foresee(self.state.jobs[leave.job])
        for claim in plan.claims:
            self._apply(JobClaimed(claim.seats), self.state.jobs[claim.job])

    def _foresee(self, job: Job) -> None:
        """Schedules the time at which the attempt ends, or leaves after a preemption."""
        assert job.attempt is not None
        age = attained(job, self.now)
        total = self._totals.get(job.id)
        if total is None:
            total = self._totals[job.id] = self._draw(job, age, self._sample)
        speed = len(job.attempt.workers) / job.spec.num_nodes
        number = job.attempt.number
        if job.stop is not None:
            stop = job.stop
            at = stop.at + min(stop.grace, self._leaves)
            if at < self.now:  # it takes longer than assumed: use its full grace
                at = max(stop.at + stop.grace, self.now)
            heappush(self._timed_events, (min(at, self.now + max(total - age, 0.0) / speed), job.id, "leave", number))
        else:
            heappush(self._timed_events, (self.now + max(total - age, 0.0) / speed, job.id, "end", number))

    def _deliver(self) -> None:
        while self._timed_events and self._timed_events[0][0] <= self.now:
            _, name, what, number = heappop(self._timed_events)
            job = self.state.jobs.get(name)
            if job is None or not job.active or job.attempt is None or job.attempt.number != number:
                continue
            if (what == "leave") == (job.stop is not None):
                self._end(job)

    def _end(self, job: Job) -> None:
        done = job.stop is None or job.stop.then == "stopped"
        why = _COMPLETED if job.stop is None else job.stop.reason
        self._apply(AttemptEnded("succeeded" if done else "stopped", why), job)
        if done:
            if not self._learns:
                job.ran = 0.0  # the state's history learns from `ran`
            self._apply(JobSucceeded(why), job)
            self._totals.pop(job.id, None)
            return
        self._totals[job.id] += self.state.rules.preemption.restart_cost
        self._apply(JobRequeued(why, "preempted", self.now), job)

    def _apply(self, data: Payload, job: Job, attempt: int | None = None) -> None:
        number = attempt if attempt is not None else job.attempt.number if job.attempt is not None else 0
        seq = self.state.version + 1
        apply(self.state, Event(data, self.now, SYSTEM, job.project, job.id, number, seq))


_COMPLETED: Final = reason("completed")
