"""Artifacts: files of runs, a tree of paths that refer to blobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final

from sqlalchemy import Connection, Insert, Row, bindparam, delete, func, or_, select, true
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.sql.elements import ColumnElement

from muster.api.artifacts import ArtifactView, FolderView
from muster.core.errors import Conflict, Invalid, NotFound
from muster.core.event import Event
from muster.store.base import Record
from muster.store.codec import check_text, dumps, loads
from muster.store.record_tables import artifacts, blobs
from muster.track.blob_store import Stage
from muster.track.blobs import Blobs, check_digest, unknown
from muster.track.paths import check_path
from muster.track.provenance.rows import SIGNED_KINDS, add_due, artifact_ref
from muster.track.record_db import RecordDb
from muster.track.usage import BESIDE_RUNS, Usage

__all__ = ["KINDS", "Artifact", "Artifacts", "Folder", "check_path"]

KINDS: Final = ("file", "media", "code", "diff", "checkpoint", "model")
_DOC_BYTES: Final = 64 << 10


@dataclass(frozen=True, slots=True)
class Artifact:
    """A file of a run."""

    run: str
    path: str
    digest: str
    bytes: int
    kind: str
    time: float
    attempt: int
    doc: dict[str, Any] = field(default_factory=dict)  # mime, step, about; for a checkpoint: how to load it

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]

    def to_dict(self) -> ArtifactView:
        return {
            "path": self.path,
            "digest": self.digest,
            "bytes": self.bytes,
            "kind": self.kind,
            "time": self.time,
            "attempt": self.attempt,
            "doc": self.doc,
        }


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder, with the number and total size of the files in it."""

    path: str
    files: int
    bytes: int

    def to_dict(self) -> FolderView:
        return {"path": self.path, "files": self.files, "bytes": self.bytes}


Files = list[Artifact]
Level = list[Artifact | Folder]


