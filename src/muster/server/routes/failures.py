"""Failures of attempts over a period: by cause, node and code, and the checkpoint interval that follows."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import Query

from muster.api.failures import FailuresView
from muster.core.errors import NotFound
from muster.monitor.failures import RunAttempt, summarize
from muster.server.context import HEAVY, Caller, Leading, Tracked
from muster.server.typed_routes import needs, typed_router
from muster.track.failures import ATTEMPTS_MAX, attempts_since, save_seconds

router = typed_router(prefix="/v1", tags=["runs"])

_MONTH: Final = 30 * 86_400.0
Span = Annotated[float, Query(ge=60, le=3_153_600_000, description="seconds back from now")]
Name = Annotated[str | None, Query(min_length=1, max_length=63, pattern=r"^[^\x00]*$")]


@router.get("/failures", dependencies=HEAVY, openapi_extra=needs("anyone"))
def failures(
    leader: Leading, track: Tracked, caller: Caller, project: Name = None, since: Span = _MONTH
) -> FailuresView:
    """Failed attempts of the projects that you can see, the time between failures, and the interval between saves."""
    now, visible = leader.clock.now(), caller.projects(leader.store.state())
    if project is not None and visible is not None and project not in visible:
        raise NotFound(f"There is no project {project!r} that you can see.", "See `muster project ls`.")
    projects = [project] if project is not None else visible
    found = attempts_since(track.db, projects, now - since)
    saves = save_seconds(track.db, projects, now - since)
    whole = len(found) < ATTEMPTS_MAX
    return summarize([RunAttempt(*one) for one in found], saves, now - since, now, whole)
