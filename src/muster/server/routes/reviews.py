"""Reviews of runs that somebody has asked for and nobody has answered."""

from __future__ import annotations

from muster.api.promotion import ReviewList, ReviewView
from muster.core.entities import at_least
from muster.server.context import HEAVY, Caller, Leading, Tracked
from muster.server.typed_routes import needs, typed_router

router = typed_router(prefix="/v1/reviews", tags=["runs"])


@router.get("", dependencies=HEAVY, openapi_extra=needs("anyone"))
def list_reviews(leader: Leading, track: Tracked, caller: Caller) -> ReviewList:
    """Reviews that were asked for in your projects and are not answered, the newest first; `yours` if you may."""
    leader.record.reach()
    state = leader.store.state()
    entries = track.run_stages.asked(caller.projects(state))
    runs = track.runs.many([one.run for one in entries])
    found: list[ReviewView] = []
    for one in entries:
        rules = state.rules.promotion.get(one.stage)
        if rules is None or rules.reviewer is None or one.run not in runs:
            continue  # the policy asks for it no longer, or the run is gone
        may = at_least(caller.role(state, one.project), rules.reviewer) and caller.user != runs[one.run].user
        found.append({
            "time": one.time, "actor": one.actor, "project": one.project, "run": one.run, "stage": one.stage,
            "why": str(one.doc.get("why", "")), "reviewer": rules.reviewer, "yours": may,
        })  # fmt: skip
    return {"reviews": found}
