"""Data sets that runs have read and written."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query

from muster.api.data_sets import DataDetail, DataList
from muster.core.errors import NotFound
from muster.server.context import HEAVY, Caller, Leading, Tracked
from muster.server.typed_routes import needs, typed_router

router = typed_router(prefix="/v1/data", tags=["lineage"])

Name = Annotated[
    str,
    Path(min_length=1, max_length=1000, pattern=r"^[^\x00]*$", description="`c4-en`, or one version: `c4-en@v3`"),
]


@router.get("", dependencies=HEAVY, openapi_extra=needs("anyone"))
def list_data(
    leader: Leading,
    track: Tracked,
    caller: Caller,
    contains: Annotated[str, Query(max_length=200, pattern=r"^[^\x00]*$", description="in name or version")] = "",
) -> DataList:
    """The data sets that runs of your projects have named, by version, the last used first; at most 500."""
    leader.record.reach()
    found, more = track.data_sets.versions(caller.projects(leader.store.state()), contains=contains)
    return {"data": found, "more": more}


@router.get("/{name:path}", dependencies=HEAVY, openapi_extra=needs("viewer"))
def get_data(name: Name, leader: Leading, track: Tracked, caller: Caller) -> DataDetail:
    """A data set with its versions and the runs that used it, the newest first; at most 200."""
    leader.record.reach()
    visible = caller.projects(leader.store.state())
    versions, _ = track.data_sets.versions(visible, name=name)
    if not versions:
        raise NotFound(f"There is no data set {name!r} that you can see.", "See `muster data`.")
    uses, more = track.data_sets.uses(name, visible)
    return {"name": name, "versions": versions, "uses": uses, "more": more}
