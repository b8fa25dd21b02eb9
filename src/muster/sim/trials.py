"""The simulated work of trials: their programs' steps, reports, checkpoints and failures, on the virtual clock.

A trial saves at intervals and when it is asked to leave, and goes on from its newest checkpoint in its next attempt.
One that starts from the checkpoint of another run takes that one's newest. What trials have reported and saved is kept
here: it outlives the server, as launchers and folders of checkpoints do.
"""

from __future__ import annotations

import heapq
import json
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import floor, inf
from typing import Final

from muster.core.attempt_events import CheckpointCommitted
from muster.core.event import SYSTEM, Event
from muster.engines.base import GangLaunch
from muster.engines.sim import SimEngine
from muster.sim.model import Costs, SimStudy
from muster.sim.task import Learnt, Program
from muster.sim.work import Clock, Work
from muster.tune.observe import Curves
from muster.tune.spec import SEED
from muster.wire import PARAMS, STUDY, TRIAL, WorkerExit

_OWN: Final = ("trial_", "study_")  # reasons of a study itself
_TINY: Final = 1e-9  # of a step: rounding must not take one back


@dataclass(slots=True)
class TrialRun:
    """The run of one trial, over all its attempts."""

    job: str
    project: str
    queue: str
    program: Program
    keep: int  # checkpoints
    accelerators: int
    memory: float  # bytes of each device
    curves: dict[str, list[tuple[int, float]]] = field(default_factory=dict)
    saved: dict[int, Learnt] = field(default_factory=dict)  # its checkpoints, the oldest first
    attempt: int = 0  # the one that runs; 0: none does
    begun: float = 0.0  # when that one was launched
    step: int = 0  # that it has done at `since`
    learnt: Learnt = ()
    since: float = 0.0
    why: str = ""  # why it was asked to leave; "": it was not
    # --- what it did, over all attempts
    held: float = 0.0  # seconds
    steps: int = 0  # done, some of them more than once
    interruptions: int = 0  # it had to leave for others, or its node failed


@dataclass(slots=True)
class Tally:
    """What happened to trials in a simulation."""

    failures: int = 0  # nodes that took one with them
    exploits: int = 0  # trials that started from another run's checkpoint
    missing: int = 0  # of these, where there was none


