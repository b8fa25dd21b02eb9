"""A search in a job's whole output."""

from __future__ import annotations

import time
from typing import Annotated, Final

from fastapi import Query

from muster.api.logs import LogMatches
from muster.server.context import HEAVY, Caller, Leading, Ref, find_job
from muster.server.log_context import Context, compiled
from muster.server.log_search import LogQuery, Place, kept_bytes, search
from muster.server.routes.job_details import Small
from muster.server.typed_routes import needs, typed_router

router = typed_router(prefix="/v1/jobs/{ref}/logs", tags=["jobs"])

_SECONDS: Final = 1.5  # after which an answer says how far it came
Text = Annotated[str | None, Query(min_length=1, max_length=1000, pattern=r"^[^\x00\n]*$")]
After = Annotated[
    str | None,
    Query(
        pattern=r"^[0-9]{1,7}\.[0-9]{1,15}\.[0-9]{1,7}$", description="the `next` of the answer that it goes on from"
    ),
]


@router.get("/search", dependencies=HEAVY, openapi_extra=needs("viewer"))
def search_logs(
    ref: Ref,
    leader: Leading,
    caller: Caller,
    text: Text = None,
    regex: Annotated[Text, Query(description="in the syntax of RE2")] = None,
    case: Annotated[bool, Query(description="capital letters differ from small ones")] = False,
    attempt: Small = None,
    rank: Small = None,
    after: After = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    context: Annotated[int, Query(ge=0, le=50, description="lines of the same rank before and after")] = 2,
) -> LogMatches:
    """Lines with a text, or that match a pattern, with the lines around them; of all attempts and ranks unless given.

    An answer takes a few seconds at most: then `next` says where to go on, also when nothing was found yet.
    """
    job = find_job(leader, caller, ref)
    pattern = compiled(text, regex, case)
    numbers = [attempt] if attempt is not None else [one.number for one in leader.store.attempts(job.id)]
    want = LogQuery(job.id, numbers, rank, pattern, limit)
    begin = Place(*map(int, after.split("."))) if after is not None else None
    until = time.monotonic() + _SECONDS
    found = search(leader.store, want, begin, lambda: time.monotonic() > until)
    show = Context(leader.store, job.id, pattern, context).show
    return {
        "matches": [show(line) for line in found.lines],
        "next": str(found.goes_on) if found.goes_on is not None else None,
        "searched": found.searched,
        "total": kept_bytes(leader.store, want),
    }