class Artifacts:
    def __init__(self, db: RecordDb, blobs: Blobs, usage: Usage | None = None) -> None:
        self.db, self.blobs, self.usage = db, blobs, usage or Usage(db)
        self.announce: Callable[[], None] = lambda: None  # called when an artifact was stored
        self._arriving: Counter[tuple[str, str]] = Counter()  # run and path of uploads that are being stored

    def put(
        self,
        run: str,
        path: str,
        digest: str,
        bytes: int | None = None,
        kind: str = "file",
        *,
        attempt: int = 0,
        doc: Mapping[str, Any] | None = None,
        events: Sequence[Event] = (),
    ) -> Artifact:
        """Adds an artifact for a blob that exists; it replaces an artifact with the same path. `events` name the actor.

        Raises Invalid for an invalid path or kind, NotFound if the blob doesn't exist, Conflict if a folder and a file
        would have the same name, and Refused if the project's storage quota is used up.
        """
        made = self.make(run, path, digest, bytes, kind, attempt=attempt, doc=doc)
        with self.db.holding(run):
            self._check_place(run, path)
            size = self.blobs.size(digest)
            if size is None:
                raise unknown(digest)
            if bytes is not None and bytes != size:
                raise Invalid(f"{path}: {bytes} bytes were given; the content has {size}.", "Give its size, or none.")
            with self.usage.room(run, size):
                self.db.write(self.record(made), events=events)
            found = self.get(run, path)
        self.announce()
        if found is None or found.digest != digest:
            raise unknown(digest)  # the blob was collected between the check and the write
        return found

    def upload(
        self,
        run: str,
        path: str,
        stage: Stage,
        expected_bytes: int | None = None,
        owner: str = "",
        kind: str = "file",
        *,
        doc: Mapping[str, Any] | None = None,
        events: Sequence[Event] = (),
    ) -> Artifact:
        """Stores a staged blob and adds an artifact for it, in one transaction. Raises as `put` and `Blobs.keep` do."""
        made = self.make(run, path, stage.digest, stage.size, kind, doc=doc)
        with self._arrival(run, path), self.usage.room(run, stage.size):
            self.blobs.keep(stage, None, expected_bytes, owner, records=[self.record(made)], events=events)
        self.announce()
        return made

    def make(
        self,
        run: str,
        path: str,
        digest: str,
        bytes: int | None,
        kind: str = "file",
        *,
        attempt: int = 0,
        doc: Mapping[str, Any] | None = None,
        time: float | None = None,
    ) -> Artifact:
        """A checked artifact that is not stored yet: pass it to `record` in a transaction."""
        check_text(run)
        if kind not in KINDS:
            raise Invalid(f"{kind!r} is no kind of artifact.", f"There are: {', '.join(KINDS)}.")
        if len(dumps(doc or {})) > _DOC_BYTES:
            raise Invalid(f"What is said about {path[:80]!r} has more than {_DOC_BYTES} bytes.", "Say less.")
        when = self.db.now() if time is None else time
        return Artifact(run, check_path(path), check_digest(digest), bytes or 0, kind, when, attempt, dict(doc or {}))

    def record(self, made: Artifact) -> Record:
        """Writes the artifact if its blob exists, else nothing. Its size is the blob's."""
        statement = _upsert(self.db.database.kind)
        row = {name: getattr(made, name) for name in ("run", "path", "digest", "kind", "time", "attempt")}
        row["doc"] = dumps(made.doc)
        now = self.db.now()

        def record(connection: Connection) -> None:
            connection.execute(statement, {f"new_{name}": value for name, value in row.items()})
            if made.kind in SIGNED_KINDS:
                add_due(connection, artifact_ref(made.run, made.path), made.run, now)

        return record

    def get(self, run: str, path: str) -> Artifact | None:
        with self.db.reading() as connection:
            row = connection.execute(
                select(artifacts).where(artifacts.c.run == run, artifacts.c.path == path)
            ).one_or_none()
        return _artifact(row) if row is not None else None

    def list(self, run: str, prefix: str = "", *, kinds: Sequence[str] = ()) -> Files:
        """All files at or under a path, sorted by path."""
        found = select(artifacts).where(artifacts.c.run == run, _under(prefix))
        if kinds:
            found = found.where(artifacts.c.kind.in_(kinds))
        with self.db.reading() as connection:
            rows = connection.execute(found).all()
        return sorted(map(_artifact, rows), key=lambda one: one.path)

    def children(self, run: str, prefix: str = "") -> Level:
        """The files and folders of one folder; a folder with number and size of the files in it."""
        start = f"{check_path(prefix)}/" if prefix else ""
        files: Level = []
        folders: dict[str, Folder] = {}
        for one in self.list(run, prefix):
            name, slash, _ = one.path.removeprefix(start).partition("/")
            if one.path == prefix or not slash:
                files.append(one)
                continue
            seen = folders.get(name, Folder(start + name, 0, 0))
            folders[name] = Folder(seen.path, seen.files + 1, seen.bytes + one.bytes)
        return sorted([*folders.values(), *files], key=lambda one: one.path)

    def remove(self, run: str, path: str, events: Sequence[Event] = ()) -> Files:
        """Removes a file, or all files under a folder. Returns them. A blob is deleted once nothing refers to it."""
        check_path(path)
        with self.db.holding(run):
            found = self.list(run, path)
            if not found:
                raise NotFound(f"The run {run} has no artifact {path!r}.", f"See `muster runs artifacts {run}`.")
            self.db.write(self.forget(run, path), events=events)
        return found

    def forget(self, run: str, path: str = "") -> Record:
        gone = delete(artifacts).where(artifacts.c.run == run, _under(path))

        def record(connection: Connection) -> None:
            connection.execute(gone)

        return record

    def open(self, one: Artifact, start: int = 0, stop: int | None = None) -> Iterator[bytes]:
        return self.blobs.blob_store.read(one.digest, start, one.bytes if stop is None else min(stop, one.bytes))

    def runs_with(self, digest: str) -> set[str]:
        """The runs that have this blob as an artifact."""
        with self.db.reading() as connection:
            return set(connection.scalars(select(artifacts.c.run).where(artifacts.c.digest == digest)))

    def of_content(self, digest: str, kinds: Sequence[str], most: int) -> Files:
        """Artifacts of any run with this content."""
        found = select(artifacts).where(artifacts.c.digest == digest, artifacts.c.kind.in_(kinds)).limit(most)
        with self.db.reading() as connection:
            return [_artifact(row) for row in connection.execute(found)]

    def owners_like(self, end: str) -> Sequence[str]:
        """The owners beside runs that end so; see `usage.BESIDE_RUNS`."""
        owner = artifacts.c.run
        where = owner.startswith(BESIDE_RUNS, autoescape=True) & owner.endswith(end, autoescape=True)
        with self.db.reading() as connection:
            return connection.scalars(select(owner).where(where).distinct()).all()

    def totals(self, run: str) -> Folder:
        """The number of a run's artifacts and their total size."""
        sums = select(func.count(), func.coalesce(func.sum(artifacts.c.bytes), 0))
        with self.db.reading() as connection:
            row = connection.execute(sums.where(artifacts.c.run == run)).one()
        return Folder("", int(row[0]), int(row[1]))

    @contextmanager
    def _arrival(self, run: str, path: str) -> Iterator[None]:
        """Keeps the path free of clashes without holding the run's lock, so that uploads to a run share a flush."""
        with self.db.holding(run):
            self._check_place(run, path)
            self._arriving[run, path] += 1
        try:
            yield
        finally:
            with self.db.holding(run):
                self._arriving[run, path] -= 1
                if not self._arriving[run, path]:
                    del self._arriving[run, path]

    def _check_place(self, run: str, path: str) -> None:
        """Raises Conflict if a path would be both a file and a folder: they could not be downloaded together."""
        parts = path.split("/")
        above = ["/".join(parts[:count]) for count in range(1, len(parts))]
        clash = or_(artifacts.c.path.in_(above), _inside(path))
        with self.db.reading() as connection:
            other = connection.scalar(select(artifacts.c.path).where(artifacts.c.run == run, clash).limit(1))
        if other is None:
            coming = [one for owner, one in list(self._arriving) if owner == run]
            other = next((one for one in coming if one in above or one.startswith(f"{path}/")), None)
        if other is not None:
            raise Conflict(
                f"{path!r} can't be an artifact beside {other!r}: one of them would be both a file and a folder.",
                "Choose another path, or remove the other one first.",
            )


