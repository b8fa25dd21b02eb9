"""Context of an MLflow call: the record, the caller, and what the caller may see and change."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final, Protocol

from sqlalchemy import select

from muster.core.entities import Role
from muster.core.errors import MusterError
from muster.store.record_tables import experiments, runs
from muster.track.experiments import Experiment
from muster.track.mlflow import find
from muster.track.mlflow.faults import Fault, fault_of, missing
from muster.track.mlflow.limits import experiment_number
from muster.track.tracking import Tracking


class Caller(Protocol):
    """The caller; implemented by the server."""

    @property
    def user(self) -> str: ...

    def projects(self) -> Sequence[str] | None:
        """The projects that the caller may see; None: all."""

    def sees(self, project: str) -> bool: ...

    def need(self, project: str, role: Role) -> None:
        """Raises NotFound or NotAllowed."""

    def default_project(self) -> str:
        """The project for new objects if none is named. Raises NotAllowed if there is none."""

    def known_project(self, name: str) -> bool:
        """Whether it is a project that the caller may write to."""

    @property
    def writing(self) -> bool:
        """Whether the request may change something: then the caller must be allowed to change what it names."""


@dataclass(frozen=True, slots=True)
class Target:
    """A run to be written."""

    run: str
    project: str
    experiment: int
    attempt: int  # attempt of its points
    valid: bool
    of_job: bool


@dataclass(frozen=True, slots=True)
class MlflowContext:
    track: Tracking
    caller: Caller

    @property
    def kind(self) -> str:
        return self.track.db.database.kind

    def default_experiment(self) -> int:
        """The experiment of the caller's default project. It is created on first use."""
        return self.track.experiments.of_project(self.caller.default_project())

    def experiment(self, experiment_id: Any, role: Role = "viewer") -> Experiment:
        """Raises Fault if the caller may not see it or, in a writing request, may not write it."""
        number = experiment_number(experiment_id)
        if number == 0:
            self.track.experiments.of_project("default")
        found = self.track.experiments.get(number)
        if found is None or not self.caller.sees(found.project):
            raise missing(f"No Experiment with id={experiment_id} exists")
        self._need(found.project, "member" if self.caller.writing and role == "viewer" else role)
        return found

    def row(self, run: str) -> Any:
        """A row with the columns `find.INFO`. Raises Fault if the caller may not see the run."""
        with self.track.db.reading() as connection:
            found = connection.execute(find.one_run(run)).one_or_none()
        if found is None or not self.caller.sees(found.project):
            raise missing(f"Run with id={run} not found")
        return found

    def target(self, run: str, *, hidden: bool = False) -> Target:
        """A run that the caller may write; a deleted one only with `hidden`."""
        query = (
            select(
                runs.c.project,
                runs.c.experiment,
                runs.c.attempts,
                runs.c.valid,
                runs.c.source,
                runs.c.deleted_at,
                experiments.c.deleted_at,
            )
            .join_from(runs, experiments, experiments.c.id == runs.c.experiment, isouter=True)
            .where(runs.c.id == run)
        )
        with self.track.db.reading() as connection:
            found = connection.execute(query).one_or_none()
        if found is None or not self.caller.sees(found[0]):
            raise missing(f"Run with id={run} not found")
        self._need(found[0], "member")
        if not hidden and (found[5] is not None or found[6] is not None):
            raise Fault(f"The run {run} must be in the 'active' state. Current state is deleted.")
        return Target(run, found[0], found[1], max(1, found[2]), found[3], found[4] == "job")

    def _need(self, project: str, role: Role) -> None:
        try:
            self.caller.need(project, role)
        except MusterError as error:
            raise fault_of(error) from error


# MLflow's own server calls its stores in threads that start with the request's context.
CURRENT: Final[ContextVar[MlflowContext]] = ContextVar("mlflow_context")


def current() -> MlflowContext:
    found = CURRENT.get(None)
    if found is None:
        raise Fault("Nobody is known to ask for this.", "UNAUTHENTICATED")
    return found
