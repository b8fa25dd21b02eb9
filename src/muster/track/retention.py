"""Retention: deletes artifacts by their project's rules, and blobs that nothing refers to any more.

Artifacts are kept in any case if a registered model or a promotion refers to their run, or was made from it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final, cast

from sqlalchemy import Connection, delete, select

from muster.api.artifacts import Collection, RemovedOfProject
from muster.api.words import FINAL
from muster.core.errors import MusterError
from muster.core.event import SYSTEM
from muster.core.rules import Keep, Rules
from muster.store.base import Record
from muster.store.codec import loads
from muster.store.insert import add
from muster.store.record_tables import artifacts, links, model_versions, notes, promotions, runs
from muster.track.blobs import Blobs, Collected, pages
from muster.track.record_db import RecordDb
from muster.track.rows import note_row

_LOG: Final = logging.getLogger(__name__)
_FIRST: Final = 3_600.0  # seconds after the start: launchers that were disconnected deliver first
_EVERY: Final = 86_400.0
_NAMED: Final = 100  # paths that a logbook note names
_LOST: Final = ("failed", "stopped")
_KIND: Final = {"diff": "code"}  # kinds that follow the rule of another


@dataclass(frozen=True, slots=True)
class Removed:
    """What was removed in one project, or would be."""

    project: str
    runs: int
    files: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Outcome:
    projects: tuple[Removed, ...]
    blobs: Collected

    def to_dict(self) -> Collection:
        projects = [cast(RemovedOfProject, asdict(one)) for one in self.projects]
        return {"projects": projects, "blobs": self.blobs.blobs, "bytes": self.blobs.bytes}


@dataclass(frozen=True, slots=True)
class _Due:
    run: str
    path: str
    bytes: int
    digest: str


class Retention:
    """`rules` returns the current rules. Once started, it runs once a day."""

    def __init__(self, db: RecordDb, blobs: Blobs, rules: Callable[[], Rules]) -> None:
        self._db, self._blobs, self._rules = db, blobs, rules
        self._closing = threading.Event()
        self._applying = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="retention", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        if self._thread.ident is not None:
            self._thread.join()

    def apply(self, dry_run: bool = False, only: Iterable[str] | None = None) -> Outcome:
        """Applies the rules of all projects, or `only` of these; then collects unused blobs. `dry_run` only counts."""
        with self._applying:
            wanted = None if only is None else set(only)
            found = []
            for project, rule in self._rules().projects.items():
                if rule.keep != Keep() and (wanted is None or project in wanted):
                    found.append(self._apply(project, rule.keep, dry_run))
            collected = self._blobs.collect(dry_run=dry_run) if wanted is None else Collected(0, 0)
            return Outcome(tuple(one for one in found if one.files), collected)

    def _apply(self, project: str, keep: Keep, dry_run: bool) -> Removed:
        with self._db.reading() as connection:
            spared = protected(connection)
            due = [one for one in _due(connection, project, keep, self._db.now()) if one.run not in spared]
        by_run: dict[str, list[_Due]] = {}
        for one in due:
            by_run.setdefault(one.run, []).append(one)
        for run, files in by_run.items() if not dry_run else ():
            with self._db.holding(run):
                self._db.write(_removal(project, run, files, self._db.now()))
        return Removed(project, len(by_run), len(due), sum(one.bytes for one in due))

    def _run(self) -> None:
        pause = _FIRST
        while not self._closing.wait(pause):
            pause = _EVERY
            try:
                outcome = self.apply()
                _LOG.info("retention: %s", outcome.to_dict())
            except MusterError as error:
                _LOG.warning("retention waits for another day: %s", error)
            except Exception:
                _LOG.exception("retention failed")


def protected(connection: Connection) -> set[str]:
    """Runs that registered models, or the evidence of promotions, were made from, directly or indirectly."""
    versions = connection.execute(
        select(model_versions.c.name, model_versions.c.version, model_versions.c.run, model_versions.c.source)
    ).all()
    frontier = {f"model:{name}/{version}" for name, version, _, _ in versions}
    frontier |= {f"run:{run}" for _, _, run, _ in versions if run}
    frontier |= {_reference(source) for _, _, _, source in versions if source}
    for text in connection.scalars(select(promotions.c.doc)):
        frontier |= {f"run:{run}" for run in _evidence(loads(text))}
    seen: set[str] = set()
    while frontier:
        seen |= frontier
        frontier |= {f"run:{run}" for run in map(_run_of, frontier) if run}
        above = (_above(connection, page) for page in pages(sorted(frontier), 500))
        frontier = {source for page in above for source in page} - seen
        seen |= {f"run:{run}" for run in map(_run_of, seen) if run}
    return {run for run in map(_run_of, seen) if run}


def _above(connection: Connection, targets: list[str]) -> Iterator[str]:
    """What these were made from, or by. Not what evaluates or reads them: such links point away from them."""
    return iter(connection.scalars(select(links.c.source).where(links.c.target.in_(targets))).all())


def _run_of(ref: str) -> str:
    """The run of a reference: `run:gpt-17`, `checkpoint:gpt-17/400` and `artifact:gpt-17/a/b` belong to gpt-17."""
    kind, _, rest = ref.partition(":")
    return rest.partition("/")[0] if kind in ("run", "checkpoint", "artifact") else ""


def _reference(source: str) -> str:
    """The lineage reference of a source: MLflow's `runs:/ID/path` is an artifact, others are references already."""
    return f"artifact:{source.removeprefix('runs:/')}" if source.startswith("runs:/") else source


def _evidence(doc: Any) -> Iterator[str]:
    """Runs that a document names under `run` or `runs`, at any depth."""
    if isinstance(doc, dict):
        for key, value in doc.items():
            if key == "run" and isinstance(value, str):
                yield value
            elif key == "runs" and isinstance(value, dict | list):
                yield from (name for name in value if isinstance(name, str))
            yield from _evidence(value)
    elif isinstance(doc, list):
        for value in doc:
            yield from _evidence(value)


def _due(connection: Connection, project: str, keep: Keep, now: float) -> Iterator[_Due]:
    columns = (
        artifacts.c.run,
        artifacts.c.path,
        artifacts.c.bytes,
        artifacts.c.digest,
        artifacts.c.kind,
        artifacts.c.time,
        runs.c.phase,
        runs.c.ended_at,
    )
    ended = select(*columns).join(runs, runs.c.id == artifacts.c.run)
    ended = ended.where(runs.c.project == project, runs.c.phase.in_(sorted(FINAL)))
    for run, path, size, digest, kind, time, phase, ended_at in connection.execute(ended):
        age = now - max(time, ended_at or 0.0)
        if kind == "model" and keep.keep_models:
            continue
        limits = [getattr(keep, _KIND.get(kind, kind)), keep.failed if phase in _LOST else None]
        if any(limit is not None and age > limit for limit in limits):
            yield _Due(run, path, size, digest)


def _removal(project: str, run: str, files: list[_Due], now: float) -> Record:
    """Removes the artifacts, unless they were replaced since, and adds a logbook note."""
    size = sum(one.bytes for one in files)
    text = f"Retention removed {len(files)} artifacts ({size / 1e6:.1f} MB), as the rules of {project} say."
    doc = {"removed": [one.path for one in files[:_NAMED]], "files": len(files), "bytes": size}

    def record(connection: Connection) -> None:
        for one in files:
            same = (artifacts.c.run == run, artifacts.c.path == one.path, artifacts.c.digest == one.digest)
            connection.execute(delete(artifacts).where(*same))
        add(connection, notes, [note_row(project, run, now, SYSTEM, "change", text, doc)])

    return record
