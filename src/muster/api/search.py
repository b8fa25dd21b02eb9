"""Search for runs, and saved queries."""

from muster.api.runs import RunCells, RunView
from muster.api.typed import TypedDict


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