@cache
def _upsert(kind: str) -> Insert:
    """Built once for each kind of database: building it costs more than running it."""
    make = sqlite.insert if kind == "sqlite" else postgresql.insert
    columns: list[ColumnElement[Any]] = [
        blobs.c.bytes if column.name == "bytes" else bindparam(f"new_{column.name}", type_=column.type)
        for column in artifacts.columns
    ]
    there = select(*columns).where(blobs.c.digest == bindparam("new_digest", type_=blobs.c.digest.type))
    row = make(artifacts).from_select(list(artifacts.columns), there)
    new = {name: row.excluded[name] for name in ("digest", "bytes", "kind", "time", "attempt", "doc")}
    return row.on_conflict_do_update(index_elements=["run", "path"], set_=new)


def _under(prefix: str) -> ColumnElement[bool]:
    return or_(artifacts.c.path == prefix, _inside(prefix)) if prefix else true()


def _inside(folder: str) -> ColumnElement[bool]:
    # Not LIKE, which ignores case in SQLite.
    return func.substr(artifacts.c.path, 1, len(folder) + 1) == f"{folder}/"


def _artifact(row: Row[Any]) -> Artifact:
    run, path, digest, size, kind, time, attempt, doc = tuple(row)
    return Artifact(run, path, digest, size, kind, time, attempt, loads(doc))
