"""A round of a study: what its trials have shown, and what follows, as steps. Events are folded into a copy of the
study as they are decided, so that each decision sees those before it."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from muster.control.studies.curves import CurveSource
from muster.control.studies.snapshot import Mirror, Saved, Snapshot
from muster.control.studies.steps import ContextOf, ContinueJob, EndJob, Note, StartJob, Step, StopJob
from muster.control.submit import Submission
from muster.core.entities.study import (
    PROGRESS,
    Study,
    StudyEnded,
    StudyStopped,
    Trial,
    TrialEnded,
    TrialLeaving,
    TrialOutcome,
    TrialPaused,
    TrialPromoted,
    TrialReported,
    TrialStarted,
    Values,
    progress_of,
)
from muster.core.event import SYSTEM, Event
from muster.core.job import Job
from muster.core.job_events import JobEnd, JobFailed, JobStopped, JobSucceeded
from muster.core.payload import Payload
from muster.core.reasons import Reason, reason
from muster.core.spec import JobSpec
from muster.core.state import State, apply
from muster.core.trial_map import TrialMap
from muster.tune.decisions import Decision, End, Facts, Finish, Leave, Promote, Start
from muster.tune.gain import GainModel
from muster.tune.observe import Curves, FinalValues, final_values, passed_rungs
from muster.tune.outcomes import outcome_of
from muster.tune.plan import Planner
from muster.tune.plugin import with_defaults
from muster.tune.searchers import make_searcher
from muster.tune.searchers.base import Searcher
from muster.tune.space import Params
from muster.tune.spec import StudySpec
from muster.tune.stopping import STOPPING
from muster.tune.stopping.base import Stopping
from muster.tune.trial_spec import base_spec, trial_spec, with_seed
from muster.tune.view import StudyView, view_of

SOON: Final = 0.001  # seconds
HOPELESS: Final = 5  # trials that have ended, none of them with a value, after which a study stops
SubmissionOf = Callable[[JobSpec, Snapshot, Params, int], Submission]


@dataclass
class Runtime:
    """What is made of a study's file once, and remembered of its trials. All of it can be made anew."""

    doc: Mapping[str, object]
    spec: StudySpec
    base: JobSpec | None
    stopping: Stopping
    searcher: Searcher
    planner: Planner
    gain: GainModel | None = None  # of a study that ends when another trial is worth less than it costs
    exhausted: int | None = None  # how many trials there were when the searcher had no other point
    jobs: dict[int, Job] = field(default_factory=dict)  # of trials, as they were last seen
    mirror: Mirror = field(default_factory=Mirror)
    frame: StudyView | None = None  # what views of the study have in common, since its file or its prior was changed

    @classmethod
    def of(cls, doc: Mapping[str, object]) -> Runtime:
        spec = StudySpec.of(doc)
        rule = STOPPING.get(spec.stop.name)
        stopping = rule(spec, with_defaults(rule, spec.stop.options))
        base = base_spec(spec) if spec.job is not None else None
        gain = GainModel(spec) if spec.worth is not None else None
        return cls(doc, spec, base, stopping, make_searcher(spec), Planner(spec, stopping), gain)

    def view(self, study: Study, trials: TrialMap, changes: int, checkpoints: Mapping[int, int]) -> StudyView:
        if self.frame is None or self.frame.outside != frozenset(study.outside):
            self.frame = view_of(self.spec, study, {}, 0)
        return replace(self.frame, trials=trials, changes=changes, checkpoints=checkpoints)


@dataclass(frozen=True, slots=True)
class Site:
    """What a round needs of the server, or of the simulation, that it runs in."""

    curves: CurveSource
    ended_job: Callable[[str], Job | None]  # a job that is over
    names: Callable[[str], Collection[str]]  # of the metrics that a run has reported
    submission: SubmissionOf
    contexts: Callable[[], ContextOf]  # made before each commit, since it may have to look at machines
    trial_cost: Callable[[State, JobSpec, str], int | None]  # what one trial of this user is projected to cost
    whole: bool = False  # events hold specs as objects
    every: float = 5.0  # seconds between two looks at a study without news


