"""What a parameter says that a run starts from: a checkpoint by its path, or anything by its name in the lineage."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from sqlalchemy import select

from muster.store import record_tables as tables
from muster.track.book import Book
from muster.track.rows import chunks

_REFERENCE: Final = re.compile(r"(checkpoint|model|artifact|run):[^\s:@][^\s]{0,500}\Z")
_PATH: Final = re.compile(r"(/|s3://)[^\s,]{3,1000}\Z")


class Origins:
    def __init__(self, book: Book) -> None:
        self._book = book

    def find(self, values: Sequence[str]) -> list[str]:
        """What these values refer to, in the order found."""
        named = [value for value in values if _REFERENCE.match(value)]
        paths = list({place for value in values if _PATH.match(value) for place in _above(value.rstrip("/"))})
        return list(dict.fromkeys([*named, *self._checkpoints(paths)]))

    def _checkpoints(self, paths: Sequence[str]) -> list[str]:
        if not paths:
            return []
        found, table = list[str](), tables.checkpoints.c
        with self._book.reading() as connection:
            for part in chunks(paths):
                rows = connection.execute(select(table.run, table.step).where(table.path.in_(part)))
                found += [f"checkpoint:{run}/{step}" for run, step in rows]
        return found


def reference(text: str) -> str | None:
    """The text itself when it names something: `checkpoint:gpt-17/400`, `model:gpt/3`."""
    return text if _REFERENCE.match(text) else None


def _above(path: str) -> list[str]:
    """The path and the folders right above it: a checkpoint may be named by a file in it."""
    parts = path.split("/")
    return ["/".join(parts[:count]) for count in range(len(parts), max(len(parts) - 3, 2), -1)]
