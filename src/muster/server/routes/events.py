"""The event log."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

from fastapi import Header, Query
from fastapi.responses import StreamingResponse

from muster.api.events import EventList
from muster.server.auth import Identity
from muster.server.context import HEAVY, Caller, Leading, Serving, Watching, find_job, whole_number
from muster.server.leader import Leader
from muster.server.routes.jobs import Text
from muster.server.stream import ALL, frame
from muster.server.typed_routes import needs, typed_router
from muster.server.views import event_view
from muster.store.base import EventFilter

router = typed_router(prefix="/v1/events", tags=["events"])

Seq = Annotated[int, Query(ge=0, le=2**53)]


@router.get("", dependencies=HEAVY, openapi_extra=needs("anyone"))
def list_events(
    leader: Leading,
    caller: Caller,
    project: Text = None,
    job: Text = None,
    actor: Text = None,
    kind: Text = None,
    after: Seq = 0,
    last: Annotated[bool, Query(description="the newest ones; still oldest first")] = False,
    limit: Annotated[int, Query(ge=1, le=10_000)] = 100,
    before: Annotated[int | None, Query(ge=1, le=2**53, description="with `last`: the newest before this one")] = None,
) -> EventList:
    """Events, oldest first. For the next page, pass `next` as `after`; for older ones, the first `seq` as `before`."""
    want = _want(leader, caller, project, job, actor, kind, after, last, limit)
    found = leader.store.events(replace(want, before=before))
    return {"events": [event_view(event) for event in found], "next": found[-1].seq if found else after}


@router.get("/stream", response_class=StreamingResponse, openapi_extra=needs("anyone"))
def stream_events(
    leader: Leading,
    caller: Caller,
    service: Serving,
    watching: Watching,
    project: Text = None,
    job: Text = None,
    actor: Text = None,
    kind: Text = None,
    after: Annotated[int | None, Query(ge=0, le=2**53)] = None,
    last_event_id: Annotated[str | None, Header(max_length=20)] = None,
) -> StreamingResponse:
    """Streams events as they are committed, from now on or from `after` or Last-Event-ID."""
    begin = after if after is not None else leader.store.state().version
    seen = whole_number(last_event_id)
    at = [begin if seen is None else seen]
    topic = find_job(leader, caller, job).id if job else ALL

    def look(caller: Identity) -> tuple[list[bytes], bool]:
        if project is not None:
            caller.need(leader.store.state(), project, "viewer")
        wanted = topic if job else None
        found = leader.store.events(_want(leader, caller, project, wanted, actor, kind, at[0], False, 500))
        if found:
            at[0] = found[-1].seq
            service.hub.notify([topic] if job else [])  # there may be more
        return [frame("event", event_view(event), event.seq) for event in found], False

    return service.streams.follow(watching, topic, look)


def _want(
    leader: Leader,
    caller: Identity,
    project: str | None,
    job: str | None,
    actor: str | None,
    kind: str | None,
    after: int,
    last: bool,
    limit: int,
) -> EventFilter:
    projects = caller.projects(leader.store.state())
    if project is not None:
        projects = [project] if projects is None or project in projects else []
    job_id = find_job(leader, caller, job).id if job else None
    return EventFilter(projects, job_id, actor, kind, after, last, limit)