@dataclass(frozen=True, slots=True)
class Outside:
    """What somebody says who runs trials without jobs. `places`: how many trials are asked for, none if `asker` has one
    that is not over; `points`: all that a trial has reported so far; `told`: how one has ended, with its last values if
    they are not among its points. `actor`: who says it."""

    actor: str = SYSTEM
    places: int = 0
    asker: str = ""
    points: Mapping[int, Curves] = field(default_factory=dict)
    told: Mapping[int, tuple[TrialOutcome, Values | None]] = field(default_factory=dict)


NOBODY: Final = Outside()


class Round:
    def __init__(
        self,
        snapshot: Snapshot,
        runtime: Runtime,
        site: Site,
        news: Collection[str],
        now: float,
        outside: Outside = NOBODY,
    ) -> None:
        self.snapshot, self.runtime, self.site, self.now = snapshot, runtime, site, now
        self.spec, self.news, self.outside = runtime.spec, news, outside
        self.waits, self.over = "", False  # why no trial starts; whether the study ends with this round
        self.steps: list[Step] = []
        self.next_look: float | None = None  # when time alone changes what is decided
        self.trials = snapshot.trials  # with what this round has decided
        self.heard: Mapping[int, Trial] = {}  # those that somebody outside works on, as they are after this round
        self.asked: Trial | None = None  # the one that `asker` of `outside` has, after this round
        self._state = State()
        self._state.studies = {snapshot.study.id: snapshot.study}
        self._state.trials = {snapshot.study.id: snapshot.trials}
        self._state.live_trials = {snapshot.study.id: dict.fromkeys(snapshot.live)}
        PROGRESS.load(self._state, snapshot.study.id, snapshot.progress)

    def decide(self) -> list[Step]:
        began = self.trials.end
        self._decide()
        if self.runtime.base is None:
            numbers = {*self.outside.points, *self.outside.told, *(self.trials.since(began) or ())}
            self.heard = {number: self.trials[number] for number in numbers if number in self.trials}
            self.asked = self._trial_of(self.outside.asker)
        return self.steps

    def _decide(self) -> None:
        for number, job in self.snapshot.jobs.items():
            self.runtime.jobs[number] = job.job
        for job_id in self.snapshot.strays:
            self.steps.append(StopJob(job_id, reason("trial_stopped", "its study has no place for it"), self.now))
        self._ends()
        passed = self._reports()
        self._stop_if_over()
        if self._state.studies[self.snapshot.study.id].stopped is not None:
            self._hold()
        while True:
            exhausted = self.runtime.exhausted
            plan = self.runtime.planner.decide(self.view(), self._facts(), passed)
            self.waits = plan.waits
            done = all(self._carry_out(decision) for decision in plan.decisions)
            if done or self.runtime.exhausted == exhausted:
                return
            passed = set()  # their verdicts are given: it is decided anew because no point is left

    def view(self) -> StudyView:
        study = self._state.studies[self.snapshot.study.id]
        changes = progress_of(self._state, study.id).changes
        return self.runtime.view(study, self.trials, changes, Saved(self.snapshot))

    # --- what trials have shown -------------------------------------------------------------------------------------
    def _ends(self) -> None:
        for number in self.snapshot.live:
            trial = self.trials[number]
            if number in self.outside.told and not trial.job:
                self._told(trial)
            if not trial.job or number in self.snapshot.jobs:
                continue
            job = self.runtime.jobs.pop(number, None)
            if job is None or not job.final:
                job = self.site.ended_job(trial.job)
            if job is not None and job.final:
                self._end(trial, job)

    def _end(self, trial: Trial, job: Job) -> None:
        self.site.curves.forget(trial.job)
        if trial.phase == "leaving" and not trial.outcome and job.phase == "stopped":
            step = job.checkpoint.step if job.checkpoint is not None else None
            self.note(TrialPaused(trial.study, trial.number, step, job.spent, job.ran), trial)
            return
        found = self._final(trial, job)
        outcome, note = outcome_of(trial, job, found)
        self.note(ended(trial, outcome, note, found, job.spent, job.ran), trial)

    def _told(self, trial: Trial) -> None:
        """The end of a trial that somebody outside ran."""
        outcome, values = self.outside.told[trial.number]
        seconds = self.now - trial.created_at
        params = with_seed(trial.params, trial.seed)
        found = final_values(self.spec, self.outside.points.get(trial.number, {}), {"seconds": seconds}, params)
        if values is not None:
            sound = all(map(math.isfinite, values))
            found = replace(found, values=values if sound else None, diverged=not sound, missing=())
        if outcome == "complete" and found.values is None:
            outcome = "diverged" if found.diverged else "failed"
        note = f"it never reported {' and '.join(found.missing)}" if found.missing and outcome == "failed" else ""
        self.note(ended(trial, outcome, note, found, 0, seconds), trial)

    def _final(self, trial: Trial, job: Job) -> FinalValues:
        curves = self.site.curves.curves(trial.job, self.spec.metrics)
        built_in = {"seconds": job.ran, "cost": job.spent / 1e6}
        return final_values(self.spec, curves, built_in, with_seed(trial.params, trial.seed))

    def _reports(self) -> set[int]:
        """Notes the levels that trials have passed, and returns their numbers."""
        passed: set[int] = set()
        for number in self.snapshot.live:
            trial = self.trials[number]
            if trial.phase != "running" or not self._has_news(trial):
                continue
            rungs = passed_rungs(self.spec, self.runtime.stopping, trial, self._curves(trial))
            if rungs is None:
                self._leave(Leave(number, "diverged", "its objective is no finite number"))
            elif rungs:
                told = [(one.level, one.step, list(one.values)) for one in rungs]
                job = self.snapshot.jobs.get(number)
                seconds = job.ran if job is not None else self.now - trial.created_at
                self.note(TrialReported(trial.study, number, told, seconds), trial)
                passed.add(number)
        return passed

    def _has_news(self, trial: Trial) -> bool:
        if self.runtime.stopping.next_level(trial) is None:  # nothing follows from what it reports
            self.site.curves.forget(trial.job)
            return False
        if trial.job and trial.number in self.snapshot.jobs:
            self.site.curves.follow(trial.job, self.spec.metrics)
        return trial.job in self.news if trial.job else trial.number in self.outside.points

    def _curves(self, trial: Trial) -> Curves:
        if not trial.job:
            return self.outside.points[trial.number]
        return self.site.curves.curves(trial.job, self.spec.metrics)

    # --- whether it goes on -----------------------------------------------------------------------------------------
    def _stop_if_over(self) -> None:
        study = self.snapshot.study
        if study.stopped is not None:
            return
        found = self._over()
        if found is not None:
            self.steps.append(Note(StudyStopped(found), study.id, study.project, self.now))
            self._fold(StudyStopped(found), study.id)

    def _over(self) -> Reason | None:
        """Why the study stops although trials could be asked for."""
        if not self.snapshot.alive:
            return reason("user_stop", "the study's own job has ended")
        if not self.snapshot.allowed:
            user, project = self.snapshot.study.user, self.snapshot.study.project
            return reason("trials_not_allowed", f"{user} is no member of project {project} any more")
        if self.spec.cost is not None and self.spent >= self.spec.cost:
            return reason("study_budget_spent", "its trials have cost what its `budget` allows")
        if self.spec.until is not None and self.now >= self.snapshot.study.created_at + self.spec.until:
            return reason("study_time_over", "its time is over (`until`)")
        return self._hopeless()

    def _hopeless(self) -> Reason | None:
        if any(one.latest is not None for one in self.trials.values()):  # mostly it is the first
            return None
        ended_ = [one for one in self.trials.values() if one.phase == "ended" and one.outcome != "replaced"]
        if not ended_:
            return None
        first = ended_[0]
        if first.note.startswith("it never reported") and first.job:
            names = sorted(name for name in self.site.names(first.job) if not name.startswith("system/"))
            told = f"it reported {', '.join(names[:20])}" if names else "it reported nothing"
            message = f"trial {first.number} ended, and {first.note.removeprefix('it ')}: {told}"
            return reason("objective_missing", message, trial=first.number, reported=names[:20])
        if len(ended_) >= HOPELESS:
            last = ended_[-1]
            message = f"the first {len(ended_)} trials ended without a value; the last, {last.number}: {last.note}"
            return reason("trials_failed", message, trial=last.number)
        return None

    def _hold(self) -> None:
        """Has the trials that run save and leave, until the study is resumed."""
        for number in self.snapshot.live:
            trial = self.trials[number]
            if trial.phase == "running":
                self.note(TrialLeaving(trial.study, number, "", "the study was stopped", held=True), trial)
                self._stop_job(trial, reason("study_stopped", "its study was stopped"))

    def _facts(self) -> Facts:
        study, spec = self._state.studies[self.snapshot.study.id], self.spec
        asked = len(self.trials)
        until = study.created_at + spec.until if spec.until is not None else None
        times = [at for at in (until, self._money_spent_at()) if at is not None and at > self.now]
        self.next_look = min(times, default=None)
        money = self.snapshot.money
        return Facts(
            self.now,
            study.created_at,
            until,
            self.spent,
            spec.cost,
            study.stopped is not None,
            len(progress_of(self._state, study.id).enqueued),
            self.runtime.exhausted == asked,
            self._places(),
            {number: one.ran for number, one in self.snapshot.jobs.items()},
            trial_cost=money.trial if money is not None else None,
            gain=self._gain(),
        )

    def _gain(self) -> float | None:
        """By how much another trial is expected to improve; None: it does not matter, or is not known."""
        found = self.runtime.gain.gain(self.view()) if self.runtime.gain is not None else None
        return found.expected if found is not None else None

    def _places(self) -> int | None:
        if self.runtime.base is not None:
            return None
        return self.outside.places if self._trial_of(self.outside.asker) is None else 0

    def _trial_of(self, asker: str) -> Trial | None:
        """The trial without a job that somebody asked for and that is not over."""
        live = (self.trials[number] for number in self._state.live_trials.get(self.snapshot.study.id, ()))
        return next((one for one in live if asker and one.asker == asker and one.phase == "running"), None)

    @property
    def spent(self) -> int:
        """What its trials have cost; those that run count where money limits the study."""
        money = self.snapshot.money
        return money.spent if money is not None else self.snapshot.progress.spent

    def _money_spent_at(self) -> float | None:
        """When its money is spent, if what runs now goes on at the price of now."""
        limit, money = self.spec.cost, self.snapshot.money
        if limit is None or money is None or not money.hourly or money.spent >= limit:
            return None
        return self.now + max((limit - money.spent) * 3600 / money.hourly, SOON)

    # --- decisions --------------------------------------------------------------------------------------------------
    def _carry_out(self, decision: Decision) -> bool:
        """False if the ones after it do not hold."""
        match decision:
            case Leave():
                self._leave(decision)
            case Promote():
                return self._promote(decision)
            case Start():
                return self._start(decision)
            case End():
                trial = self.trials[decision.number]
                values = FinalValues(decision.values)
                self.note(ended(trial, "stopped", decision.note, values, trial.cost, trial.seconds), trial)
            case Finish():
                self.over = True
                self._finish(decision)
        return True

    def _leave(self, leave: Leave) -> None:
        trial = self.trials[leave.number]
        self.note(TrialLeaving(trial.study, trial.number, leave.outcome, leave.note), trial)
        code = "trial_stopped" if leave.outcome else "trial_paused"
        self._stop_job(trial, reason(code, leave.note))

    def _stop_job(self, trial: Trial, why: Reason) -> None:
        """A trial that somebody outside runs leaves at once: its next report is answered so."""
        if trial.job:
            self.steps.append(StopJob(trial.job, why, self.now))
            return
        trial = self.trials[trial.number]
        if trial.outcome:
            self.note(ended(trial, trial.outcome, trial.note, FinalValues(trial.latest), 0, 0.0), trial)
        else:
            self.note(TrialPaused(trial.study, trial.number, None), trial)

    def _promote(self, promote: Promote) -> bool:
        trial = self.trials[promote.number]
        made = TrialPromoted(trial.study, trial.number, promote.note, self.outside.asker)
        if not trial.job:
            self.note(made, trial)
            return True
        job = self.site.ended_job(trial.job)
        if job is None:
            return False
        submission = self._counted(self.site.submission(job.spec, self.snapshot, trial.params, trial.number))
        pool = self._pool(promote.rung)
        self.steps.append(ContinueJob(made, job, pool, submission, self.now))
        self._fold(made, trial.job)
        return True

    def _start(self, start: Start) -> bool:
        params, by, note = start.params, start.by, start.note
        if params is None and start.origin == "enqueued":
            params, by = progress_of(self._state, self.snapshot.study.id).enqueued[0], "enqueued"
        elif params is None:
            suggestion = self.runtime.searcher.ask(self.view(), start.number)
            if suggestion is None:
                self.runtime.exhausted = len(self.trials)
                return False
            params, by, note = suggestion.params, suggestion.by, suggestion.note or note
        study = self.snapshot.study.id
        started = TrialStarted(
            study, start.number, dict(params), start.origin, by, start.of, start.seed, start.bracket, note,
            replaces=start.replaces, step=self._source_step(start), asker=self.outside.asker,
        )  # fmt: skip
        if self.runtime.base is None:
            self.steps.append(Note(started, "", self.snapshot.study.project, self.now, self.outside.actor))
            self._fold(started, "")
            return True
        source = self.trials[start.of].job if start.origin == "exploit" and start.of is not None else ""
        spec = trial_spec(self.spec, self.runtime.base, study, params, seed=start.seed, start_from=source)
        if (pool := self._pool(start.rung)) is not None:
            spec = spec.model_copy(update={"pool": pool})
        made = self.site.submission(spec, self.snapshot, with_seed(params, start.seed), start.number)
        submission = self._counted(made)
        self.steps.append(StartJob(started, submission, self.now, self.site.whole))
        self._fold(started, f"{study}/{start.number}")
        return True

    def _counted(self, submission: Submission) -> Submission:
        """With what an order of queues knows of the study: its trials are one job to it."""
        study = self.snapshot.study.id
        live = len(self._state.live_trials.get(study, ())) + 1
        more = self.spec.parallel if self.spec.trials is None else live + self.spec.trials - len(self.trials) - 1
        ran = progress_of(self._state, study).ran + sum(one.ran for one in self.snapshot.jobs.values())
        return replace(submission, study_left=max(live, more), study_ran=round(ran, 3))

    def _source_step(self, start: Start) -> int:
        if start.origin != "exploit" or start.of is None:
            return 0
        return (self.view().checkpoints or {}).get(start.of, 0)

    def _pool(self, rung: int) -> str | None:
        """Of a rung; the last pool of the file is for all above it."""
        return self.spec.pools[min(rung, len(self.spec.pools) - 1)] if self.spec.pools else None

    def _finish(self, finish: Finish) -> None:
        study = self._state.studies[self.snapshot.study.id]
        self.steps.append(Note(StudyEnded(finish.summary), study.id, study.project, self.now))
        self.steps.append(EndJob(study.id, self._end_of_study(finish), self.now))

    def _end_of_study(self, finish: Finish) -> JobEnd:
        stopped, best = self._state.studies[self.snapshot.study.id].stopped, self.view().best()
        if stopped is not None:
            failed = stopped.code in ("trials_failed", "objective_missing")
            return JobFailed(stopped) if failed else JobStopped(stopped)
        if best is None or best.latest is None:
            return JobFailed(reason("trials_failed", f"no trial has a value; {finish.why}"))
        values = ", ".join(
            f"{one.metric} {value:.6g}" for one, value in zip(self.spec.objectives, best.latest, strict=True)
        )
        return JobSucceeded(reason("completed", f"{finish.why}; the best is trial {best.number}: {values}"))

    # --- the copy ---------------------------------------------------------------------------------------------------
    def note(self, data: Payload, trial: Trial) -> None:
        actor = SYSTEM if trial.job else self.outside.actor
        self.steps.append(Note(data, trial.job, self.snapshot.study.project, self.now, actor))
        self._fold(data, trial.job)

    def _fold(self, data: Payload, job: str) -> None:
        event = Event(data, self.now, project=self.snapshot.study.project, job=job)
        event.seq = self._state.version + 1
        apply(self._state, event)


def ended(trial: Trial, outcome: str, note: str, found: FinalValues, cost: int, seconds: float) -> TrialEnded:
    """Trials that failed, or that the platform lost, have no values."""
    values = list(found.values) if found.values is not None and outcome not in _VALUELESS else None
    return TrialEnded(
        trial.study, trial.number, outcome, values, note[:500], found.step, cost, seconds, dict(found.extra),
        list(found.violated),
    )  # fmt: skip


_VALUELESS: Final = frozenset({"failed", "lost", "infeasible", "diverged"})
