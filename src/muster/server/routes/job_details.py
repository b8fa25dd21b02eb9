"""Details of a job: its output, its metrics and the cost of its restarts."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, Any

import numpy as np
from fastapi import Header, Path, Query
from fastapi.responses import StreamingResponse

from muster.api.jobs import CostView, JobMetric, JobSummary, JobView, LogChunkView, LogPage, MetricNames, RestartView
from muster.api.words import FINAL
from muster.core.entities.price_book import book_of, prices_of
from muster.core.job import Attempt, Job
from muster.core.money import MICRO
from muster.core.state import State
from muster.cost.charge import accrued_at
from muster.monitor.goodput import Restart, Trail, summarise
from muster.monitor.held_hours import held_hours
from muster.server.auth import Identity
from muster.server.context import (
    HEAVY,
    Caller,
    Leading,
    Ref,
    Serving,
    Tracked,
    Watching,
    find_job,
    view_of,
    whole_number,
)
from muster.server.leader import Leader
from muster.server.log_reader import LogReader, output_view
from muster.server.stream import frame
from muster.server.typed_routes import needs, typed_router
from muster.server.views import column_view
from muster.store.base import Column
from muster.track.cost_reads import read_run_cost
from muster.track.metrics.append import SYSTEM
from muster.track.tracking import Tracking

router = typed_router(prefix="/v1/jobs/{ref}", tags=["jobs"])

Small = Annotated[int | None, Query(ge=0, le=1_000_000)]
Tail = Annotated[
    int | None,
    Query(ge=0, le=100_000, description="only the last lines of each rank, of 1,024 ranks and 8 MiB at most"),
]
Since = Annotated[float | None, Query(ge=0, le=2**53, description="only what was written since, in seconds of 1970")]
ChunkId = Annotated[int, Query(ge=0, le=2**53)]


@router.get("/logs", dependencies=HEAVY, openapi_extra=needs("viewer"))
def logs(
    ref: Ref,
    leader: Leading,
    caller: Caller,
    attempt: Small = None,
    rank: Small = None,
    after: ChunkId = 0,
    limit: Annotated[int, Query(ge=1, le=8 << 20, description="bytes, roughly")] = 1 << 20,
    tail: Tail = None,
    since: Since = None,
    before: Annotated[
        int | None,
        Query(ge=0, le=2**53, description="what comes before this chunk; `next` is then for the page before"),
    ] = None,
) -> LogPage:
    """Output in the order of arrival. `dropped` in a chunk is the number of missing bytes; its text says why."""
    job = find_job(leader, caller, ref)
    reader = LogReader(leader, job, attempt, rank, after, since)
    if before is not None:
        chunks, first, end = reader.back(before, limit)
        return {"chunks": chunks, "next": first, "end": end}
    if tail is not None:
        chunks, end = reader.tail(tail), True
    else:
        chunks, end = reader.read(limit)
    return {"chunks": chunks, "next": reader.after, "end": end}


@router.get("/logs/stream", response_class=StreamingResponse, openapi_extra=needs("viewer"))
def logs_stream(
    ref: Ref,
    leader: Leading,
    caller: Caller,
    service: Serving,
    watching: Watching,
    attempt: Small = None,
    rank: Small = None,
    after: ChunkId = 0,
    tail: Tail = None,
    since: Since = None,
    last_event_id: Annotated[str | None, Header(max_length=20)] = None,
) -> StreamingResponse:
    """Streams output, changes of phase, and `end` when the job has ended and everything was sent."""
    job = find_job(leader, caller, ref)
    resumed = whole_number(last_event_id) or 0
    reader = LogReader(leader, job, attempt, rank, max(after, resumed), since)
    begin = [tail] if tail is not None and not resumed else []
    shown: list[Any] = [None]

    def look(caller: Identity) -> tuple[list[bytes], bool]:
        caller.need(leader.store.state(), job.project, "viewer")
        # The job is read before its output: if it has ended by then, the output that is read next is complete.
        view = view_of(leader, caller, job.id)
        parts = [_log_frame(view) for lines in begin for view in reader.tail(lines)]
        begin.clear()
        found, complete = reader.read(1 << 20)
        parts += [_log_frame(view) for view in found]
        state = (view["phase"], view["attempt"])
        if state != shown[0]:
            shown[0] = state
            parts.append(frame("job", view))
        over = complete and view["finished_at"] is not None and view["phase"] in FINAL
        if over:
            parts.append(frame("end", view))
        elif not complete:
            service.hub.notify([job.id])
        return parts, over

    return service.streams.follow(watching, job.id, look)


@router.get("/stream", response_class=StreamingResponse, openapi_extra=needs("viewer"))
def job_stream(ref: Ref, leader: Leading, caller: Caller, service: Serving, watching: Watching) -> StreamingResponse:
    """Streams the job's view whenever it changes, at most ten times a second."""
    job = find_job(leader, caller, ref)
    shown: list[JobView | None] = [None]

    def look(caller: Identity) -> tuple[list[bytes], bool]:
        caller.need(leader.store.state(), job.project, "viewer")
        view = view_of(leader, caller, job.id)
        over = view["phase"] in FINAL
        parts = [frame("job", view)] if view != shown[0] else []
        shown[0] = view
        return [*parts, *([frame("end", view)] if over else [])], over

    return service.streams.follow(watching, job.id, look, pause=0.1)