class Trials:
    """Plays the gangs of trials for the simulated engine, and hands all others on to `Work`."""

    def __init__(self, clock: Clock, costs: Costs, engine: SimEngine, work: Work) -> None:
        self._clock, self._costs, self._engine, self._work = clock, costs, engine, work
        self._due: list[tuple[float, int, str, int]] = []  # time, sequence number, job, attempt
        self._entries = 0
        self.studies: dict[str, SimStudy] = {}  # that have begun, by the ids of their jobs
        self.runs: dict[str, TrialRun] = {}
        self.sources: dict[str, str] = {}  # job → the run whose checkpoint it starts from
        self.tally = Tally()
        self.curves = SimCurves(self)

    def next_time(self) -> float:
        while self._due:
            at, _, job, attempt = self._due[0]
            if self.runs[job].attempt == attempt:
                return at
            heapq.heappop(self._due)
        return inf

    def deliver(self) -> list[Event]:
        """Does what is due by now. Returns events for the checkpoints that were saved."""
        saves: list[Event] = []
        while self.next_time() <= self._clock.time:
            _, _, job, _ = heapq.heappop(self._due)
            saves += self._advance(self.runs[job])
        return saves

    # --- what the engine calls ----------------------------------------------------------------------------------------
    def launched(self, gang: GangLaunch) -> None:
        if STUDY not in gang.envs:
            self._work.launched(gang)
            return
        run, now = self.runs.get(gang.job) or self._enter(gang), self._clock.time
        run.attempt, run.begun, run.why = gang.attempt, now, ""
        self._hold(run, +1)
        if not run.saved and gang.job in self.sources:
            self._take(run, self.runs.get(self.sources[gang.job]))
        run.step = next(reversed(run.saved), 0)
        run.learnt = run.saved.get(run.step, run.program.begins)
        run.since = now + (self._costs.restart if gang.attempt > 1 else 0.0)
        if run.program.memory > run.memory:
            self._put(run.since + run.program.seconds, run)
        else:
            self._go_on(run)

    def stopping(self, job: str, attempt: int, grace: float, reason: str) -> bool:
        run = self.runs.get(job)
        if run is None:
            return self._work.stopping(job, attempt, grace, reason)
        if run.attempt != attempt:
            return False
        if grace < self._costs.checkpoint_cost:
            self._leave(run)
            return False
        if not run.why:
            run.why = reason
            run.interruptions += not reason.startswith(_OWN)
            self._do(run, run.step + floor(max(self._clock.time - run.since, 0.0) / run.program.seconds + _TINY))
            self._put(self._clock.time + self._costs.checkpoint_cost, run)
        return True

    def fail(self, job: str) -> None:
        """A node of the gang is lost, and with it what was not saved."""
        run = self.runs.get(job)
        if run is not None and run.attempt:
            self.tally.failures += 1
            run.interruptions += 1
            self._leave(run)

    # --- a program ----------------------------------------------------------------------------------------------------
    def _enter(self, gang: GangLaunch) -> TrialRun:
        params, study = json.loads(gang.envs[PARAMS]), self.studies[gang.envs[STUDY]]
        seed = params.pop(SEED, int(gang.envs[TRIAL]))
        program, accelerators = study.task.program(params, seed), gang.ask.accelerators * len(gang.seats)
        made = TrialRun(
            gang.job, gang.project, study.queue, program, gang.checkpoint_keep, accelerators, study.memory
        )  # fmt: skip
        self.runs[gang.job] = made
        return made

    def _take(self, run: TrialRun, source: TrialRun | None) -> None:
        """Takes the newest checkpoint of another run, which from then on is its own."""
        self.tally.exploits += 1
        if source is None or not source.saved:
            self.tally.missing += 1
            return
        step = next(reversed(source.saved))
        run.saved[step] = source.saved[step]

    def _advance(self, run: TrialRun) -> list[Event]:
        """The next thing that it does: it ends, leaves, or reports or saves and goes on."""
        program, now = run.program, self._clock.time
        if run.why:
            saves = [self._save(run)] if run.step else []
            self._end(run, WorkerExit("stopped", run.why, "", now))
            return saves
        if program.memory > run.memory:
            detail = f"CUDA out of memory: it needs {program.memory / 1e9:.0f} GB"
            self._end(run, WorkerExit("failed", "device_out_of_memory", detail, now, rank=0, exit_code=1))
            return []
        self._do(run, self._next_step(run))
        run.since = now
        if program.fails_at is not None and run.step >= program.fails_at:
            detail = f"RuntimeError: step {run.step} failed"
            self._end(run, WorkerExit("failed", "user_error", detail, now, rank=0, exit_code=1))
            return []
        if run.step % program.every == 0 or run.step >= program.steps:
            self._report(run)
        if run.step >= program.steps:
            self._end(run, WorkerExit("succeeded", "completed", "", now))
            return []
        saves = []
        if (every := self._saves_every(program)) is not None and run.step % every == 0:
            run.since += self._costs.checkpoint_cost
            saves.append(self._save(run))
        self._go_on(run)
        return saves

    def _next_step(self, run: TrialRun) -> int:
        """The next step after which it does something."""
        program = run.program
        steps = [(run.step // program.every + 1) * program.every, program.steps]
        if (every := self._saves_every(program)) is not None:
            steps.append((run.step // every + 1) * every)
        if program.fails_at is not None:
            steps.append(max(program.fails_at, run.step + 1))
        return max(min(steps), min(run.step + 1, program.steps))

    def _saves_every(self, program: Program) -> int | None:
        every = self._costs.checkpoint_every
        return None if every is None else max(round(every / program.seconds), 1)

    def _go_on(self, run: TrialRun) -> None:
        self._put(run.since + (self._next_step(run) - run.step) * run.program.seconds, run)

    def _do(self, run: TrialRun, until: int) -> None:
        for step in range(run.step + 1, until + 1):
            run.learnt = run.program.learn(run.learnt, step)
        run.steps += until - run.step
        run.step = until

    def _report(self, run: TrialRun) -> None:
        for name, value in run.program.figures(run.step, run.learnt).items():
            curve = run.curves.setdefault(name, [])
            at = bisect_left(curve, (run.step, -inf))
            if at < len(curve) and curve[at][0] == run.step:  # reported by an earlier attempt already
                curve[at] = (run.step, value)
            else:
                curve.insert(at, (run.step, value))
        self.curves.touch(run.job)

    def _save(self, run: TrialRun) -> Event:
        run.saved.pop(run.step, None)
        run.saved[run.step] = run.learnt
        while len(run.saved) > run.keep:
            del run.saved[next(iter(run.saved))]
        saved = CheckpointCommitted(run.step, "", 0)
        return Event(saved, self._clock.time, SYSTEM, run.project, run.job, run.attempt)

    def _end(self, run: TrialRun, how: WorkerExit) -> None:
        attempt = run.attempt
        self._leave(run)
        self._engine.end(run.job, attempt, how)

    def _leave(self, run: TrialRun) -> None:
        if run.attempt:
            run.held += self._clock.time - run.begun
            run.attempt = 0
            self._hold(run, -1)

    def _hold(self, run: TrialRun, sign: int) -> None:
        self._work.used += sign * run.accelerators
        self._work.by_queue[run.queue] += sign * run.accelerators

    def _put(self, at: float, run: TrialRun) -> None:
        self._entries += 1
        heapq.heappush(self._due, (at, self._entries, run.job, run.attempt))


class SimCurves:
    """The `CurveSource` of a simulation. What it follows is the server's; a server that is started anew has a new
    one."""

    def __init__(self, trials: Trials) -> None:
        self._trials = trials
        self._followed: dict[str, None] = {}
        self._new: dict[str, None] = {}

    @property
    def pending(self) -> bool:
        return bool(self._new)

    def touch(self, run: str) -> None:
        """The run has new points."""
        if run in self._followed:
            self._new[run] = None

    def follow(self, run: str, metrics: Sequence[str]) -> None:
        if run not in self._followed:
            self._followed[run] = self._new[run] = None

    def forget(self, run: str) -> None:
        self._followed.pop(run, None)
        self._new.pop(run, None)

    def news(self) -> Iterable[str]:
        found, self._new = self._new, {}
        return list(found)

    def curves(self, run: str, metrics: Sequence[str]) -> Curves:
        known = self._trials.runs.get(run)
        points: Mapping[str, list[tuple[int, float]]] = known.curves if known is not None else {}
        return {name: points.get(name, []) for name in metrics}
