"""Code snapshots on the server: manifests of files by digest, and the code section of a submission."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import Connection, select

from muster.core.errors import Invalid, MusterError
from muster.store.base import Record
from muster.store.codec import loads
from muster.store.record_tables import blob_owners, media
from muster.track.artifacts import Artifacts
from muster.track.blobs import GRACE, Blobs, check_digest
from muster.track.holders import Holder, naming_code, of_project, owning
from muster.track.paths import check_path
from muster.track.record_db import RecordDb

MANIFEST_BYTES: Final = 16 << 20
TREE_PATH: Final = "muster/code.json"
DIFF_PATH: Final = "muster/code.diff"
_PARSED: Final = 16  # manifests cached in memory
_REMEMBERED: Final = 10_000  # manifests known to be complete

Digest = Annotated[str, Field(pattern=r"^([0-9a-f]{64})?$")]
Line = Annotated[str, Field(max_length=500, pattern=r"^[^\x00]*$")]


class Code(BaseModel):
    """The code section of a submission; see `muster.client.snapshot`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    commit: Annotated[str, Field(max_length=64, pattern=r"^[0-9a-f]*$")] = ""
    branch: Line = ""
    dirty: bool = False
    remote: Line = ""
    tree: Digest = ""  # digest of the manifest
    diff: Digest = ""  # digest of the diff against the commit
    files: Annotated[int, Field(ge=0)] = 0
    bytes: Annotated[int, Field(ge=0)] = 0
    notes: Annotated[tuple[Line, ...], Field(max_length=100)] = ()  # what could not be captured


@dataclass(frozen=True, slots=True)
class Manifest:
    """Path → digest, bytes, mode."""

    files: Mapping[str, tuple[str, int, int]]

    def digests(self) -> Iterator[str]:
        return (digest for digest, _, _ in self.files.values())


class Snapshots:
    def __init__(self, artifacts: Artifacts) -> None:
        self._artifacts, self._blobs = artifacts, artifacts.blobs
        self._parsed: dict[str, Manifest] = {}  # a blob never changes
        # (manifest, holder) → value of `Blobs.turn`, and when it was found complete
        self._whole: dict[tuple[str, Holder], tuple[int, float]] = {}

    def manifest(self, tree: str) -> Manifest:
        known = self._parsed.get(tree)
        if known is None:
            known = read_manifest(self._blobs, tree)
            if len(self._parsed) >= _PARSED:
                self._parsed.clear()
            self._parsed[tree] = known
        return known

    def read(self, digest: str, most: int) -> bytes:
        """The content of a file. Raises NotFound, and Invalid if it is larger."""
        return self._blobs.read(digest, most)

    def of_run(self, run: str) -> Manifest | None:
        """The files of a run's snapshot; None if it has none."""
        kept = self._artifacts.get(run, TREE_PATH)
        return self.manifest(kept.digest) if kept is not None and kept.kind == "code" else None

    def refers(self, run: str, digest: str) -> bool:
        """Whether a run refers to this blob: as an artifact, in its media, or in its snapshot."""
        if run in self._artifacts.runs_with(digest) or in_media(self._artifacts.db, run, digest):
            return True
        manifest = self.of_run(run)
        return manifest is not None and digest in manifest.digests()

    def whole(self, tree: str, holder: Holder) -> bool:
        """Whether all its blobs exist and the holder may refer to them; then they stay long enough for a submission."""
        if not self._blobs.has([tree], holder):
            return False
        digests = [*self.manifest(tree).digests(), tree]
        turn, seen = self._whole.get((tree, holder), (-1, 0.0))
        if turn == self._blobs.turn and time.monotonic() - seen < GRACE / 4:
            self._blobs.protect(digests)
            if turn == self._blobs.turn:  # nothing was deleted before `protect`
                return True
        turn = self._blobs.turn
        if self._blobs.missing(digests, holder):
            return False
        if len(self._whole) >= _REMEMBERED:
            self._whole.clear()
        self._whole[tree, holder] = (turn, time.monotonic())
        return True

    def accept(self, code: Code, holder: Holder) -> Code:
        """The code without blobs that the holder lacks: a submission is never refused because of its snapshot."""
        holder = naming_code(holder)
        notes, changed = list(code.notes), dict[str, Any]()
        if code.tree and (why := self._lacks(code.tree, holder)):
            notes.append(f"the snapshot was left out: {why}")
            changed |= {"tree": "", "files": 0, "bytes": 0}
        if code.diff and self._blobs.missing([code.diff], holder):
            notes.append("the changes against the commit were left out: you have not uploaded their content")
            changed |= {"diff": ""}
        return code.model_copy(update={**changed, "notes": tuple(notes[:100])}) if changed else code

    def records(self, code: Code, project: str, now: float) -> Callable[[str], list[Record]]:
        """For a run: records that tie the blobs to it and its project, in the transaction that accepts the job."""
        about = {"commit": code.commit, "files": code.files, "bytes": code.bytes}
        named = ((TREE_PATH, code.tree, "code", about), (DIFF_PATH, code.diff, "diff", {"mime": "text/x-diff"}))
        shared = [_shared(code.tree, self.manifest(code.tree), project, now)] if code.tree else []

        def records(run: str) -> list[Record]:
            return shared + [
                self._artifacts.record(self._artifacts.make(run, path, digest, None, kind, doc=doc, time=now))
                for path, digest, kind, doc in named
                if digest
            ]

        return records

    def _lacks(self, tree: str, holder: Holder) -> str:
        try:
            return "" if self.whole(tree, holder) else "you have not uploaded all of its files"
        except MusterError as error:
            return error.message


def _shared(tree: str, manifest: Manifest, project: str, now: float) -> Record:
    """Lets the whole project refer to the files of a snapshot. If it owns the manifest already, it owns all files."""
    owner = of_project(project).owner
    known = select(blob_owners.c.time).where(blob_owners.c.digest == tree, blob_owners.c.owner == owner)

    def record(connection: Connection) -> None:
        if connection.scalar(known) is None:
            owning(dict.fromkeys([*manifest.digests(), tree]), owner, now)(connection)

    return record


def in_media(db: RecordDb, run: str, digest: str) -> bool:
    """Whether a medium of the run is this blob. Other digests in its document don't count: any user can write one."""
    with db.reading() as connection:
        docs = connection.scalars(select(media.c.doc).where(media.c.run == run, media.c.doc.contains(digest)))
        return any(loads(doc).get("digest") == digest for doc in docs)


def read_manifest(blobs: Blobs, tree: str) -> Manifest:
    """Raises Invalid if it isn't a manifest, and NotFound if it doesn't exist."""
    return parse_manifest(blobs.read(tree, MANIFEST_BYTES), tree)


def parse_manifest(raw: bytes, tree: str) -> Manifest:
    try:
        found = json.loads(raw)
        files = {check_path(path): _file(*entry) for path, entry in found.items()}
    except (ValueError, TypeError, AttributeError, RecursionError, Invalid) as error:
        raise Invalid(f"The content {tree} is no manifest of a snapshot: {error}.", "Make the snapshot anew.") from None
    return Manifest(files)


def _file(digest: str, size: int, mode: int) -> tuple[str, int, int]:
    if not isinstance(size, int) or not isinstance(mode, int) or size < 0 or not 0 <= mode <= 0o777:
        raise ValueError("a file is [sha256, bytes, mode]")
    return check_digest(digest), size, mode
