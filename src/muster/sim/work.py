"""The simulated work of gangs: progress, checkpoints, restart costs, and work lost by interruptions.

Every attempt after the first spends the restart cost before it works. With periodic checkpoints (`checkpoint_every`),
any interruption goes back to the last one. Without them, a preempted gang saves all its work, and a gang whose node
fails goes back to where the attempt began.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil, inf
from typing import Final, Literal

from muster.core.attempt_events import CheckpointCommitted
from muster.core.event import SYSTEM, Event
from muster.engines.base import GangLaunch
from muster.engines.sim import SimEngine
from muster.sim.model import Costs, JobResult
from muster.sim.quota_waits import QuotaWaits, WaitClass
from muster.wire import WorkerExit

What = Literal["end", "save", "leave"]
_TINY: Final = 1e-9  # fraction of a checkpoint interval: rounding must not change the number of checkpoints


@dataclass(slots=True)
class Clock:
    time: float

    def now(self) -> float:
        return self.time


@dataclass(slots=True)
class JobProgress:
    """The progress of one job."""

    result: JobResult
    project: str
    queue: str
    bound: str = ""  # the only pool that it may use; "" is any
    saved: float = 0.0  # seconds of its work that are saved in a checkpoint
    attempt: int = 0  # the running attempt; 0 when none runs
    since: float = 0.0  # when the attempt was launched
    warm: float = 0.0  # when the attempt begins to work
    speed: float = 1.0  # relative to a run on all its nodes
    accelerators: float = 0  # held now
    stopped: float = inf  # when it stopped working, to save and leave
    why: str = ""
    pool: str = ""  # the pool of its attempt
    alike: WaitClass | None = None  # the waiting jobs of its queue and size, where quotas apply
    waits_since: float = 0.0


class Work:
    """Plays the work of all gangs: the `Player` of the simulated engine."""

    def __init__(
        self, clock: Clock, costs: Costs, engine: SimEngine, quota_waits: QuotaWaits, pools: Mapping[str, str]
    ) -> None:
        self._clock, self._costs, self._engine, self._quota_waits = clock, costs, engine, quota_waits
        self._pools = pools  # node → pool
        self._timed_events: list[tuple[float, int, What, str, int]] = []  # time, sequence number, what, job, attempt
        self._entries = 0
        self.plays: dict[str, JobProgress] = {}
        self.used = 0.0  # accelerators
        self.by_queue: defaultdict[str, float] = defaultdict(float)
        self.waiting = 0  # jobs

    def enter(self, job: str, play: JobProgress) -> None:
        self.plays[job] = play
        self._wait(play)

    def next_time(self) -> float:
        """The time of the next event of any gang; inf when none runs."""
        timed_events, plays = self._timed_events, self.plays
        while timed_events:
            at, _, what, job, attempt = timed_events[0]
            play = plays.get(job)
            if play is not None and play.attempt == attempt and (what == "leave" or play.stopped == inf):
                return at
            heapq.heappop(timed_events)
        return inf

    def deliver(self) -> list[Event]:
        """Carries out all gang events up to now. Returns events for the checkpoints that were saved."""
        now, saves = self._clock.time, []
        while self.next_time() <= now:
            at, _, what, job, attempt = heapq.heappop(self._timed_events)
            play = self.plays[job]
            if what == "end":
                self._finish(job, play)
            elif what == "leave":
                self._interrupt(play, keep=self._costs.checkpoint_cost <= at - play.stopped)
                self._engine.end(job, attempt, WorkerExit("stopped", play.why, "", now))
            else:
                saves.append(self._save(job, play))
        return saves

    def launched(self, gang: GangLaunch) -> None:
        play, now = self.plays[gang.job], self._clock.time
        row = play.result.job
        if play.result.started is None:
            play.result.started = now
        play.attempt, play.since, play.stopped = gang.attempt, now, inf
        play.speed = len(gang.seats) / row.nodes
        self._hold(play, len(gang.seats) * row.each, self._pools[gang.seats[0].node])
        play.warm = now + (self._restart(play) if gang.attempt > 1 else 0.0)
        self._put(play.warm + self._seconds(row.duration - play.saved, play.speed), "end", gang.job, gang.attempt)
        self._put_save(gang.job, play)

    def stopping(self, job: str, attempt: int, grace: float, reason: str) -> bool:
        play = self.plays.get(job)
        if play is None or play.attempt != attempt:
            return False
        if play.stopped == inf:
            play.result.preemptions += 1
            play.stopped, play.why = self._clock.time, reason
            wait = min(self._costs.checkpoint_cost, grace) if self._costs.checkpoint_every is None else 0.0
            if wait <= 0:
                self._interrupt(play, keep=self._costs.checkpoint_cost <= grace)
                return False
            self._put(self._clock.time + wait, "leave", job, attempt)
        return True

    def fail(self, job: str) -> None:
        """A node of the gang is lost, and with it all unsaved work."""
        play = self.plays.get(job)
        if play is not None and play.attempt:
            play.result.failures += 1
            play.stopped = min(play.stopped, self._clock.time)
            self._interrupt(play, keep=False)

    def _finish(self, job: str, play: JobProgress) -> None:
        self._account(play)
        play.result.finished = self._clock.time
        self._engine.end(job, play.attempt, WorkerExit("succeeded", "completed", "", self._clock.time))
        del self.plays[job]

    def _interrupt(self, play: JobProgress, keep: bool) -> None:
        """Ends the attempt before the work is done. `keep`: the gang had time to save all its work."""
        seconds = max(play.stopped - play.warm, 0.0)
        every = self._costs.checkpoint_every
        if every is None:
            done = seconds * play.speed
            kept = done if keep else 0.0
        else:
            saves, rest = divmod(seconds, every / play.speed + self._costs.checkpoint_cost)
            kept = saves * every
            done = kept + min(rest * play.speed, every)
        play.saved += kept
        play.result.lost += (done - kept) / play.speed * play.accelerators
        self._account(play)
        play.attempt = 0
        self._wait(play)

    def _account(self, play: JobProgress) -> None:
        """Adds up the held and lost time of an attempt that is over, and releases its accelerators."""
        now, result = self._clock.time, play.result
        result.held += now - play.since
        result.lost += (min(play.warm, now) - play.since) * play.accelerators
        self.used -= play.accelerators
        self.by_queue[play.queue] -= play.accelerators
        self._quota_waits.change(play.queue, play.pool, -play.accelerators)

    def _hold(self, play: JobProgress, accelerators: float, pool: str) -> None:
        play.accelerators, play.pool = accelerators, pool
        self.used += accelerators
        self.by_queue[play.queue] += accelerators
        self.waiting -= 1
        if play.alike is not None:
            stretch = self._quota_waits.start(play.alike, play.waits_since, self._clock.time)
            play.result.longest_in_quota = max(play.result.longest_in_quota, stretch)
        self._quota_waits.change(play.queue, pool, accelerators)

    def _wait(self, play: JobProgress) -> None:
        self.waiting += 1
        play.waits_since = self._clock.time
        play.alike = self._quota_waits.wait(play.queue, play.bound, play.result.job)

    def _restart(self, play: JobProgress) -> float:
        return self._costs.restart_wide if play.accelerators > self._costs.wide else self._costs.restart

    def _seconds(self, work: float, speed: float) -> float:
        """Seconds that `work` takes, with the checkpoints on the way; none is made at the very end."""
        every = self._costs.checkpoint_every
        saves = 0 if every is None else max(ceil(work / every - _TINY) - 1, 0)
        return max(work, 0.0) / speed + saves * self._costs.checkpoint_cost

    def _put_save(self, job: str, play: JobProgress, saves: int = 1) -> None:
        every = self._costs.checkpoint_every
        if every is not None and play.saved + saves * every < play.result.job.duration - _TINY * every:
            cycle = every / play.speed + self._costs.checkpoint_cost
            self._put(play.warm + saves * cycle, "save", job, play.attempt)

    def _save(self, job: str, play: JobProgress) -> Event:
        every = self._costs.checkpoint_every
        assert every is not None
        cycle = every / play.speed + self._costs.checkpoint_cost
        saves = round((self._clock.time - play.warm) / cycle)
        self._put_save(job, play, saves + 1)
        committed = CheckpointCommitted(int(play.saved + saves * every), "", 0)
        return Event(committed, self._clock.time, SYSTEM, play.project, job, play.attempt)

    def _put(self, at: float, what: What, job: str, attempt: int) -> None:
        self._entries += 1
        heapq.heappush(self._timed_events, (at, self._entries, what, job, attempt))
