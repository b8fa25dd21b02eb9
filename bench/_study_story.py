"""A simulated study whose server is killed: what it decided, and whether a trial was lost, doubled or left running."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random

from muster.core.entities.study import Study, Trial, TrialStarted, trials_of
from muster.core.event import Event
from muster.core.job_events import JobSubmitted
from muster.sim.kills import KillingCommit, When, run_killed
from muster.sim.model import Setup, TraceJob
from muster.sim.run import Simulation
from muster.sim.task import Learnt, Program, Task
from muster.store.base import EventFilter, Store
from muster.tune.space import Params

PAGE = 100_000  # events that are read at once


@dataclass(frozen=True)
class Troubled:
    """Programs of which some raise an error, or whose loss is no number any more, at a step of their own."""

    task: Task
    fails: float = 0.05  # of all
    diverges: float = 0.05

    def program(self, params: Params, seed: int) -> Program:
        made, random = self.task.program(params, seed), Random(f"trouble {seed}")
        fails_at = random.randint(1, made.steps) if random.random() < self.fails else None
        nan_from = random.randint(1, made.steps) if random.random() < self.diverges else math.inf

        def figures(step: int, learnt: Learnt) -> Mapping[str, float]:
            found = made.figures(step, learnt)
            return found if step < nan_from else dict.fromkeys(found, math.nan)

        return replace(made, figures=figures, fails_at=fails_at)


@dataclass
class Story:
    """A simulation that is over."""

    simulation: Simulation
    commit: KillingCommit
    study: Study
    trials: dict[int, Trial]
    events: list[Event]

    def decisions(self) -> list[tuple[float, str, str, str]]:
        """All events of the study and its trials, with their times, in order."""
        return [
            (round(one.time, 6), one.kind, one.job, json.dumps(one.data.to_doc(), sort_keys=True))
            for one in self.events
            if one.kind.startswith(("study.", "trial."))
        ]

    def lost(self) -> int:
        """Trials that did not come to an end, and those whose job was never submitted or has no trial."""
        over = ("ended", "paused") if self.study.stopped is not None else ("ended",)
        jobs = {one.job for one in self.trials.values()}
        submitted = {
            one.job for one in self.events if isinstance(one.data, JobSubmitted) and one.data.index is not None
        }
        return sum(one.phase not in over for one in self.trials.values()) + len(jobs ^ submitted)

    def doubled(self) -> int:
        """Numbers and jobs of trials that there are twice, trials that two others replace, and what still runs."""
        started = Counter(one.data.number for one in self.events if isinstance(one.data, TrialStarted))
        submitted = Counter(one.job for one in self.events if one.kind == "job.submitted")
        replaced = Counter(one.replaces for one in self.trials.values() if one.replaces is not None)
        assert self.simulation.studies is not None
        running = sum(bool(run.attempt) for run in self.simulation.studies.trials.runs.values())
        return running + sum(count - 1 for some in (started, submitted, replaced) for count in some.values())


def tell(setup: Setup, store: Store, kills: Mapping[int, When] | None = None, trace: Sequence[TraceJob] = ()) -> Story:
    """`kills`: of the server, by the numbers of its commits."""
    simulation = Simulation(list(trace), setup, store=store)
    _, commit = run_killed(simulation, kills or {})
    state = simulation.store.state()
    (study,) = state.studies.values()
    return Story(simulation, commit, study, dict(trials_of(state, study.id)), _events(simulation.store))


def _events(store: Store) -> list[Event]:
    found: list[Event] = []
    while more := store.events(EventFilter(after=found[-1].seq if found else 0, limit=PAGE)):
        found += more
    return found
