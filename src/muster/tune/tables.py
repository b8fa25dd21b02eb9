"""Sorted tables over the trials of a study, which follow the views that they are given at the cost of what changed."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Sequence

from muster.core.entities.study import Trial
from muster.tune.changed import Changed
from muster.tune.view import StudyView

Key = tuple[str, int, float]  # of a table: its name, a bracket and a level
Row = tuple[float, int]  # what the table is sorted by, and the number of the trial
Entry = tuple[Key, Row]


class Tables:
    """`rows_of` says in which tables a trial has rows, and is a function of the trial alone: what stays first.

    The tables are a function of the view alone: trials that are the same objects as in the last view are passed over,
    and the rows of all others are made again. A new instance has the same tables as one that followed the study.
    """

    def __init__(self, rows_of: Callable[[Trial], Iterable[Entry]]) -> None:
        self._rows_of = rows_of
        self._changed = Changed()
        self._rows: dict[int, list[Entry]] = {}  # by trial
        self._tables: dict[Key, list[Row]] = {}

    def follow(self, view: StudyView) -> None:
        for number, trial in self._changed.since(view.trials):
            if trial is not None:
                self._put(number, list(self._rows_of(trial)))
            elif number in self._rows:
                self._put(number, [])
                del self._rows[number]

    def rows(self, name: str, bracket: int = 0, level: float = 0.0) -> Sequence[Row]:
        """A table, the smallest first. It must not be changed."""
        return self._tables.get((name, bracket, level), ())

    def keys(self, name: str) -> list[Key]:
        """Of the tables of this name that have rows."""
        return [key for key in self._tables if key[0] == name]

    def _put(self, number: int, rows: list[Entry]) -> None:
        known = self._rows.get(number, [])
        same = 0
        for one, other in zip(known, rows, strict=False):
            if one != other:
                break
            same += 1
        for key, row in known[same:]:
            table = self._tables[key]
            del table[bisect_left(table, row)]
            if not table:
                del self._tables[key]
        for key, row in rows[same:]:
            insort(self._tables.setdefault(key, []), row)
        self._rows[number] = rows


def rank(table: Sequence[Row], row: Row) -> int:
    """How many rows come before it."""
    return bisect_left(table, row)
