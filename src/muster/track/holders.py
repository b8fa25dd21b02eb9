"""Which blobs a caller may refer to: those it can read already, and those it uploaded, since it has their content."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from sqlalchemy import ColumnElement, and_, exists, or_, select, true

from muster.scan.artifacts import VERSION
from muster.store.base import Record
from muster.store.record_tables import artifacts, blob_owners, blobs, runs, scans
from muster.track.rows import adding
from muster.track.scan_rows import SCANNED


@dataclass(frozen=True, slots=True)
class Holder:
    """A caller that refers to blobs. `owner` owns its uploads; it may read blobs of `projects`, None for all.

    With `for_code`, what it names becomes the code of a job. A job reads its code without being asked who it is, so an
    artifact may be named only if its scan found nothing: else a member could read what is quarantined.
    """

    owner: str
    projects: tuple[str, ...] | None
    for_code: bool = False


def of_project(project: str) -> Holder:
    """The holder for a worker, which acts for its run's project."""
    return Holder(f"project:{project}", (project,))


def of_user(user: str, projects: Iterable[str] | None) -> Holder:
    return Holder(f"user:{user}", None if projects is None else tuple(sorted(projects)))


def naming_code(holder: Holder) -> Holder:
    return replace(holder, for_code=True)


def held_by(holder: Holder) -> ColumnElement[bool]:
    """Condition on rows of `blobs`: the holder may refer to them."""
    readable = _readable(holder.projects)
    if holder.for_code:
        readable = and_(readable, or_(~_scanned(), _clean()))
    return or_(_owned([holder.owner]), readable)


def _readable(projects: tuple[str, ...] | None) -> ColumnElement[bool]:
    if projects is None:
        return true()
    named = select(artifacts.c.run).join(runs, runs.c.id == artifacts.c.run)
    named = named.where(artifacts.c.digest == blobs.c.digest, runs.c.project.in_(projects))
    return or_(_owned([f"project:{project}" for project in projects]), exists(named))


def _owned(owners: list[str]) -> ColumnElement[bool]:
    found = select(blob_owners.c.digest)
    return exists(found.where(blob_owners.c.digest == blobs.c.digest, blob_owners.c.owner.in_(owners)))


def _scanned() -> ColumnElement[bool]:
    """It is an artifact of a kind that is scanned, of any run."""
    found = select(artifacts.c.run)
    return exists(found.where(artifacts.c.digest == blobs.c.digest, artifacts.c.kind.in_(SCANNED)))


def _clean() -> ColumnElement[bool]:
    this = and_(scans.c.digest == blobs.c.digest, scans.c.reading == "artifact", scans.c.version >= VERSION)
    return exists(select(scans.c.digest).where(this, scans.c.findings == "[]"))


def owning(digests: Iterable[str], owner: str, now: float) -> Record:
    """Records that the owner has these blobs."""
    return adding(blob_owners, [{"digest": digest, "owner": owner, "time": now} for digest in digests])
