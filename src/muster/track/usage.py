"""Bytes of each project's artifacts and Optuna journals, against its limit: summed once, then counted in memory.

Only the leading server writes, so its counter includes every new artifact. Removals are not counted: before a request
is refused, the project is summed again.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from sqlalchemy import Connection, func, select

from muster.core.errors import Refused
from muster.core.reasons import reason
from muster.core.units import format_size
from muster.store.record_tables import artifacts, experiments, optuna_journals, runs
from muster.track.record_db import RecordDb

LimitOf = Callable[[str], int | None]
# Prefix of owners of artifacts that belong to an experiment and not to a run: `mlflow:EXPERIMENT/models/ID`.
BESIDE_RUNS: Final = "mlflow:"
_AGAIN: Final = 10.0  # seconds before a full project is summed again


class Usage:
    """`limit_of` returns the most bytes of a project; None if no project has a limit, which costs nothing."""

    def __init__(self, db: RecordDb, limit_of: LimitOf | None = None) -> None:
        self._db, self._limit_of = db, limit_of
        self._used: dict[str, int] = {}
        self._summed: dict[str, float] = {}  # project → time of its last sum
        self._pending: Counter[str] = Counter()  # counted, but perhaps not written yet
        self._lock = threading.Lock()

    def check(self, project: str, size: int) -> None:
        """Raises Refused if so many more bytes would exceed the limit."""
        limit = self._limit_of(project) if self._limit_of is not None else None
        if limit is not None:
            with self._lock:
                self._need(project, size, limit)

    @contextmanager
    def room(self, owner: str, size: int) -> Iterator[None]:
        """Counts bytes that a run, model or trace gets in the block. Raises Refused above its project's limit."""
        project = self._project(owner) if self._limit_of is not None else None
        if project is None:
            yield
            return
        with self.room_in(project, size):
            yield

    @contextmanager
    def room_in(self, project: str, size: int) -> Iterator[None]:
        """The same for what a project gets itself."""
        limit = self._limit_of(project) if self._limit_of is not None else None
        if limit is None:
            yield
            return
        with self._lock:
            self._need(project, size, limit)
            self._used[project] += size
            self._pending[project] += size
        try:
            yield
        except BaseException:
            with self._lock:
                self._used[project] -= size
            raise
        finally:
            with self._lock:
                self._pending[project] -= size

    def _need(self, project: str, size: int, limit: int) -> None:
        now = self._db.now()
        known = self._used.get(project)
        full = known is not None and known + size > limit and now - self._summed[project] >= _AGAIN
        if known is None or full:
            known = self._used[project] = self._sum(project) + self._pending[project]
            self._summed[project] = now
        if known + size > limit:
            message = f"the artifacts of project {project!r} have {format_size(known)} of {format_size(limit)}"
            hint = "Remove some (`muster runs artifacts RUN rm PATH`), or ask for a higher limit of the server."
            raise Refused([reason("over_quota", message, hint, used=known, limit=limit, project=project)])

    def _project(self, owner: str) -> str | None:
        experiment = _experiment(owner)
        found = select(runs.c.project).where(runs.c.id == owner)
        if experiment is not None:
            found = select(experiments.c.project).where(experiments.c.id == experiment)
        with self._db.reading() as connection:
            project: str | None = connection.scalar(found)
        return project

    def _sum(self, project: str) -> int:
        total = func.coalesce(func.sum(artifacts.c.bytes), 0)
        of_runs = select(total).join(runs, runs.c.id == artifacts.c.run).where(runs.c.project == project)
        others = select(artifacts.c.run, total).where(artifacts.c.run.startswith(BESIDE_RUNS)).group_by(artifacts.c.run)
        with self._db.reading() as connection:
            own = set(connection.scalars(select(experiments.c.id).where(experiments.c.project == project)))
            beside = sum(int(size) for owner, size in connection.execute(others) if _experiment(owner) in own)
            own_logs = func.coalesce(func.sum(optuna_journals.c.bytes), 0)
            journals = connection.scalar(select(own_logs).where(optuna_journals.c.project == project)) or 0
            return int(connection.execute(of_runs).scalar_one()) + beside + int(journals)


def project_bytes(connection: Connection) -> dict[str, int]:
    """The bytes of the artifacts of runs, by project."""
    total = func.sum(artifacts.c.bytes)
    query = select(runs.c.project, total).join(runs, runs.c.id == artifacts.c.run).group_by(runs.c.project)
    return {project: int(size) for project, size in connection.execute(query)}


def _experiment(owner: str) -> int | None:
    """The experiment that owns it; None for a run."""
    number = owner.removeprefix(BESIDE_RUNS).partition("/")[0] if owner.startswith(BESIDE_RUNS) else ""
    return int(number) if number.isascii() and number.isdigit() else None
