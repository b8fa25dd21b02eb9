"""The report of a month: figures against their targets, how they changed, and the causes of waste."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import Query

from muster.api.report import ReportView
from muster.control.cost_pending import pending_of
from muster.control.goodput import live_jobs
from muster.control.report import ReportReader
from muster.core.errors import Invalid, NotFound
from muster.core.period import THIS, Period, months, spans, weeks, zone_of
from muster.server.context import HEAVY, Caller, Leading, Tracked
from muster.server.typed_routes import needs, typed_router
from muster.store.base import EventFilter

router = typed_router(prefix="/v1", tags=["history"])

_BEFORE: Final = 6  # periods before, for the trend
_LONGEST: Final = 92 * 86_400  # seconds: longer periods would be read into memory as a whole
Name = Annotated[str | None, Query(min_length=1, max_length=63, pattern=r"^[^\x00]*$")]
Month = Annotated[str | None, Query(max_length=10, description="such as 2026-10, or this")]
Week = Annotated[str | None, Query(max_length=10, description="an ISO week, such as 2026-W43, or this")]
Span = Annotated[float | None, Query(ge=60, le=_LONGEST, description="seconds back from now; whole UTC days")]
Zone = Annotated[str, Query(min_length=1, max_length=64, pattern=r"^[A-Za-z0-9_+/-]+$", description="a time zone")]
Before = Annotated[int, Query(ge=0, le=_BEFORE, description="periods before it, for the trend")]


@router.get("/report", dependencies=HEAVY, openapi_extra=needs("anyone"))
def report(
    leader: Leading,
    track: Tracked,
    caller: Caller,
    month: Month = None,
    week: Week = None,
    since: Span = None,
    project: Name = None,
    zone: Zone = "UTC",
    before: Before = _BEFORE,
) -> ReportView:
    """Figures of a month, a week or some days, of the projects that you can see, with those of the periods before.

    The current month so far unless one of `month`, `week` and `since` is given. `projects` says what is covered: the
    use of pools is a part of it only for a token that sees all projects.
    """
    now, state = leader.clock.now(), leader.store.state()
    periods = _periods(month, week, since, now, zone, before)
    visible = caller.projects(state)
    if project is not None and (project not in state.projects or (visible is not None and project not in visible)):
        raise NotFound(f"There is no project {project!r} that you can see.", "See `muster project ls`.")
    leader.record.reach()  # so that a run and an attempt that have just ended are counted
    leader.goodput.reach()
    leader.cost_follower.reach()
    events = leader.store.events(EventFilter(limit=1))
    reader = ReportReader(
        leader.store,
        track.db,
        leader.ledger,
        lambda want: leader.look(lambda state: live_jobs(state, want)),
        events[0].time if events else now,
        leader.report_values,
        lambda now, projects: leader.look(lambda state: pending_of(state, now, projects)),
    )
    return reader.report(periods, [project] if project is not None else visible, now, zone)


def _periods(
    month: str | None, week: str | None, since: float | None, now: float, zone: str, before: int
) -> list[Period]:
    given = [name for name, value in (("month", month), ("week", week), ("since", since)) if value is not None]
    if len(given) > 1:
        raise Invalid(f"{' and '.join(given)} were given.", "Give one of month, week and since.")
    if since is not None:
        return spans(since, now, before)
    if week is not None:
        return weeks(week, now, zone_of(zone), before)
    return months(month if month is not None else THIS, now, zone_of(zone), before)
