"""Studies and their trials: what the state holds of a search over parameters, and the events that change it.

A study is a job without nodes; its trials are jobs whose parent it is, or calls of a program outside. A study and its
trials stay in the state when they are over, for reports, for searches that begin with what they found and for
`muster tune extend`, until the study's run is deleted for good (`muster runs rm`). A trial takes 2.4 KB there.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal

from muster.core.entities.base import EntityType, from_fields
from muster.core.payload import Doc, Payload, payload
from muster.core.reasons import Reason
from muster.core.trial_map import TrialMap

if TYPE_CHECKING:
    from muster.core.event import Event
    from muster.core.state_data import Changes, State

# leaving: it was told to save and leave; then it is paused or ended.
TrialPhase = Literal["running", "leaving", "paused", "ended"]
# complete: it ran to its end and has values. stopped: a rule or a person ended it early. failed: its program did.
# infeasible: it needs more than there is, or breaks a constraint that ends it. diverged: its objective is no number.
# lost: the platform ended it; it says nothing about its parameters. replaced: another trial goes on in its place.
TrialOutcome = Literal["", "complete", "stopped", "failed", "infeasible", "diverged", "lost", "replaced"]
Origin = Literal["search", "enqueued", "confirm", "exploit", "replicate", "asked", "imported"]
Values = tuple[float, ...]  # of the objectives, in their order


@dataclass(frozen=True, slots=True)
class Rung:
    """What a trial had reached when it passed a level at which its study looks at it."""

    level: float
    step: int
    values: Values
    seconds: float = 0.0  # that it had run by then


@dataclass(frozen=True, slots=True)
class Trial:
    """One set of parameters that a study tries. It runs while its job is not over, or somebody outside works on it."""

    study: str
    number: int
    params: Doc
    job: str = ""  # "": it has no job; somebody outside runs it
    phase: TrialPhase = "running"
    outcome: TrialOutcome = ""  # that it has, or will have when it has left; "" of one that will be paused
    values: Values | None = None
    extra: dict[str, float] = field(default_factory=dict)  # metrics that constraints and weights read → value
    violated: tuple[str, ...] = ()  # constraints that its values break
    rungs: tuple[Rung, ...] = ()  # ascending by level
    step: int = 0  # the last one that it reported; of one that starts from another's checkpoint, at first that one's
    saved: int | None = None  # of a paused one: the step of its checkpoint
    origin: Origin = "search"
    by: str = ""  # what suggested it: the name of a searcher, or of a user
    of: int | None = None  # the trial that it repeats, or whose checkpoint it starts from
    replaces: int | None = None  # the trial whose place it takes: one that was lost, or that a rule replaced
    seed: int | None = None
    bracket: int = 0
    held: bool = False  # it was paused because its study was stopped, and goes on when that is resumed
    note: str = ""  # why it was asked, paused, continued or ended
    created_at: float = 0.0
    ended_at: float | None = None
    cost: int = 0  # what it has cost its project when it ended or was paused, in millionths
    seconds: float = 0.0  # that it had run by then
    starts: int = 1  # how often its job was queued: a trial that was paused and promoted has more than one
    asker: str = ""  # of one without a job: who runs it; see `muster.server.routes.study_trials`

    @property
    def key(self) -> str:
        return f"{self.study}/{self.number}"

    @property
    def live(self) -> bool:
        """Whether it takes one of the places that the study may use at once."""
        return self.phase in ("running", "leaving")

    @property
    def latest(self) -> Values | None:
        """Its values, or those of the last rung that it passed."""
        return self.values if self.values is not None else self.rungs[-1].values if self.rungs else None

    def rung(self, level: float) -> Rung | None:
        return next((one for one in self.rungs if one.level == level), None)


@dataclass(frozen=True, slots=True)
class Study:
    """`doc` is its file as JSON (`muster.tune.spec.StudySpec`), `prior` what it starts with: parameters and values of
    trials that were made elsewhere."""

    id: str  # of its job
    name: str
    project: str
    user: str
    doc: Doc
    text: str = ""  # the file as it was written
    seed: int = 0
    prior: list[Doc] = field(default_factory=list)
    code: Doc | None = None  # describes the snapshot of the folder that its trials run in
    trusted: bool = False  # an administrator began or changed it last
    outside: list[int] = field(default_factory=list)  # trials that are no points of the space since it was changed
    created_at: float = 0.0
    ended_at: float | None = None
    stopped: Reason | None = None  # why it asks for no more trials, and ends when those that run have left
    summary: Doc = field(default_factory=dict)  # when it has ended: the best trials, and how they held up


@dataclass(frozen=True, slots=True)
class StudyProgress:
    """What changes with every event of a study; it is apart from the study, whose file may be long."""

    asked: int = 0  # trials so far: the number of the next one
    changes: int = 0  # events of it and of its trials so far
    spent: int = 0  # what trials that have ended or were paused cost, in millionths
    ran: float = 0.0  # seconds that they have run
    wait: Reason | None = None  # why it asks for no trial although its limits allow one
    enqueued: list[Doc] = field(default_factory=list)  # parameters that are tried next


class _Trials(EntityType[Trial]):
    """Trials are kept by study and number."""

    def all(self, state: State) -> dict[str, Trial]:
        return {trial.key: trial for trials in state.trials.values() for trial in trials.values()}

    def load(self, state: State, name: str, entity: Trial) -> None:
        if entity.study not in state.trials:
            state.trials[entity.study] = TrialMap()
        state.trials[entity.study].put(entity.number, entity)
        if entity.live:
            state.live_trials.setdefault(entity.study, {})[entity.number] = None
        else:
            _leave(state, entity)
        if entity.job:
            state.trial_jobs[entity.job] = (entity.study, entity.number)

    def drop(self, state: State, name: str, changes: Changes) -> None:
        study, _, number = name.rpartition("/")
        trials = state.trials.get(study)
        known = trials.get(int(number)) if trials is not None else None
        if trials is not None and known is not None:
            trials.put(known.number, None)
            _leave(state, known)
            state.trial_jobs.pop(known.job, None)
            if not trials:
                del state.trials[study]
        changes.entities[(self.kind, name)] = None


def _leave(state: State, trial: Trial) -> None:
    live = state.live_trials.get(trial.study, {})
    live.pop(trial.number, None)
    if not live:
        state.live_trials.pop(trial.study, None)


def _decode_trial(doc: Doc) -> Trial:
    values = doc.get("values")
    rungs = tuple(
        Rung(one["level"], one["step"], tuple(one["values"]), one.get("seconds", 0.0)) for one in doc.get("rungs", ())
    )
    violated = tuple(doc.get("violated", ()))
    return _trial_of(doc | {"values": None if values is None else tuple(values), "rungs": rungs, "violated": violated})


def _decode_progress(doc: Doc) -> StudyProgress:
    return _progress_of(doc | {"wait": Reason.of(doc["wait"]) if doc.get("wait") else None})


def _decode_study(doc: Doc) -> Study:
    return _study_of(doc | {"stopped": Reason.of(doc["stopped"]) if doc.get("stopped") else None})


_study_of = from_fields(Study)
_trial_of = from_fields(Trial)
_progress_of = from_fields(StudyProgress)
STUDIES = EntityType("study", _decode_study, place=lambda state: state.studies)
TRIALS: Final = _Trials("trial", _decode_trial)
PROGRESS = EntityType("study_progress", _decode_progress)
_NEW: Final = StudyProgress()


def progress_of(state: State, study: str) -> StudyProgress:
    return PROGRESS.all(state).get(study, _NEW)


def trials_of(state: State, study: str) -> TrialMap:
    return state.trials.get(study) or TrialMap()


def trial_of_job(state: State, job: str) -> Trial | None:
    place = state.trial_jobs.get(job)
    return trials_of(state, place[0]).get(place[1]) if place is not None else None


def _note_change(state: State, study: str, changes: Changes, **values: Any) -> None:
    known = progress_of(state, study)
    PROGRESS.put(state, study, replace(known, changes=known.changes + 1, **values), changes)


class _StudyEvent(Payload):
    """Events of a study have its job as their job. Those of a study that there is not change nothing."""

    __slots__ = ()

    def put(self, state: State, event: Event, changes: Changes, **values: Any) -> None:
        known = state.studies.get(event.job)
        if known is not None:
            STUDIES.put(state, known.id, replace(known, **values), changes)
            _note_change(state, known.id, changes)


@payload("study.started")
class StudyStarted(Payload):
    """A study begins: its file, and what it knows from elsewhere. Its job was accepted in the same transaction."""

    name: str
    doc: Doc
    text: str
    seed: int
    prior: list[Doc]
    code: Doc | None = None
    trusted: bool = False

    def fold(self, state: State, event: Event, changes: Changes) -> None:
        parts = (self.doc, self.text, self.seed, self.prior, self.code, self.trusted)
        made = Study(event.job, self.name, event.project, event.actor, *parts, created_at=event.time)
        STUDIES.put(state, made.id, made, changes)
        enqueued = [dict(one) for one in self.doc.get("enqueue", ())]
        PROGRESS.put(state, made.id, StudyProgress(changes=1, enqueued=enqueued), changes)


@payload("study.changed")
class StudyChanged(_StudyEvent):
    """Another file is in force, or the same one again after a stop: the study goes on. `why` says what is different.

    `outside`: trials that are no points of the space any more.
    """

    doc: Doc
    text: str
    why: str
    outside: list[int] = field(default_factory=list)
    trusted: bool = False

    def fold(self, state: State, event: Event, changes: Changes) -> None:
        file = {"doc": self.doc, "text": self.text, "outside": self.outside, "trusted": self.trusted}
        self.put(state, event, changes, **file, ended_at=None, stopped=None, summary={})


@payload("study.enqueued")
class StudyEnqueued(_StudyEvent):
    """Parameters that are tried before any that are searched for."""

    params: list[Doc]

    def fold(self, state: State, event: Event, changes: Changes) -> None:
        if event.job in state.studies:
            known = progress_of(state, event.job)
            _note_change(state, event.job, changes, enqueued=[*known.enqueued, *self.params])


@payload("study.waits")
class StudyWaits(_StudyEvent):
    """Why the study asks for no trial although it could; null: it does not wait any more."""

    wait: Doc | None

    def fold(self, state: State, event: Event, changes: Changes) -> None:
        if event.job in state.studies:
            _note_change(state, event.job, changes, wait=Reason.of(self.wait) if self.wait else None)


@payload("study.stopped")
class StudyStopped(_StudyEvent):
    """The study asks for no more trials, for this reason, and has those that run save and leave."""

    reason: Reason

    def fold(self, state: State, event: Event, changes: Changes) -> None:
        self.put(state, event, changes, stopped=self.reason)


@payload("study.ended")
class StudyEnded(_StudyEvent):
    """No trial of the study runs any more; its best trials, and how they held up."""

    summary: Doc

    def fold(self, state: State, event: Event, changes: Changes) -> None:
        self.put(state, event, changes, ended_at=event.time, summary=self.summary)


@payload("study.pruned")
class StudyPruned(Payload):
    """The disk was nearly full: checkpoints of these trials, which lost, were removed."""

    runs: list[str]


def forget_study(state: State, study: str, changes: Changes) -> None:
    """A study whose run is deleted for good leaves the state, with its trials."""
    if study in state.studies:
        for trial in list(trials_of(state, study).values()):
            TRIALS.drop(state, trial.key, changes)
        PROGRESS.drop(state, study, changes)
        STUDIES.drop(state, study, changes)


class _TrialEvent(Payload):
    """Events of a trial have its job as their job, if it has one. Those of a trial that is over change nothing."""

    __slots__ = ()

    def known(self, state: State, study: str, number: int) -> Trial | None:
        trial = trials_of(state, study).get(number)
        return trial if trial is not None and trial.phase != "ended" else None

    def put(self, state: State, trial: Trial, changes: Changes, **values: Any) -> None:
        TRIALS.put(state, trial.key, replace(trial, **values), changes)
        _note_change(state, trial.study, changes)


@payload("trial.started")
class TrialStarted(_TrialEvent):
    """A study tries these parameters. The job of the trial was accepted in the same transaction."""

    study: str
    number: int
    params: Doc
    origin: str = "search"
    by: str = ""
    of: int | None = None
    seed: int | None = None
    bracket: int = 0
    note: str = ""
    replaces: int | None = None
    step: int = 0  # of the checkpoint of another trial that it starts from
    asker: str = ""

    def fold(self, state: State, event: Event, changes: Changes) -> None:
        if self.study not in state.studies or self.number in trials_of(state, self.study):
            return
        origin: Any = self.origin
        trial = Trial(
            self.study, self.number, self.params, event.job, origin=origin,
            by=self.by, of=self.of, replaces=self.replaces, seed=self.seed, bracket=self.bracket, note=self.note,
            step=self.step, created_at=event.time, asker=self.asker,
        )  # fmt: skip
        TRIALS.put(state, trial.key, trial, changes)
        known = progress_of(state, self.study)
        taken = self.origin == "enqueued" and self.replaces is None  # a lost one is repeated with its own parameters
        left = known.enqueued[1:] if taken else known.enqueued
        asked = max(known.asked, self.number + 1)
        _note_change(state, self.study, changes, asked=asked, wait=None, enqueued=left)


@payload("trial.reported")
class TrialReported(_TrialEvent):
    """A trial passed levels at which its study looks at it. `rungs`: [level, step, values] of each."""

    study: str
    number: int
    rungs: list[tuple[float, int, list[float]]]
    seconds: float = 0.0  # that it has run

    def fold(self, state: State, event: Event, changes: Changes) -> None:
        if (trial := self.known(state, self.study, self.number)) is None:
            return
        passed = {one.level: one for one in trial.rungs}
        for level, step, values in self.rungs:
            passed.setdefault(level, Rung(level, step, tuple(values), self.seconds))
        rungs = tuple(sorted(passed.values(), key=lambda one: one.level))
        self.put(state, trial, changes, rungs=rungs, step=max(trial.step, *(one[1] for one in self.rungs)))


@payload("trial.leaving")
class TrialLeaving(_TrialEvent):
    """A trial is told to save and leave: it will be paused, or end with this outcome. Its job was told in the same
    transaction."""

    study: str
    number: int
    outcome: str = ""
    note: str = ""
    held: bool = False

    def fold(self, state: State, event: Event, changes: Changes) -> None:
        if (trial := self.known(state, self.study, self.number)) is not None:
            outcome: Any = self.outcome
            self.put(state, trial, changes, phase="leaving", outcome=outcome, note=self.note, held=self.held)


@payload("trial.paused")
class TrialPaused(_TrialEvent):
    """A trial has left its place, and may go on later. `step`: of its checkpoint; null: it has none."""

    study: str
    number: int
    step: int | None
    cost: int = 0
    seconds: float = 0.0

    def fold(self, state: State, event: Event, changes: Changes) -> None:
        if (trial := self.known(state, self.study, self.number)) is not None:
            _spend(state, trial, self.cost, self.seconds, changes)
            self.put(
                state, trial, changes, phase="paused", outcome="", saved=self.step, cost=self.cost, seconds=self.seconds
            )


@payload("trial.promoted")
class TrialPromoted(_TrialEvent):
    """A paused trial goes on from its checkpoint. Its job was queued again in the same transaction."""

    study: str
    number: int
    note: str = ""
    asker: str = ""

    def fold(self, state: State, event: Event, changes: Changes) -> None:
        if (trial := self.known(state, self.study, self.number)) is not None:
            again: dict[str, Any] = {"starts": trial.starts + 1, "asker": self.asker}
            self.put(state, trial, changes, phase="running", note=self.note, held=False, **again)


@payload("trial.ended")
class TrialEnded(_TrialEvent):
    """A trial is over. `values`: of its objectives, unless it has none; `extra`: of constraints and weights."""

    study: str
    number: int
    outcome: str
    values: list[float] | None
    note: str = ""
    step: int = 0
    cost: int = 0
    seconds: float = 0.0
    extra: dict[str, float] = field(default_factory=dict)
    violated: list[str] = field(default_factory=list)

    def fold(self, state: State, event: Event, changes: Changes) -> None:
        if (trial := self.known(state, self.study, self.number)) is None:
            return
        _spend(state, trial, self.cost, self.seconds, changes)
        outcome: Any = self.outcome
        self.put(
            state, trial, changes, phase="ended", outcome=outcome, note=self.note, step=max(trial.step, self.step),
            values=tuple(self.values) if self.values is not None else None, cost=self.cost, seconds=self.seconds,
            extra=self.extra, violated=tuple(self.violated), ended_at=event.time,
        )  # fmt: skip


def _spend(state: State, trial: Trial, cost: int, seconds: float, changes: Changes) -> None:
    """What the trial has cost, and how long it has run, in all by now."""
    known = progress_of(state, trial.study)
    spent, ran = known.spent + cost - trial.cost, known.ran + seconds - trial.seconds
    PROGRESS.put(state, trial.study, replace(known, spent=spent, ran=ran), changes)
