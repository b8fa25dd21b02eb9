"""Looking into a job: its output, its curves and what its restarts cost."""

from __future__ import annotations

from array import array
from dataclasses import asdict
from itertools import pairwise
from typing import Annotated, Any

import numpy as np
from fastapi import APIRouter, Header, Path, Query
from fastapi.responses import StreamingResponse

from muster.monitor.cost import cost_of
from muster.monitor.goodput import Trail, summarise
from muster.server.auth import Identity
from muster.server.context import HEAVY, Asking, Leading, Ref, Serving, Tracked, Watching, find_job, view_of
from muster.server.leader import Leader
from muster.server.stream import frame
from muster.server.views import View, column_view
from muster.store.base import Column, LogChunk
from muster.track.metrics.append import SYSTEM
from muster.track.tracking import Tracking

router = APIRouter(prefix="/v1/jobs/{ref}", tags=["jobs"])

Small = Annotated[int | None, Query(ge=0, le=1_000_000)]
ChunkId = Annotated[int, Query(ge=0, le=2**53)]
_PAGE = 256  # chunks read at a time


@router.get("/logs", dependencies=HEAVY)
def logs(
    ref: Ref,
    leader: Leading,
    asking: Asking,
    attempt: Small = None,
    rank: Small = None,
    after: ChunkId = 0,
    limit: Annotated[int, Query(ge=1, le=8 << 20, description="bytes, roughly")] = 1 << 20,
    tail: Annotated[int | None, Query(ge=0, le=100_000, description="only the last lines")] = None,
) -> View:
    job = find_job(leader, asking, ref)
    reader = _Logs(leader, job.id, attempt, rank, after)
    if tail is not None:
        chunks, end = reader.tail(tail), True
    else:
        chunks, end = reader.read(limit)
    return {"chunks": chunks, "next": reader.after, "end": end}


@router.get("/logs/stream", response_class=StreamingResponse)
def logs_stream(
    ref: Ref,
    leader: Leading,
    asking: Asking,
    service: Serving,
    watching: Watching,
    attempt: Small = None,
    rank: Small = None,
    after: ChunkId = 0,
    tail: Annotated[int | None, Query(ge=0, le=100_000)] = None,
    last_event_id: Annotated[str | None, Header(max_length=20)] = None,
) -> StreamingResponse:
    """Output as it comes, changes of phase between it, and `end` when the job is over and everything was sent."""
    job = find_job(leader, asking, ref)
    resumed = int(last_event_id) if last_event_id and last_event_id.isdigit() else 0
    reader = _Logs(leader, job.id, attempt, rank, max(after, resumed))
    begin = [tail] if tail is not None and not resumed else []
    shown: list[Any] = [None]

    def look(asking: Identity) -> tuple[list[bytes], bool]:
        asking.need(leader.store.state(), job.project, "viewer")
        # The job is looked at before its output: when it is over by then, what is read next is all there is.
        view = view_of(leader, asking, job.id)
        parts = [frame("log", c, c["id"]) for lines in begin for c in reader.tail(lines)]
        begin.clear()
        found, complete = reader.read(1 << 20)
        parts += [frame("log", c, c["id"]) for c in found]
        state = (view["phase"], view["attempt"])
        if state != shown[0]:
            shown[0] = state
            parts.append(frame("job", view))
        over = complete and view["finished_at"] is not None and view["phase"] in ("succeeded", "failed", "stopped")
        if over:
            parts.append(frame("end", view))
        elif not complete:
            service.hub.tell([job.id])
        return parts, over

    return service.streams.follow(watching, job.id, look)


@router.get("/stream", response_class=StreamingResponse)
def job_stream(ref: Ref, leader: Leading, asking: Asking, service: Serving, watching: Watching) -> StreamingResponse:
    """The job's view whenever it changes, at most ten times a second."""
    job = find_job(leader, asking, ref)
    shown: list[View | None] = [None]

    def look(asking: Identity) -> tuple[list[bytes], bool]:
        asking.need(leader.store.state(), job.project, "viewer")
        view = view_of(leader, asking, job.id)
        over = view["phase"] in ("succeeded", "failed", "stopped")
        parts = [frame("job", view)] if view != shown[0] else []
        shown[0] = view
        return [*parts, *([frame("end", view)] if over else [])], over

    return service.streams.follow(watching, job.id, look, pause=0.1)


@router.get("/metrics", dependencies=HEAVY)
def metric_names(ref: Ref, leader: Leading, track: Tracked, asking: Asking) -> View:
    return {"names": _names(track, find_job(leader, asking, ref).id)}


