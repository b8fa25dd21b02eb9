"""Where a call of MLflow's is answered: the record, who asks, and what they may see and change."""

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


class Asker(Protocol):
    """Who asks; the server knows."""

    @property
    def user(self) -> str: ...

    def projects(self) -> Sequence[str] | None:
        """Those that they may see; None: all."""

    def sees(self, project: str) -> bool: ...

    def need(self, project: str, role: Role) -> None:
        """Raises NotFound or NotAllowed."""

    def default_project(self) -> str:
        """Where what they make goes when no project is named. Raises NotAllowed when there is none."""

    def known_project(self, name: str) -> bool:
        """Whether it is a project that they may write in."""

    @property
    def writing(self) -> bool:
        """Whether the request may change something: then what it names must be theirs to change."""


@dataclass(frozen=True, slots=True)
class Target:
    """A run that is about to be written."""

    run: str
    project: str
    experiment: int
    attempt: int  # that its points are counted to
    valid: bool
    of_job: bool


@dataclass(frozen=True, slots=True)
class MlflowContext:
    track: Tracking
    asker: Asker

    @property
    def kind(self) -> str:
        return self.track.db.database.kind

    def default_experiment(self) -> int:
        """Of the project where what they make goes; made when it is first asked for."""
        return self.track.experiments.of_project(self.asker.default_project())

    def experiment(self, experiment_id: Any, role: Role = "viewer") -> Experiment:
        """Raises Fault when there is none that they may see; or may write, in a request that writes."""
        number = experiment_number(experiment_id)
        if number == 0:
            self.track.experiments.of_project("default")
        found = self.track.experiments.get(number)
        if found is None or not self.asker.sees(found.project):
            raise missing(f"No Experiment with id={experiment_id} exists")
        self._need(found.project, "member" if self.asker.writing and role == "viewer" else role)
        return found

    def row(self, run: str) -> Any:
        """A row of `find.INFO`, of a run that they may see."""
        with self.track.db.reading() as connection:
            found = connection.execute(find.one_run(run)).one_or_none()
        if found is None or not self.asker.sees(found.project):
            raise missing(f"Run with id={run} not found")
        return found

    def target(self, run: str, *, hidden: bool = False) -> Target:
        """A run that they may write; one that is deleted only if `hidden`."""
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
        if found is None or not self.asker.sees(found[0]):
            raise missing(f"Run with id={run} not found")
        self._need(found[0], "member")
        if not hidden and (found[5] is not None or found[6] is not None):
            raise Fault(f"The run {run} must be in the 'active' state. Current state is deleted.")
        return Target(run, found[0], found[1], max(1, found[2]), found[3], found[4] == "job")

    def _need(self, project: str, role: Role) -> None:
        try:
            self.asker.need(project, role)
        except MusterError as error:
            raise fault_of(error) from error


# MLflow's own server calls its stores in threads that start with the request's context.
CURRENT: Final[ContextVar[MlflowContext]] = ContextVar("mlflow_desk")


def current() -> MlflowContext:
    found = CURRENT.get(None)
    if found is None:
        raise Fault("Nobody is known to ask for this.", "UNAUTHENTICATED")
    return found