@router.get("/metrics", dependencies=HEAVY, openapi_extra=needs("viewer"))
def metric_names(ref: Ref, leader: Leading, track: Tracked, caller: Caller) -> MetricNames:
    return {"names": _names(track, find_job(leader, caller, ref).id)}


@router.get("/metrics/{name:path}", dependencies=HEAVY, openapi_extra=needs("viewer"))
def metric(
    ref: Ref,
    name: Annotated[str, Path(max_length=256, pattern=r"^[^\x00]*$")],
    leader: Leading,
    track: Tracked,
    caller: Caller,
    points: Annotated[int | None, Query(ge=1, le=1_000_000)] = None,
    rank: Small = None,
) -> JobMetric:
    """A metric's points by attempt, including superseded ones. `/v1/runs/RUN/metrics` has more options."""
    job = find_job(leader, caller, ref)
    found = _columns(track, job.id, name, rank)
    attempts = [column_view(number, column, points) for number, column in found.items()]
    return {"name": name, "attempts": attempts}


@router.get("/summary", dependencies=HEAVY, openapi_extra=needs("viewer"))
def summary(ref: Ref, leader: Leading, track: Tracked, caller: Caller) -> JobSummary:
    """The run's time and steps, and the cost of its restarts."""
    return summary_of(leader, track, find_job(leader, caller, ref))


def summary_of(leader: Leader, track: Tracking, job: Job) -> JobSummary:
    names = [name for name in _names(track, job.id) if not name.startswith(SYSTEM)]
    attempts, end = leader.store.attempts(job.id), job.finished_at or leader.clock.now()
    numbers = [attempt.number for attempt in attempts]
    found_at = track.metrics.milestones(job.id, "loss" if "loss" in names else names[0], numbers) if names else {}
    trails = {of: Trail([at.step for at in some], [at.time for at in some]) for of, some in found_at.items()}
    found = summarise(attempts, trails, end)
    return {
        "id": job.id,
        "phase": job.phase,
        "attempts": found.attempts,
        "steps": found.steps,
        "steps_repeated": found.steps_repeated,
        "seconds_total": found.seconds_total,
        "seconds_training": found.seconds_training,
        "seconds_lost": found.seconds_lost,
        "goodput": found.goodput,
        "restarts": [_restart_view(restart) for restart in found.restarts],
        "cost": _cost(leader, track, job, attempts, end),
        "output": output_view(leader, job),
    }


def _cost(leader: Leader, track: Tracking, job: Job, attempts: Sequence[Attempt], end: float) -> CostView:
    """What the ledger says of the run, in the currency of the price book, and what its attempt has cost so far."""
    leader.cost_follower.reach()
    currency = book_of(leader.store.state()).currency
    with track.db.reading() as connection:
        charged, platform = read_run_cost(connection, job.id).get(currency, (0, 0))

    def so_far(state: State) -> int:
        live = state.jobs.get(job.id)
        return accrued_at(prices_of(state), live, end) if live is not None else 0

    pending = leader.look(so_far)
    held = held_hours(attempts, end)
    return {
        "node_hours": held.node_hours,
        "accelerator_hours": held.accelerator_hours,
        "startup": held.startup,
        "currency": currency,
        "amount": (charged + pending) / MICRO,
        "platform": platform / MICRO,
    }


def _restart_view(restart: Restart) -> RestartView:
    return {
        "attempt": restart.attempt,
        "at_step": restart.at_step,
        "time": restart.time,
        "reason": restart.reason.to_dict() if restart.reason else None,
        "seconds_lost": restart.seconds_lost,
        "steps_repeated": restart.steps_repeated,
    }


def _log_frame(view: LogChunkView) -> bytes:
    """A frame for missing output has no id: a client that reconnects after it continues from the frame before."""
    return frame("log", view, None if "dropped" in view else view["id"])


def _names(track: Tracking, job_id: str) -> list[str]:
    return sorted({series.name for series in track.metrics.series(job_id)})


def _columns(track: Tracking, job_id: str, name: str, rank: int | None = None) -> dict[int, Column]:
    """All points by attempt."""
    found = track.metrics.points(job_id, name, rank=rank, superseded=True)
    edges = np.flatnonzero(np.diff(found.attempt)) + 1
    columns = {}
    for begin, end in pairwise([0, *edges.tolist(), len(found)]):
        if begin < end:
            parts = (found.step[begin:end], found.time[begin:end], found.value[begin:end])
            steps, times, values = (part.tobytes() for part in parts)
            columns[int(found.attempt[begin])] = Column(array("q", steps), array("d", times), array("d", values))
    return columns
