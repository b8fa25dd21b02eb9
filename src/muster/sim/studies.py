"""Studies in a simulation: the server's own `Studies`, over virtual time and the simulated work of trials."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection, Sequence
from math import inf
from typing import Final

from muster.control.admission import Context
from muster.control.admission.pools import open_pools
from muster.control.studies.round import Site
from muster.control.studies.snapshot import Snapshot
from muster.control.studies.start import NewStudy, start_study, study_submission
from muster.control.studies.steps import ContextOf
from muster.control.studies.studies import Studies
from muster.control.submit import Submission, context
from muster.core.entities.study import StudyEnded, TrialEnded, TrialReported, TrialStarted, progress_of, trials_of
from muster.core.errors import MusterError
from muster.core.event import Event
from muster.core.job import Job
from muster.core.spec import JobSpec
from muster.core.state import State
from muster.cost.budgets import projected
from muster.sim.model import Setup, SimStudy, StudyResult
from muster.sim.trials import SimCurves, Trials
from muster.sim.work import Clock
from muster.store.base import Proposal, Store
from muster.store.commit import Commit
from muster.tune.space import Params

IDLE: Final = 1_000  # looks in a row that decide nothing, while nothing else happens, after which a study never ends
_JOBS: Final = frozenset({"job.submitted", "job.resumed"})


class StudyWorld:
    """`start` makes the server's part, which knows nothing but what the store has; all else outlives it."""

    def __init__(self, setup: Setup, store: Store, clock: Clock, zero: float, trials: Trials, whole: bool) -> None:
        """`zero`: the clock time of the trace's start. `whole`: the store encodes nothing, and keeps no ended jobs."""
        self._setup, self._store, self._clock, self._zero, self._whole = setup, store, clock, zero, whole
        self._waiting = sorted(setup.studies, key=lambda study: -study.submit)  # those that have not begun
        self._jobs: dict[str, Job] = {}  # of trials, where the store does not keep them
        self._idle = 0  # looks that decided nothing since something happened
        self.trials = trials
        self.results: dict[str, StudyResult] = {}  # by the study's id
        self.refused: list[StudyResult] = []

    def start(self, commit: Commit) -> None:
        curves = self.trials.curves = SimCurves(self.trials)
        site = Site(
            curves, self.job, self._names, self._submission, self._contexts, self._trial_cost, self._whole, every=inf
        )
        self._new = True  # it looks at all studies first
        self._server = Studies(commit, self._clock, site, lambda: True, threading.Event())

    # --- time ---------------------------------------------------------------------------------------------------------
    @property
    def is_over(self) -> bool:
        """Whether all studies have begun. One that runs has a job in the state."""
        return not self._waiting

    def next_time(self, others: float) -> float:
        """When anything happens: a study begins, a trial does something, or what `others` say. Looks at studies alone
        change nothing for those that can never go on."""
        begins = self._zero + self._waiting[-1].submit if self._waiting else inf
        happens = min(others, begins, self.trials.next_time())
        return min(happens, self._server.next_due()) if happens < inf or self._idle < IDLE else inf

    def begin(self, commit: Commit) -> None:
        """Begins the studies whose time has come."""
        while self._waiting and self._zero + self._waiting[-1].submit <= self._clock.time:
            study = self._waiting.pop()
            try:
                event = commit.submit(self._proposal(study)).result()[0]
            except MusterError as error:
                self.refused.append(StudyResult(study, refused=str(error)))
            else:
                self.results[event.job] = StudyResult(study, event.job)
                self.trials.studies[event.job] = study

    def look(self) -> bool:
        """Looks at studies with news; whether there were any."""
        server = self._server
        news = self._new or server.pending or self.trials.curves.pending
        if not news and server.next_due() > self._clock.time:
            return False
        self._new = False
        self._idle += 1
        server.look()
        return True

    def on_commit(self, events: Sequence[Event], state: State) -> None:
        self._idle = 0
        self._server.on_commit(events, state)
        for event in events:
            match event.data:
                case TrialReported() as data:
                    self._note(data.study, event.time, data.number, data.rungs[-1][2], False)
                case TrialEnded() as data if data.values is not None:
                    self._note(data.study, event.time, data.number, data.values, data.outcome == "complete")
                case TrialStarted() as data if data.origin == "exploit" and data.of is not None:
                    self.trials.sources[event.job] = state.trials[data.study][data.of].job
                case StudyEnded() if event.job in self.results:
                    self.results[event.job].ended = event.time - self._zero
                case _ if self._whole and event.kind in _JOBS and event.job in state.trial_jobs:
                    self._jobs[event.job] = state.jobs[event.job]

    def finish(self, state: State) -> list[StudyResult]:
        for name, result in self.results.items():
            trials = trials_of(state, name).values()
            result.outcomes = dict(Counter(one.outcome or one.phase for one in trials))
            result.cost, result.seconds = progress_of(state, name).spent, sum(one.seconds for one in trials)
            runs = (self.trials.runs.get(one.job) for one in trials)
            result.interruptions = sum(run.interruptions for run in runs if run is not None)
            stopped = state.studies[name].stopped
            result.why = stopped.message if stopped is not None else ""
        return [*self.results.values(), *self.refused]

    def _note(self, study: str, time: float, number: int, values: Sequence[float], complete: bool) -> None:
        if study in self.results:
            self.results[study].values.append((time - self._zero, number, values[0], complete))

    # --- what the server's part is given ------------------------------------------------------------------------------
    def job(self, name: str) -> Job | None:
        return self._jobs.get(name) if self._whole else self._store.job(name)

    def _names(self, run: str) -> Collection[str]:
        known = self.trials.runs.get(run)
        return known.curves if known is not None else ()

    def _submission(self, spec: JobSpec, snapshot: Snapshot, params: Params, number: int) -> Submission:
        return Submission(spec, snapshot.study.user, trusted=snapshot.study.trusted, index=number)

    def _contexts(self) -> ContextOf:
        return lambda state, submission: self._context(state, submission.user)

    def _context(self, state: State, user: str) -> Context:
        return context(self._store, state, user, False, now=self._clock.time, quota=self._setup.quota)

    def _trial_cost(self, state: State, spec: JobSpec, user: str) -> int | None:
        pools = open_pools(self._context(state, user), spec)
        return projected(state, spec, user, pools, self._clock.time) or None

    def _proposal(self, study: SimStudy) -> Proposal:
        spec = study.spec
        seed = spec.seed if spec.seed is not None else study.seed
        given = study_submission(spec, study.project, user=study.user, trusted=True)
        return start_study(
            self._store, NewStudy(spec, "", given, seed), self._clock.time, False, quota=self._setup.quota
        )
