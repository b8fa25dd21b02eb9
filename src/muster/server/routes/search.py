"""Search for runs by a query, and saved queries."""

from __future__ import annotations

import re
from typing import Annotated, Final

from fastapi import Path, Query
from pydantic import BaseModel, ConfigDict, Field

from muster.api.search import FieldList, SavedQueryList, SavedQueryView, SearchPage
from muster.core.errors import Invalid
from muster.server.auth import Identity
from muster.server.context import HEAVY, Caller, Leading, Tracked
from muster.server.leader import Leader
from muster.server.typed_routes import needs, typed_router
from muster.track.query.lex import LONGEST
from muster.track.query.parse import parse_field
from muster.track.saved import MOST_COLUMNS, SavedQuery
from muster.track.search import MOST
from muster.track.tracking import Tracking

router = typed_router(prefix="/v1", tags=["runs"])

_SAVED: Final = re.compile(r"\s*@(\S+)\s*\Z")
_NO_NUL: Final = r"^[^\x00]*$"
Name = Annotated[str, Path(min_length=1, max_length=210, pattern=_NO_NUL)]
Text = Annotated[str, Field(max_length=LONGEST + 1000, pattern=_NO_NUL)]
Short = Annotated[str, Field(max_length=2000, pattern=_NO_NUL)]


class SearchBody(BaseModel):
    """`query` may be `@name` of a saved query; its order and columns are used if none are given."""

    model_config = ConfigDict(extra="forbid")

    query: Text = ""
    sort: Short = Field(default="", description="fields with commas between; `-` before one is from high to low")
    columns: list[Short] | None = Field(default=None, max_length=MOST_COLUMNS, description="only these, as `cells`")
    projects: list[Short] | None = Field(
        default=None, max_length=1000, description="of those that you can see; null: all"
    )
    limit: int = Field(default=100, ge=1, le=MOST)
    after: str | None = Field(default=None, max_length=10_000, description="`next` of the page before")
    hidden: bool | None = Field(default=False, description="true: hidden runs alone; null: hidden and not")
    count: bool = Field(default=False, description="also say how many there are in all")


class SaveBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    query: Text
    sort: Short = ""
    columns: list[Short] = Field(default=[], max_length=MOST_COLUMNS)
    project: Short = Field(default="", description="shared with its members; empty: yours alone")


@router.get("/runs", dependencies=HEAVY, openapi_extra=needs("anyone"))
def list_runs(
    leader: Leading,
    track: Tracked,
    caller: Caller,
    query: Annotated[str, Query(max_length=LONGEST, pattern=_NO_NUL)] = "",
    sort: Annotated[str, Query(max_length=2000, pattern=_NO_NUL)] = "",
    limit: Annotated[int, Query(ge=1, le=MOST)] = 100,
    after: Annotated[str | None, Query(max_length=10_000)] = None,
) -> SearchPage:
    """Same as `search`, for queries that fit into a URL."""
    return find(leader, track, caller, SearchBody(query=query, sort=sort, limit=limit, after=after))


@router.post("/runs/search", dependencies=HEAVY, openapi_extra=needs("anyone"))
def search(body: SearchBody, leader: Leading, track: Tracked, caller: Caller) -> SearchPage:
    """Runs that match the query, newest first unless sorted, with their parameters, tags, metrics and data."""
    return find(leader, track, caller, body)


@router.get("/queries", openapi_extra=needs("anyone"))
def saved_queries(leader: Leading, track: Tracked, caller: Caller) -> SavedQueryList:
    """Your saved queries, and those of your projects."""
    found = track.saved.list(caller.user, caller.projects(leader.store.state()))
    return {"queries": [one.to_dict() for one in found]}


@router.get("/queries/fields", dependencies=HEAVY, openapi_extra=needs("anyone"))
def fields(
    leader: Leading,
    track: Tracked,
    caller: Caller,
    text: Annotated[str, Query(max_length=1000, pattern=_NO_NUL, description="a part of the name")] = "",
    limit: Annotated[int, Query(ge=1, le=1000, description="of metrics, of parameters and of tags")] = 100,
) -> FieldList:
    """Fields that a query can name: those of every run, and the metrics, parameters and tags of runs that you see."""
    return track.search.fields(text, projects=caller.projects(leader.store.state()), limit=limit)


@router.put("/queries/{name}", openapi_extra=needs("anyone"))
def save_query(name: Name, body: SaveBody, leader: Leading, track: Tracked, caller: Caller) -> SavedQueryView:
    """Saves a query under a name; replaces one of the same name."""
    if body.project:
        caller.need(leader.store.state(), body.project, "member")
    saved = track.saved.save(caller.user, name, body.query, project=body.project, sort=body.sort, columns=body.columns)
    return saved.to_dict()


@router.delete("/queries/{name:path}", openapi_extra=needs("anyone"))
def remove_query(name: Name, leader: Leading, track: Tracked, caller: Caller) -> SavedQueryView:
    """Removes a saved query. `project/name` is that project's; a plain name is yours if you have one of that name."""
    state = leader.store.state()
    saved = track.saved.get(caller.user, caller.projects(state), name)
    if saved.project:
        caller.need(state, saved.project, "member")
    track.saved.remove(saved, caller.user)
    return saved.to_dict()


def find(leader: Leader, track: Tracking, caller: Identity, body: SearchBody) -> SearchPage:
    """A page of runs, with the query as it was interpreted."""
    visible = caller.projects(leader.store.state())
    saved = _saved(track, caller, visible, body.query)
    query = saved.query if saved else body.query
    sort = body.sort or (saved.sort if saved else "")
    names = body.columns if body.columns is not None else list(saved.columns) if saved and saved.columns else None
    columns = [parse_field(name) for name in names] if names is not None else None
    if body.projects is not None:
        visible = [one for one in body.projects if visible is None or one in visible]
    leader.record.reach()  # so that a job that was just submitted is found as a run
    page = track.search.find(
        query, projects=visible, sort=sort, limit=body.limit, after=body.after, hidden=body.hidden, count=body.count
    )
    return {
        "runs": track.search.views(page.ids) if columns is None else track.search.cells(page.ids, columns),
        "next": page.cursor,
        "total": page.total,
        "hints": list(page.hints),
        "query": query,
        "sort": sort,
        "columns": None if columns is None else [str(column) for column in columns],
    }


def _saved(track: Tracking, caller: Identity, visible: list[str] | None, query: str) -> SavedQuery | None:
    match = _SAVED.match(query)
    if match is not None:
        return track.saved.get(caller.user, visible, match[1])
    if query.lstrip().startswith("@"):
        raise Invalid("A saved query stands alone.", "Write `@name`, or the query itself.")
    return None
