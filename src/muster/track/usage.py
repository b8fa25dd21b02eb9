"""How many bytes the artifacts of each project have, against its limit: summed up once, then counted on in memory.

Only the server that leads writes, so what it has counted is all there is. What was removed meanwhile is seen when
something would be refused: then the project is summed up anew.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from sqlalchemy import func, select

from muster.core.errors import Refused
from muster.core.reasons import reason
from muster.core.units import format_size
from muster.store.record_tables import artifacts, experiments, runs
from muster.track.record_db import RecordDb

LimitOf = Callable[[str], int | None]
# How the owners begin of artifacts that belong to an experiment and to no run: `mlflow:EXPERIMENT/models/ID`.
BESIDE_RUNS: Final = "mlflow:"
_AGAIN: Final = 10.0  # seconds before a full project is summed up anew


class Usage:
    """`limit_of`: the most bytes of a project; None where no project has a limit, which costs nothing."""

    def __init__(self, db: RecordDb, limit_of: LimitOf | None = None) -> None:
        self._db, self._limit_of = db, limit_of
        self._used: dict[str, int] = {}
        self._summed: dict[str, float] = {}  # when
        self._pending: Counter[str] = Counter()  # counted, and perhaps not yet written
        self._lock = threading.Lock()

    def check(self, project: str, size: int) -> None:
        """Raises Refused when so much more would be too much."""
        limit = self._limit_of(project) if self._limit_of is not None else None
        if limit is not None:
            with self._lock:
                self._need(project, size, limit)

    @contextmanager
    def room(self, owner: str, size: int) -> Iterator[None]:
        """For what a run, a model or a trace is given meanwhile. Raises Refused where its project has no room."""
        project = self._project(owner) if self._limit_of is not None else None
        limit = self._limit_of(project) if self._limit_of is not None and project is not None else None
        if project is None or limit is None:
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
            return int(connection.execute(of_runs).scalar_one()) + beside


def _experiment(owner: str) -> int | None:
    """Which one it belongs to; None for a run."""
    number = owner.removeprefix(BESIDE_RUNS).partition("/")[0] if owner.startswith(BESIDE_RUNS) else ""
    return int(number) if number.isascii() and number.isdigit() else None
