"""The goodput ledger of a run, a project, a queue, a node, or of everything that the caller may see."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final, Literal

from fastapi import Query

from muster.api.goodput import GoodputView, HeldTime
from muster.control.goodput import live_jobs
from muster.core.errors import NotFound
from muster.monitor.goodput_shares import Held, totals
from muster.server.auth import Identity
from muster.server.context import HEAVY, Caller, Leading, Tracked
from muster.server.leader import Leader
from muster.server.record_context import find_run
from muster.server.typed_routes import needs, typed_router
from muster.track.goodput_rows import GoodputFilter, HeldDay

router = typed_router(prefix="/v1", tags=["history"])

_DAY: Final = 86_400
_WEEK: Final = 7.0 * _DAY
_UNITS: Final[tuple[Literal["accelerator", "cpu"], ...]] = ("accelerator", "cpu")
Span = Annotated[float | None, Query(ge=0, le=3_153_600_000, description="seconds back from now; a run's whole life")]
Name = Annotated[str | None, Query(min_length=1, max_length=253, pattern=r"^[^\x00]*$")]
RunName = Annotated[
    str | None, Query(min_length=1, max_length=500, pattern=r"^[^\x00]*$", description="as in /v1/runs")
]


@router.get("/goodput", dependencies=HEAVY, openapi_extra=needs("anyone"))
def goodput(
    leader: Leading,
    track: Tracked,
    caller: Caller,
    run: RunName = None,
    project: Name = None,
    queue: Name = None,
    node: Name = None,
    since: Span = None,
) -> GoodputView:
    """Every second that attempts held, by class: of a run, a project, a queue, a node, or of all that you can see.

    Without `since`: the whole life of a run, otherwise the last seven days. Days are whole, in UTC.
    """
    now = leader.clock.now()
    span = since if since is not None else now if run is not None else _WEEK
    begin = int(max(0.0, now - span)) // _DAY * _DAY
    one = find_run(leader, track, caller, run).id if run is not None else None
    want = GoodputFilter(begin, one, _projects(leader, caller, project), queue, node)
    held = _read(leader, want)
    attempts = len({(one.run, one.attempt) for one in held})
    return {"since": float(begin), "now": now, "attempts": attempts, "ledgers": _ledgers(held)}


def goodput_of(leader: Leader, run: str) -> HeldTime | None:
    """The ledger of one run that the caller may see, for its page."""
    ledgers = _ledgers(_read(leader, GoodputFilter(0, run, None, None, None)))
    return ledgers[0] if ledgers else None


def _ledgers(held: Sequence[HeldDay]) -> list[HeldTime]:
    return [ledger for unit in _UNITS if (ledger := _ledger(held, unit)) is not None]


def _read(leader: Leader, want: GoodputFilter) -> list[HeldDay]:
    leader.goodput.reach()  # so that an attempt that has just ended is counted
    return leader.ledger.read(want, leader.look(lambda state: live_jobs(state, want)))


def _projects(leader: Leader, caller: Identity, project: str | None) -> list[str] | None:
    state = leader.store.state()
    if project is None:
        return caller.projects(state)
    caller.need(state, project, "viewer")
    if project not in state.projects:
        raise NotFound(f"There is no project {project!r}.", "See `muster project ls`.")
    return [project]


def _ledger(held: Sequence[HeldDay], unit: Literal["accelerator", "cpu"]) -> HeldTime | None:
    mine = [(one.units, one.time) for one in held if one.unit == unit]
    if not mine:
        return None
    found = totals(Held(units, time.parts, time.waited, time.steps, time.repeats) for units, time in mine)
    return {
        "unit": unit,
        "held": found.held,
        "waited": found.waited,
        "parts": found.parts,
        "training": found.training,
        "effective": found.effective,
        "iterations": found.iterations,
        "largest_loss": found.largest_loss,
    }
