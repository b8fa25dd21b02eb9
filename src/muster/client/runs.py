"""The part of the client that queries runs: searches, comparisons, data frames and saved queries."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import quote

from muster.client.run import FrameKind, Run

if TYPE_CHECKING:
    from muster.client.client import Client
    from muster.client.http import Transport

Doc = dict[str, Any]  # JSON as the API documents it
PAGE: Final = 1000  # runs in one response


class RunCalls:
    _transport: Transport

    def runs(
        self,
        query: str = "",
        *,
        sort: str = "",
        limit: int | None = 100,
        columns: Sequence[str] | None = None,
        projects: Sequence[str] | None = None,
        hidden: bool | None = False,
    ) -> list[Run]:
        """Runs that match a query, such as `metrics.val_loss < 2.1 and params.lr >= 3e-4`, or `@name` for a saved one.

        Newest first, or by `sort`, such as `-metrics.val_loss, created`; `limit=None` for all. With `columns`, a run
        has only these, in `cells`. `hidden`: True for hidden runs only, None for both.
        """
        asked: Doc = {"query": query, "sort": sort, "columns": list(columns) if columns is not None else None}
        asked |= {"projects": list(projects) if projects is not None else None, "hidden": hidden}
        found = (run for page in self._pages(asked, limit) for run in page["runs"])
        return [Run.from_view(view, cast("Client", self)) for view in found]

    def search_runs(self, query: str = "", **asked: Any) -> Doc:
        """One page: "runs", "next" for the next `after`, "total" with `count=True`, "hints" when there are no runs."""
        # The key marks the request as repeatable, for when its response is lost.
        return dict(self._transport.call("POST", "/v1/runs/search", body={"query": query, **asked}, key="search"))

    def run(self, ref: str | int) -> Run:
        """By id, its job's number, prefix of the id, or the newest with a name; `raw` has everything captured."""
        view = self.call("GET", f"/v1/runs/{quote(str(ref), safe='')}")
        return Run.from_view(view, cast("Client", self))

    def frame(self, query: str = "", kind: FrameKind = "pandas", *, sort: str = "", limit: int | None = None) -> Any:
        """One row per run; columns are named as in `mlflow.search_runs`: params.*, metrics.*, tags.*."""
        runs = self.runs(query, sort=sort, limit=limit)
        return import_module("muster.client.frames").of_runs(runs, kind)

    def compare(
        self,
        refs: Iterable[str | int] = (),
        *,
        query: str | None = None,
        metric: str | None = None,
        mode: str | None = None,
        group: str | None = None,
        by: Sequence[str] | None = None,
        everything: bool = False,
        lines: bool = False,
    ) -> Doc:
        """Differences between runs, their metrics, and whether groups of runs differ by more than their seeds.

        "differences" by params, configuration, environment, packages, code and data; "same" counts the rest; "files" of
        the snapshots; "metrics"; "significance" with "groups" and "differences".
        """
        body: Doc = {"runs": [str(ref) for ref in refs], "query": query, "metric": metric, "mode": mode, "group": group}
        body |= {"everything": everything, "lines": lines} | ({"by": list(by)} if by else {})
        return dict(self._transport.call("POST", "/v1/compare", body=body, key="compare"))

    def queries(self) -> list[Doc]:
        """The saved queries: the user's own, and those of the user's projects."""
        return list(self.call("GET", "/v1/queries")["queries"])

    def save_query(
        self, name: str, query: str, *, sort: str = "", columns: Sequence[str] = (), project: str = ""
    ) -> Doc:
        """Saves a query as `@name`; with a `project`, its members share it."""
        body = {"query": query, "sort": sort, "columns": list(columns), "project": project}
        return dict(self._transport.call("PUT", f"/v1/queries/{quote(name, safe='')}", body=body))

    def remove_query(self, name: str) -> Doc:
        """Removes a saved query; `project/name` is a query of that project."""
        return dict(self._transport.call("DELETE", f"/v1/queries/{quote(name, safe='/')}"))

    def call(self, method: str, path: str, **params: Any) -> Doc:
        """The JSON response of an API path."""
        return dict(self._transport.call(method, path, params=params))

    def read(self, path: str, params: Doc, patience: float) -> bytes:
        """The bytes of the response of an API path; `patience` is the maximum seconds without any."""
        with self._transport.open(path, params, {}, patience) as response:
            return response.read()

    def _pages(self, asked: Doc, limit: int | None) -> Iterator[Doc]:
        after, left = None, limit
        while left is None or left > 0:
            page = self.search_runs(**asked, limit=PAGE if left is None else min(PAGE, left), after=after)
            yield page
            after = page["next"]
            if after is None:
                return
            left = None if left is None else left - len(page["runs"])
