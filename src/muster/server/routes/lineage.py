"""Lineage: what something was made from, and what was made from it."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Path, Query

from muster.api.lineage import LineageView
from muster.core.errors import NotFound
from muster.server.auth import Identity
from muster.server.context import HEAVY, Caller, Leading, Tracked
from muster.server.leader import Leader
from muster.server.record_context import find_run
from muster.server.typed_routes import needs, typed_router
from muster.track.lineage import DEPTH
from muster.track.tracking import Tracking

router = typed_router(prefix="/v1/lineage", tags=["lineage"])

Ref = Annotated[
    str,
    Path(
        min_length=1,
        max_length=1200,
        pattern=r"^[^\x00]*$",
        description="a run, `data:NAME@VERSION`, `checkpoint:RUN/STEP`, `artifact:RUN/PATH` or `model:NAME/VERSION`",
    ),
]


@router.get("/{ref:path}", dependencies=HEAVY, openapi_extra=needs("viewer"))
def lineage(
    ref: Ref,
    leader: Leading,
    track: Tracked,
    caller: Caller,
    way: Annotated[Literal["up", "down", "both"], Query(description="what it came from, or what came of it")] = "both",
    depth: Annotated[int, Query(ge=1, le=100, description="links that are followed")] = DEPTH,
) -> LineageView:
    """Lineage as trees. Items in projects that you can't see have no name."""
    name = resolve(leader, track, caller, ref)
    visible = caller.projects(leader.store.state())
    answer: LineageView = {"ref": name}
    if way in ("up", "both"):
        answer["up"] = track.lineage.upstream(name, visible=visible, depth=depth).to_dict()
    if way in ("down", "both"):
        answer["down"] = track.lineage.downstream(name, visible=visible, depth=depth).to_dict()
    return answer


def resolve(leader: Leader, track: Tracking, caller: Identity, ref: str) -> str:
    """The name in the lineage, if the caller may see what it means."""
    kind, colon, rest = ref.partition(":")
    if not colon or kind == "run":
        return f"run:{find_run(leader, track, caller, rest if colon else ref).id}"
    if kind in ("checkpoint", "artifact"):
        run, _, inner = rest.partition("/")
        return f"{kind}:{find_run(leader, track, caller, run).id}/{inner}"
    if kind == "model":
        model = track.models.get(rest.rpartition("/")[0] or rest)
        if model is None or caller.role(leader.store.state(), model.project) is None:
            raise NotFound(f"There is no model {rest!r} that you can see.", "See `muster models`.")
        return ref
    leader.record.reach()
    if not track.lineage.known(ref, caller.projects(leader.store.state())):
        raise NotFound(f"Nothing is known of {ref!r}.", "Data sets are named as in a job file: `data:c4-en@v3`.")
    return ref