@router.get("/metrics/{name:path}", dependencies=HEAVY)
def metric(
    ref: Ref,
    name: Annotated[str, Path(max_length=256, pattern=r"^[^\x00]*$")],
    leader: Leading,
    track: Tracked,
    asking: Asking,
    points: Annotated[int | None, Query(ge=1, le=1_000_000)] = None,
    rank: Small = None,
) -> View:
    """The curve, attempt by attempt, with what was superseded; `/v1/runs/RUN/metrics` has more ways to ask."""
    job = find_job(leader, asking, ref)
    found = _columns(track, job.id, name, rank)
    attempts = [{"attempt": number, **column_view(column, points)} for number, column in found.items()]
    return {"name": name, "attempts": attempts}


@router.get("/summary", dependencies=HEAVY)
def summary(ref: Ref, leader: Leading, track: Tracked, asking: Asking) -> View:
    """What the run took, and what its restarts cost."""
    job = find_job(leader, asking, ref)
    names = [name for name in _names(track, job.id) if not name.startswith(SYSTEM)]
    columns = _columns(track, job.id, "loss" if "loss" in names else names[0]) if names else {}
    trails = {number: Trail(column.steps, column.times) for number, column in columns.items()}
    attempts, end = leader.store.attempts(job.id), job.finished_at or leader.clock.now()
    found = summarise(attempts, trails, end)
    rules = leader.store.state().rules
    restarts = [
        {
            "attempt": r.attempt,
            "at_step": r.at_step,
            "time": r.time,
            "reason": r.reason.to_dict() if r.reason else None,
            "seconds_lost": r.seconds_lost,
            "steps_repeated": r.steps_repeated,
        }
        for r in found.restarts
    ]
    names_of = ("attempts", "steps", "steps_repeated", "seconds_total", "seconds_training", "seconds_lost", "goodput")
    cost = asdict(cost_of(attempts, lambda pool: rules.pool(pool).price, end))
    values = {name: getattr(found, name) for name in names_of}
    return {"id": job.id, "phase": job.phase, **values, "restarts": restarts, "cost": cost}


class _Logs:
    """Reads a job's output on from where it stopped."""

    def __init__(self, leader: Leader, job: str, attempt: int | None, rank: int | None, after: int) -> None:
        self._store, self._job, self._attempt, self._rank, self.after = leader.store, job, attempt, rank, after

    def read(self, limit: int) -> tuple[list[View], bool]:
        """Views of about `limit` bytes, and whether that was all there is now."""
        views: list[View] = []
        size = 0
        while size < limit:
            found = self._page(self.after)
            for attempt, chunk in found:
                views.append(_chunk_view(attempt, chunk))
                size += len(chunk.data)
                self.after = chunk.id
                if size >= limit:
                    break
            if len(found) < _PAGE and size < limit:
                return views, True
        return views, False

    def tail(self, lines: int) -> list[View]:
        """The last lines of each rank; reading goes on after them."""
        kept: dict[tuple[int, int], str] = {}
        marks: dict[tuple[int, int], int] = {}
        complete = False
        while not complete:
            views, complete = self.read(1 << 20)
            for view in views:
                key = (view["attempt"], view["rank"])
                text = kept.get(key, "") + view["text"]
                kept[key] = _last_lines(text, lines)
                marks[key] = view["id"]
        newest = max((attempt for attempt, _ in kept), default=0)
        return [
            {"id": marks[key], "attempt": key[0], "rank": key[1], "text": text}
            for key, text in sorted(kept.items(), key=lambda item: marks[item[0]])
            if key[0] == newest and text
        ]

    def _page(self, after: int) -> list[tuple[int, LogChunk]]:
        numbers = [self._attempt] if self._attempt is not None else [a.number for a in self._store.attempts(self._job)]
        found = [
            (number, chunk)
            for number in numbers
            for chunk in self._store.logs(self._job, number, self._rank, after, _PAGE)
        ]
        return sorted(found, key=lambda item: item[1].id)[:_PAGE]


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


def _last_lines(text: str, lines: int) -> str:
    """Lines as a terminal has them: only a line feed ends one."""
    whole = text.split("\n")
    unfinished = 1 if whole[-1] else 0
    return "\n".join(whole[-(lines + 1 - unfinished) :]) if lines else ""


def _chunk_view(attempt: int, chunk: LogChunk) -> View:
    return {"id": chunk.id, "attempt": attempt, "rank": chunk.rank, "text": chunk.data.decode(errors="replace")}
