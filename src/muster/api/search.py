"""Search for runs, and saved queries."""

from typing import Literal

from muster.api.runs import RunCells, RunView
from muster.api.typed import TypedDict

# Of a field. column: a text of the run itself; version: numbers separated by dots.
FieldKind = Literal[
    "column", "commit", "phase", "number", "duration", "time", "flag", "metric", "param", "tag", "data", "note",
    "experiment", "env", "version",
]  # fmt: skip


class SearchPage(TypedDict):
    """`columns` null: whole runs; otherwise runs with `cells`."""

    runs: list[RunView] | list[RunCells]
    next: str | None  # pass it as `after` for the next page
    total: int | None
    hints: list[str]
    query: str
    sort: str
    columns: list[str] | None


class SavedQueryView(TypedDict):
    project: str  # empty: of the user alone
    user: str
    name: str
    time: float
    query: str
    sort: str
    columns: list[str]


class SavedQueryList(TypedDict):
    queries: list[SavedQueryView]


class FieldView(TypedDict):
    """A field as a query names it."""

    field: str
    kind: FieldKind


class FieldList(TypedDict):
    """`more`: some are left out; ask for a longer part of the name."""

    fields: list[FieldView]
    more: bool
