"""Costs for other tools: FOCUS 1.2 as CSV, and allocations as OpenCost answers them."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final

from fastapi import Query
from fastapi.responses import StreamingResponse

from muster.api.cost_reports import Allocations, AllocationView
from muster.control.cost_report import CostReader, CostScope
from muster.core.entities.price_book import book_of, book_zone
from muster.core.errors import Invalid
from muster.core.units import InvalidValue, parse_duration
from muster.cost.ledger import local_day
from muster.cost.report.allocation import allocations, dimensions_of
from muster.cost.report.days import Days, days_of
from muster.cost.report.focus import COLUMNS, focus_row
from muster.cost.report.sums import Sum, merged
from muster.server.auth import Identity
from muster.server.context import HEAVY, Caller, Leading, Tracked
from muster.server.leader import Leader
from muster.server.routes.cost import Month, Since, Until, Value, Week, reader_of, scope_of
from muster.server.typed_routes import needs, typed_router
from muster.track.cost_reads import ENTRIES_PAGE
from muster.track.tracking import Tracking

router = typed_router(tags=["cost"])

_WORDS: Final = {"today": (0, 0), "yesterday": (1, 1)}
_LAST_WEEK: Final = 7
Window = Annotated[
    str, Query(max_length=60, description="7d, today, yesterday, week, month, lastweek, lastmonth, or two times")
]
Aggregate = Annotated[
    str,
    Query(
        max_length=100,
        description="namespace (a project), controller or pod (a run), node (a pool), label:user, label:family, ...",
    ),
]
Accumulate = Annotated[str, Query(max_length=10, description="true: one set for the whole window; else one a day")]


@router.get("/v1/cost/focus", response_class=StreamingResponse, dependencies=HEAVY, openapi_extra=needs("anyone"))
def cost_focus(
    leader: Leading,
    track: Tracked,
    caller: Caller,
    month: Month = None,
    week: Week = None,
    since: Since = None,
    until: Until = None,
    project: Value = None,
) -> StreamingResponse:
    """The entries of a period as CSV in FOCUS 1.2, one row for each. Those without a price are left out."""
    scope = scope_of(leader, caller, month, week, since, until, project=project)
    rows = focus_lines(reader_of(leader, track), scope)
    headers = {"Content-Disposition": f'attachment; filename="focus-{scope.days.first}.csv"'}
    return StreamingResponse(rows, media_type="text/csv; charset=utf-8", headers=headers)


def focus_lines(reader: CostReader, scope: CostScope) -> Iterator[bytes]:
    """A page of entries at a time, so that a million rows need no more memory than a thousand."""
    after = (-1, -1)
    yield _csv([COLUMNS])
    while True:
        page = reader.entries(scope, after, ENTRIES_PAGE)
        made = (focus_row(one, scope.days.zone) for one in page)
        yield _csv([[row.get(name, "") for name in COLUMNS] for row in made if row is not None])
        if len(page) < ENTRIES_PAGE:
            return
        after = (page[-1].seq, page[-1].part)


@router.get("/allocation/compute", dependencies=HEAVY, openapi_extra=needs("anyone"))
def allocation_compute(
    leader: Leading,
    track: Tracked,
    caller: Caller,
    window: Window = "7d",
    aggregate: Aggregate = "namespace",
    accumulate: Accumulate = "false",
) -> Allocations:
    """Costs as OpenCost's allocation API answers them. A namespace is a project, a controller or pod is a run."""
    return _allocations(leader, track, caller, window, aggregate, accumulate)


@router.get("/allocation", dependencies=HEAVY, openapi_extra=needs("anyone"))
def allocation(
    leader: Leading,
    track: Tracked,
    caller: Caller,
    window: Window = "7d",
    aggregate: Aggregate = "namespace",
    accumulate: Accumulate = "false",
) -> Allocations:
    """The same as `/allocation/compute`."""
    return _allocations(leader, track, caller, window, aggregate, accumulate)


@router.get("/model/allocation", dependencies=HEAVY, openapi_extra=needs("anyone"))
def model_allocation(
    leader: Leading,
    track: Tracked,
    caller: Caller,
    window: Window = "7d",
    aggregate: Aggregate = "namespace",
    accumulate: Accumulate = "false",
) -> Allocations:
    """The same as `/allocation/compute`, where Kubecost has it."""
    return _allocations(leader, track, caller, window, aggregate, accumulate)


def _allocations(
    leader: Leader, track: Tracking, caller: Identity, window: str, aggregate: str, accumulate: str
) -> Allocations:
    state = leader.store.state()
    by, days = dimensions_of(aggregate), _window(window, leader.clock.now(), leader)
    scope = CostScope(days, caller.cost_projects(state), {})
    currency = book_of(state).currency
    found = [one for one in reader_of(leader, track).sums(scope, ("day", *by)) if one.currency == currency]
    if accumulate.strip().lower() in ("true", "1", "all"):
        return {"code": 200, "data": [_set(found, by, days.begin, days.end)]}
    sets: list[dict[str, AllocationView]] = []
    day = datetime.fromtimestamp(days.begin, days.zone).date()
    for _ in range(days.count):
        after = day + timedelta(days=1)
        begin, end = (datetime(at.year, at.month, at.day, tzinfo=days.zone).timestamp() for at in (day, after))
        sets.append(_set([one for one in found if one.keys[0] == day.isoformat()], by, begin, end))
        day = after
    return {"code": 200, "data": sets}


def _set(rows: list[Sum], by: tuple[str, ...], begin: float, end: float) -> dict[str, AllocationView]:
    return allocations(merged(one._replace(keys=one.keys[1:]) for one in rows), by, begin, end)


def _window(text: str, now: float, leader: Leader) -> Days:
    """Whole days in the time zone of the price book: the ledger has no smaller parts."""
    zone, words = book_zone(leader.store.state()), text.strip().lower()
    today = datetime.fromtimestamp(now, zone).date()
    if words in ("week", "month"):
        return days_of("this" if words == "month" else None, "this" if words == "week" else None, None, None, now, zone)
    if words == "lastmonth":
        return days_of(f"{today.replace(day=1) - timedelta(days=1):%Y-%m}", None, None, None, now, zone)
    if words == "lastweek":
        year, week, _ = (today - timedelta(days=_LAST_WEEK)).isocalendar()
        return days_of(None, f"{year:04d}-W{week:02d}", None, None, now, zone)
    if words in _WORDS:
        first, last = ((today - timedelta(days=ago)).isoformat() for ago in _WORDS[words])
        return days_of(None, None, first, last, now, zone)
    begin, comma, end = words.partition(",")
    if comma:
        since, until = _moment(begin), _moment(end)
        first, last = local_day(since, zone), local_day(max(since, until - 1), zone)
        return days_of(None, None, first, last, now, zone)
    try:
        parse_duration(words)
    except InvalidValue:
        raise Invalid(f"window is {text!r}.", "Give 7d, today, week, month, or two times with a comma.") from None
    return days_of(None, None, words, None, now, zone)


def _moment(text: str) -> float:
    if re.fullmatch(r"[0-9]{1,11}", text):
        return float(text)
    try:
        found = datetime.fromisoformat(text.upper())
    except ValueError:
        raise Invalid(f"window has {text!r}.", "Give times such as 2026-11-01T00:00:00Z.") from None
    moment = (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).timestamp()
    if not 0 <= moment < 2**37:
        raise Invalid(f"window has {text!r}.", "Give a time after 1970.")
    return moment


def _csv(rows: Sequence[Sequence[str]]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\r\n").writerows(rows)
    return text.getvalue().encode()
