"""Calls that query runs: searches, comparisons, data frames and saved queries."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from muster.client.connection import Anyone, Connection, Doc, R, run_path
from muster.client.curves import FrameKind

if TYPE_CHECKING:
    from muster.api.compare import Comparison
    from muster.api.goodput import GoodputView
    from muster.api.runs import Reproduction, RunPage
    from muster.api.search import SavedQueryView, SearchPage

PAGE: Final = 1000  # runs in one response


async def runs(
    to: Connection[Any, R, Any],
    /,
    query: str = "",
    *,
    sort: str = "",
    limit: int | None = 100,
    columns: Sequence[str] | None = None,
    projects: Sequence[str] | None = None,
    hidden: bool | None = False,
) -> list[R]:
    """Runs that match a query, such as `metrics.val_loss < 2.1 and params.lr >= 3e-4`, or `@name` for a saved one.

    Newest first, or by `sort`, such as `-metrics.val_loss, created`; `limit=None` for all. With `columns`, a run
    has only these, in `cells`. `hidden`: True for hidden runs only, None for both.
    """
    asked: Doc = {"query": query, "sort": sort, "columns": list(columns) if columns is not None else None}
    asked |= {"projects": list(projects) if projects is not None else None, "hidden": hidden}
    found: list[R] = []
    after, left = None, limit
    while left is None or left > 0:
        page = await search_runs(to, **asked, limit=PAGE if left is None else min(PAGE, left), after=after)
        found += [to._run(view) for view in page["runs"]]
        after = page["next"]
        if after is None:
            break
        left = None if left is None else left - len(page["runs"])
    return found


async def search_runs(to: Anyone, /, query: str = "", **asked: Any) -> SearchPage:
    """One page: "runs", "next" for the next `after`, "total" with `count=True`, "hints" when there are no runs."""
    # The key marks the request as repeatable, for when its response is lost.
    return await to._transport.call("POST", "/v1/runs/search", body={"query": query, **asked}, key="search")


async def goodput(
    to: Anyone,
    /,
    run: str | int | None = None,
    *,
    project: str | None = None,
    queue: str | None = None,
    node: str | None = None,
    since: float | None = None,
) -> GoodputView:
    """What the held time went to, of a run or of what is given; `since` is in seconds back from now, a week if None."""
    return await to._get("/v1/goodput", run=run, project=project, queue=queue, node=node, since=since)


async def run(to: Connection[Any, R, Any], /, ref: str | int) -> R:
    """By id, its job's number, prefix of the id, or name (see `job`); `raw` has everything captured."""
    return to._run(await to._get(run_path(ref)))


async def run_page(to: Anyone, /, ref: str | int) -> RunPage:
    """Everything of a run that a person looks at first: "run" with all that was captured, "attempts", "checkpoints",
    "changes", "artifacts", the newest 1,000 "notes" and, of a job's run, "summary".
    """
    return await to._get(run_path(ref, "page"))


async def reproduction(to: Anyone, /, ref: str | int) -> Reproduction:
    """What is needed to repeat a run: "spec", "yaml", "code", "files", "environment", "data" and "seeds"."""
    return await to._get(run_path(ref, "reproduction"))


async def frame(
    to: Anyone, /, query: str = "", kind: FrameKind = "pandas", *, sort: str = "", limit: int | None = None
) -> Any:
    """One row per run; columns are named as in `mlflow.search_runs`: params.*, metrics.*, tags.*."""
    found = await runs(to, query, sort=sort, limit=limit)
    # Imported late: it needs NumPy, which few calls need.
    return await to._transport.work(lambda: import_module("muster.client.frames").of_runs(found, kind))


async def compare(
    to: Anyone,
    /,
    refs: Iterable[str | int] = (),
    *,
    query: str | None = None,
    metric: str | None = None,
    mode: str | None = None,
    group: str | None = None,
    by: Sequence[str] | None = None,
    everything: bool = False,
    lines: bool = False,
) -> Comparison:
    """Differences between runs, their metrics, and whether groups of runs differ by more than their seeds.

    "differences" by params, configuration, environment, packages, code and data; "same" counts the rest; "files" of
    the snapshots; "metrics"; "significance" with "groups" and "differences".
    """
    body: Doc = {"runs": [str(ref) for ref in refs], "query": query, "metric": metric, "mode": mode, "group": group}
    body |= {"everything": everything, "lines": lines} | ({"by": list(by)} if by else {})
    return await to._transport.call("POST", "/v1/compare", body=body, key="compare")


async def queries(to: Anyone, /) -> list[SavedQueryView]:
    """The saved queries: the user's own, and those of the user's projects."""
    return (await to._get("/v1/queries"))["queries"]


async def save_query(
    to: Anyone, /, name: str, query: str, *, sort: str = "", columns: Sequence[str] = (), project: str = ""
) -> SavedQueryView:
    """Saves a query as `@name`; with a `project`, its members share it."""
    body = {"query": query, "sort": sort, "columns": list(columns), "project": project}
    return await to._transport.call("PUT", f"/v1/queries/{quote(name, safe='')}", body=body)


async def remove_query(to: Anyone, /, name: str) -> SavedQueryView:
    """Removes a saved query; `project/name` is a query of that project."""
    return await to._transport.call("DELETE", f"/v1/queries/{quote(name, safe='/')}")


async def call(to: Anyone, /, method: str, path: str, **params: Any) -> Doc:
    """The JSON response of an API path."""
    return await to._transport.call(method, path, params=params)


async def read(to: Anyone, /, path: str, params: Doc, patience: float) -> bytes:
    """The bytes of the response of an API path; `patience` is the maximum seconds without any."""
    return await to._transport.read(path, params, patience)
