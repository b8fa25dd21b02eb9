"""A study and the jobs of its trials as they are between two commits."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from muster.core.entities.price_book import prices_of
from muster.core.entities.project import at_least
from muster.core.entities.study import Study, StudyProgress, Trial, progress_of, trials_of
from muster.core.job import Job
from muster.core.state import State
from muster.core.trial_map import TrialMap
from muster.cost.budgets import held_by
from muster.cost.charge import accrued_at


@dataclass(frozen=True, slots=True)
class LiveJob:
    """A trial's job that is not over. The object follows the state: when the job ends, it is as it ended."""

    job: Job
    ran: float = 0.0  # seconds, over all attempts


@dataclass(frozen=True, slots=True)
class Money:
    """What trials have cost, those that run included, in millionths, and what those cost in an hour."""

    spent: int
    hourly: int
    trial: int | None  # what a whole trial is projected to cost


@dataclass(frozen=True, slots=True)
class Snapshot:
    """`trials` are those of the study's `Mirror`, until the next snapshot. `jobs`: of the trials that take a place,
    those that are not over, by number. `strays`: jobs of trials that take none, which somebody has resumed."""

    study: Study
    progress: StudyProgress
    trials: TrialMap
    live: tuple[int, ...]
    jobs: Mapping[int, LiveJob]
    strays: tuple[str, ...]
    alive: bool  # whether the study's own job is not over
    allowed: bool  # whether its user may still submit jobs to its project
    money: Money | None = None  # where it limits the study


class Mirror:
    """The trials of a study as they were last seen. Rounds put their drafts into it, which the next look takes back."""

    def __init__(self) -> None:
        self.trials = TrialMap()
        self._source: TrialMap | None = None
        self._read = self._drafted = 0  # up to where the source and its own log were read

    def follow(self, source: TrialMap) -> None:
        """Between two commits. It costs what has changed since the last time."""
        mine, news = self.trials, source.since(self._read) if source is self._source else None
        drafts = mine.since(self._drafted)
        if news is None or drafts is None:
            news, drafts = list(source), list(mine)
        for number in sorted({*news, *drafts}):
            trial = source.get(number)
            if mine.get(number) is not trial:
                mine.put(number, trial)
        self._source, self._read, self._drafted = source, source.end, mine.end


def take_snapshot(state: State, study: Study, mirror: Mirror, resumed: Collection[str] | None, now: float) -> Snapshot:
    """`resumed`: jobs of trials that have been resumed since the last snapshot; None: it is not known which."""
    mirror.follow(trials_of(state, study.id))
    # By number, and not as they came back from a pause: tables that are loaded do not have that order.
    trials, live = mirror.trials, tuple(sorted(state.live_trials.get(study.id, ())))
    jobs: dict[int, LiveJob] = {}
    for number in live:
        job = state.jobs.get(trials[number].job)
        if job is not None:
            jobs[number] = LiveJob(job, _ran(job, now))
    if resumed is None:
        resumed = [one.job for one in trials.values() if one.job in state.jobs]
    strays = tuple([job for job in resumed if _is_stray(state, study.id, job)])
    progress = progress_of(state, study.id)
    return Snapshot(study, progress, trials, live, jobs, strays, study.id in state.jobs, _allowed(state, study))


def money_of(state: State, snapshot: Snapshot, trial_cost: int | None, now: float) -> Money:
    """For the state that the snapshot is of."""
    prices, spent, hourly = prices_of(state), snapshot.progress.spent, 0
    for number, one in snapshot.jobs.items():
        spent += one.job.spent + accrued_at(prices, one.job, now) - snapshot.trials[number].cost
        if one.job.active and one.job.attempt is not None:
            hourly += prices.hourly(one.job.attempt.pool, held_by(one.job), now) or 0
    return Money(spent, hourly, trial_cost)


def _is_stray(state: State, study: str, name: str) -> bool:
    job, place = state.jobs.get(name), state.trial_jobs.get(name)
    if job is None or place is None or place[0] != study or place[1] in state.live_trials.get(study, ()):
        return False
    return job.stop is None or job.stop.then != "stopped"


def _ran(job: Job, now: float) -> float:
    attempt = job.attempt
    if attempt is None or attempt.running_at is None or attempt.ended_at is not None:
        return job.ran
    return job.ran + now - attempt.running_at


def _allowed(state: State, study: Study) -> bool:
    project = state.projects.get(study.project)
    return study.trusted or (project is not None and at_least(project.members.get(study.user), "member"))


class Saved(Mapping[int, int]):
    """The step of the newest checkpoint of each trial that has one."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def __getitem__(self, number: int) -> int:
        found = self._of(self._snapshot.trials[number])
        if found is None:
            raise KeyError(number)
        return found

    def __iter__(self) -> Iterator[int]:
        return (number for number, trial in self._snapshot.trials.items() if self._of(trial) is not None)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def _of(self, trial: Trial) -> int | None:
        """Of its job while that is not over; a paused trial has its own."""
        live = self._snapshot.jobs.get(trial.number)
        if live is not None and live.job.checkpoint is not None:
            return live.job.checkpoint.step
        return trial.saved
