"""What a proposed policy would have said about the jobs of the past."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from muster.api.rules import PolicyCursor, PolicyReplay
from muster.control.policy_replay import jobs_to_judge, replay, world_of
from muster.control.rules import problems_here, read_rules
from muster.core.document import MAX_BYTES
from muster.core.errors import SpecError
from muster.core.policy_file import HINT
from muster.server.context import HEAVY, Caller, Leading
from muster.server.typed_routes import needs, typed_router

router = typed_router(prefix="/v1", tags=["rules"])


class CursorBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    before: int = Field(ge=0, le=2**53)
    live: bool = False


class ReplayBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    text: str = Field(max_length=MAX_BYTES, description="the whole policy file, as YAML")
    since: float = Field(ge=0, le=1e11, description="jobs that were submitted since then, in seconds since 1970")
    source: str = Field("The policy", max_length=1000, description="what errors should call it")
    next: CursorBody | None = Field(None, description="where this page begins: `next` of the page before")


@router.post("/rules/replay", dependencies=HEAVY, openapi_extra=needs("superuser"))
def replay_policy(body: ReplayBody, leader: Leading, caller: Caller) -> PolicyReplay:
    """Puts the jobs of the past, and those that wait or run, to a proposed policy; 500 of them, newest first.

    For the next page, pass `next` again, until it is null. Nothing is changed.
    """
    caller.need_superuser()
    rules = read_rules(body.text, body.source)
    problems = leader.look(lambda state: problems_here(rules, state))
    if problems:
        raise SpecError(problems, body.source, HINT)
    world = leader.look(world_of)
    cursor: PolicyCursor | None = None
    if body.next is not None:
        cursor = {"before": body.next.before, "live": body.next.live}
    jobs, following = jobs_to_judge(leader.store, body.since, cursor)
    found = replay(jobs, rules, world, leader.engine.most())
    return {
        "since": body.since, "judged": found.judged, "live": found.live, "refused": found.refused,
        "refused_live": found.refused_live, "freed": found.freed, "effects": found.views(), "next": following,
    }  # fmt: skip
