"""Which blobs a caller may refer to: those it can read already, and those it uploaded, since it has their content."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import ColumnElement, exists, or_, select, true

from muster.store.base import Record
from muster.store.record_tables import artifacts, blob_owners, blobs, runs
from muster.track.rows import adding


@dataclass(frozen=True, slots=True)
class Holder:
    """A caller that refers to blobs. `owner` owns its uploads; it may read blobs of `projects`, None for all."""

    owner: str
    projects: tuple[str, ...] | None


def of_project(project: str) -> Holder:
    """The holder for a worker, which acts for its run's project."""
    return Holder(f"project:{project}", (project,))


def of_user(user: str, projects: Iterable[str] | None) -> Holder:
    return Holder(f"user:{user}", None if projects is None else tuple(sorted(projects)))


def held_by(holder: Holder) -> ColumnElement[bool]:
    """Condition on rows of `blobs`: the holder may refer to them."""
    if holder.projects is None:
        return true()
    owners = [holder.owner, *(f"project:{project}" for project in holder.projects)]
    owned = select(blob_owners.c.digest).where(blob_owners.c.digest == blobs.c.digest, blob_owners.c.owner.in_(owners))
    named = select(artifacts.c.run).join(runs, runs.c.id == artifacts.c.run)
    named = named.where(artifacts.c.digest == blobs.c.digest, runs.c.project.in_(holder.projects))
    return or_(exists(owned), exists(named))


def owning(digests: Iterable[str], owner: str, now: float) -> Record:
    """Records that the owner has these blobs."""
    return adding(blob_owners, [{"digest": digest, "owner": owner, "time": now} for digest in digests])
