"""The events of the record of runs: what users did to it. But for a purge they are only logged.

The event's `job` is the run's id. They hold names and ids only: no value, text or secret.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from muster.core.entities.study import forget_study
from muster.core.payload import Audit, Payload, payload

if TYPE_CHECKING:
    from muster.core.event import Event
    from muster.core.state_data import Changes, State


@payload("run.purged")
class RunPurged(Payload):
    """A run was deleted for good, except the row of its job. `rows`: how many were deleted, by table. If it was a
    study, the study and its trials leave the state."""

    rows: dict[str, int]

    def fold(self, state: State, event: Event, changes: Changes) -> None:
        forget_study(state, event.job, changes)


@payload("run.created")
class RunCreated(Audit):
    """A run without a job was made."""

    name: str
    source: str


@payload("run.opened")
class RunOpened(Audit):
    """An outside script continues the run."""

    attempt: int


@payload("run.damaged")
class RunDamaged(Audit):
    """A curve of the run shows a sign of silent damage: a value that is not finite, or a jump off its path."""

    kind: str
    metric: str
    step: int
    message: str


@payload("run.changed")
class RunChanged(Audit):
    """Fields of a run were changed."""

    fields: list[str]


@payload("run.hidden")
class RunHidden(Audit):
    """A run was hidden."""


@payload("run.restored")
class RunRestored(Audit):
    """A hidden run was restored."""


@dataclass(slots=True)
class Keys(Audit):
    """Many names: the first of them, and their number."""

    keys: list[str]
    count: int


@payload("run.params")
class RunParams(Keys):
    """Parameters of a run were set: the first keys, and how many."""


@payload("run.tags")
class RunTags(Keys):
    """Tags of a run were set or removed: the first keys, and how many."""


@payload("artifact.put")
class ArtifactPut(Audit):
    """An artifact of a run or a project was written."""

    path: str


@payload("artifact.quarantined")
class ArtifactQuarantined(Audit):
    """A scan found an artifact that could run code when it is loaded, or that could not be looked at."""

    path: str
    what: str


@payload("artifact.opened")
class ArtifactOpened(Audit):
    """An administrator downloaded a quarantined artifact."""

    path: str
    why: str


@payload("artifact.removed")
class ArtifactRemoved(Audit):
    """An artifact of a run or a project was removed."""

    path: str


@payload("note.added")
class NoteAdded(Audit):
    """A note was written; it is the project's if `job` is empty."""


@dataclass(slots=True)
class ExperimentEvent(Audit):
    """What happened to an experiment, and to which of its fields."""

    experiment: int
    name: str
    fields: list[str] = field(default_factory=list)


@payload("experiment.created")
class ExperimentCreated(ExperimentEvent):
    """An experiment was made."""


@payload("experiment.changed")
class ExperimentChanged(ExperimentEvent):
    """Fields of an experiment were changed."""


@payload("experiment.hidden")
class ExperimentHidden(ExperimentEvent):
    """An experiment was hidden."""


@payload("experiment.restored")
class ExperimentRestored(ExperimentEvent):
    """A hidden experiment was restored."""


@payload("optuna.created")
class OptunaJournalCreated(Audit):
    """A journal of Optuna was made: the project's first study of this storage."""

    name: str


@payload("optuna.deleted")
class OptunaJournalDeleted(Audit):
    """A journal of Optuna was deleted with all of its studies."""

    name: str


@payload("model.created")
class ModelCreated(Audit):
    """A model was made."""

    name: str


@payload("model.changed")
class ModelChanged(Audit):
    """Fields of a model were changed."""

    name: str
    fields: list[str]


@payload("model.deleted")
class ModelDeleted(Audit):
    """A model was deleted with all versions."""

    name: str


@payload("version.created")
class VersionCreated(Audit):
    """A version of a model was registered."""

    name: str
    version: int


@payload("version.changed")
class VersionChanged(Audit):
    """Fields of a model's version were changed."""

    name: str
    version: int
    fields: list[str]


@payload("version.deleted")
class VersionDeleted(Audit):
    """A version of a model was deleted."""

    name: str
    version: int


@payload("version.staged")
class VersionStaged(Audit):
    """A version of a model moved to a stage."""

    name: str
    version: int
    stage: str


@payload("run.review_asked")
class ReviewAsked(Audit):
    """Somebody asked for a review of a run, for its promotion to this stage."""

    stage: str


@payload("run.approved")
class RunApproved(Audit):
    """Somebody approved that a run is promoted to this stage."""

    stage: str


@payload("run.promoted")
class RunPromoted(Audit):
    """A run was promoted to this stage: the event's job was made from it. `overridden`: what was missing, if an admin
    promoted it all the same."""

    stage: str
    run: str
    overridden: list[str] = field(default_factory=list)


@payload("alias.set")
class AliasSet(Audit):
    """An alias of a model names this version."""

    name: str
    alias: str
    version: int


@payload("alias.removed")
class AliasRemoved(Audit):
    """An alias of a model was removed."""

    name: str
    alias: str


@payload("query.saved")
class QuerySaved(Audit):
    """A query was saved."""

    name: str


@payload("query.removed")
class QueryRemoved(Audit):
    """A saved query was removed."""

    name: str


@payload("content.collected")
class ContentCollected(Audit):
    """An administrator applied retention."""


@payload("mlflow.called")
class MlflowCalled(Audit):
    """A write request that MLflow's own server handled."""

    method: str
    path: str


@payload("record.refused")
class RecordRefused(Audit):
    """A change of the record, of this kind, that the database refused; nothing of it was written."""

    kind: str
    error: str
