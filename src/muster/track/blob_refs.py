"""Finds the blobs that are referred to: by artifacts, media, notes, models, statements, and code snapshots."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final

from sqlalchemy import Column, Connection, select, union

from muster.core.errors import Invalid
from muster.store.record_tables import artifacts, media, model_versions, notes, promotions, runs, statements
from muster.track.blobs import Blobs
from muster.track.snapshots import read_manifest

_DIGEST: Final = re.compile(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")
# Documents that may refer to blobs. Any text in them that looks like a digest counts: keeping too much is the safe
# side.
_DOCS: Final = (media.c.doc, notes.c.doc, artifacts.c.doc, runs.c.doc, model_versions.c.doc, promotions.c.doc)


def in_use(blobs: Blobs) -> set[str]:
    """The digests of all blobs that something refers to now."""
    with blobs.db.reading() as connection:
        found = set(connection.scalars(select(artifacts.c.digest).distinct()))
        found.update(connection.scalars(select(statements.c.digest).distinct()))
        for column in _DOCS:
            found.update(_in_docs(connection, column))
        kept = trees(connection)
    # After the database transaction: manifests may be in remote storage, and never change.
    return found | set(_of_snapshots(blobs, kept))


def trees(connection: Connection) -> list[str]:
    """The digests of the manifests of all code snapshots."""
    kept = select(artifacts.c.digest).where(artifacts.c.kind == "code")
    folded = select(runs.c.code_tree).where(runs.c.code_tree != "")
    return list(connection.scalars(union(kept, folded)))


def _in_docs(connection: Connection, column: Column[str]) -> Iterator[str]:
    for text in connection.execution_options(yield_per=1000).scalars(select(column).where(column.like("%digest%"))):
        yield from _DIGEST.findall(text)


def _of_snapshots(blobs: Blobs, trees: Iterable[str]) -> Iterator[str]:
    """The digests in manifests. A damaged manifest yields only its own digest; any other read error is raised."""
    for tree in blobs.has(trees):
        yield tree
        try:
            yield from read_manifest(blobs, tree).digests()
        except Invalid:
            continue
