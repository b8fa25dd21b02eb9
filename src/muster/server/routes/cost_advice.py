"""Advice that saves money."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from fastapi import Query

from muster.api.cost import AdviceList
from muster.control.cost_advice import AdviceReader
from muster.core.errors import Invalid, NotFound
from muster.core.money import MICRO
from muster.server.context import HEAVY, Caller, Leading, Tracked
from muster.server.typed_routes import needs, typed_router

router = typed_router(prefix="/v1", tags=["cost"])

_MONTH: Final = 30 * 86_400.0
_LONGEST: Final = 92 * 86_400  # seconds
Kind = Literal["right-size", "spot", "off-peak", "reserve", "idle-session", "checkpoint", "sweep"]
Name = Annotated[str | None, Query(min_length=1, max_length=63, pattern=r"^[^\x00]*$")]
Span = Annotated[float, Query(ge=3600, le=_LONGEST, description="seconds back from now")]
Price = Annotated[float | None, Query(gt=0, le=1e9)]


@router.get("/cost/advice", dependencies=HEAVY, openapi_extra=needs("anyone"))
def cost_advice(
    leader: Leading,
    track: Tracked,
    caller: Caller,
    kind: Kind | None = None,
    project: Name = None,
    since: Span = _MONTH,
    reserve_price: Price = None,
    buy_price: Price = None,
) -> AdviceList:
    """What would save money in the projects that you can see, each with its arithmetic and a command.

    What to reserve or buy is said to a token that sees all projects. `reserve_price`: of an accelerator for an hour,
    reserved for a year; `buy_price`: of an accelerator with its share of a machine.
    """
    now, state = leader.clock.now(), leader.store.state()
    visible = caller.projects(state)
    if project is not None and (project not in state.projects or (visible is not None and project not in visible)):
        raise NotFound(f"There is no project {project!r} that you can see.", "See `muster project ls`.")
    projects = [project] if project is not None else visible
    if kind == "reserve" and projects is not None:
        raise Invalid(
            "What to reserve or buy follows from the demand of all projects.",
            "Ask without `project`, with a token that sees all projects.",
        )
    leader.record.reach()  # so that a run that has just ended counts
    leader.cost_follower.reach()
    risks = leader.spot_history.risks(state, now)
    reader = AdviceReader(leader.store, track, risks, projects, now, now - since)
    prices = [None if price is None else round(price * MICRO) for price in (reserve_price, buy_price)]
    return reader.advice(kind, *prices)
