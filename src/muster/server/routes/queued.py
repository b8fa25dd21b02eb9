"""Queued jobs in the order in which they would start, of one queue or of all, page by page."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Annotated

from fastapi import Query

from muster.api.jobs import QueuedJob, QueuedList
from muster.core.errors import Conflict
from muster.core.job import Job
from muster.core.state import State
from muster.sched.explain import Explainer
from muster.server.context import HEAVY, Caller, Leading, explainer_for, job_views
from muster.server.routes.jobs import Text
from muster.server.typed_routes import needs, typed_router
from muster.store.base import JobFilter

router = typed_router(prefix="/v1", tags=["cluster"])


@router.get("/queued", dependencies=HEAVY, openapi_extra=needs("anyone"))
def queued_jobs(
    leader: Leading,
    caller: Caller,
    queue: Text = None,
    project: Text = None,
    user: Text = None,
    name: Text = None,
    after: Annotated[str | None, Query(max_length=100, description="the last job of the page before")] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> QueuedList:
    """Queued jobs, next one first; at the end those that may not start yet, and those that wait for other jobs.

    For the next page, pass `next` as `after`. If that job has left the queue meanwhile, begin again.
    """
    wanted = _Wanted(queue, project, user, name)

    def look(state: State) -> tuple[list[tuple[str, int | None]], int, float]:
        explainer = explainer_for(leader, caller, state)
        found = [(job.id, place) for job, place in islice(_in_order(explainer, wanted, after), limit + 1)]
        everything = caller.projects(state) is None and wanted == _ALL
        return found, _count(explainer, wanted, everything), explainer.now

    found, total, now = leader.look(look)
    places = dict(found[:limit])
    stored = {job.id: job for job in leader.store.jobs(JobFilter(ids=list(places), limit=limit))}  # in one question
    known = [stored[job_id] for job_id in places if job_id in stored]
    views: list[QueuedJob] = [{**view, "place": places[view["id"]]} for view in job_views(leader, caller, known)]
    return {"now": now, "jobs": views, "total": total, "next": found[limit - 1][0] if len(found) > limit else None}


@dataclass(frozen=True, slots=True)
class _Wanted:
    queue: str | None = None
    project: str | None = None
    user: str | None = None
    name: str | None = None

    def fits(self, job: Job) -> bool:
        return (
            self.queue in (None, job.queue)
            and self.project in (None, job.project)
            and self.user in (None, job.user)
            and self.name in (None, job.name)
        )


_ALL = _Wanted()


def _in_order(explainer: Explainer, wanted: _Wanted, after: str | None) -> Iterator[tuple[Job, int | None]]:
    """Jobs with their places in their queues; None for those that wait for others, which are last."""
    waiting, positions = explainer.board.waiting.queued, explainer.positions
    first = explainer.state.jobs.get(after) if after is not None else None
    if after is not None and (first is None or first.phase != "queued" or not explainer.sees(first)):
        raise Conflict(f"{after} is not in the queue any more.", "Ask for the first page again.")
    places: dict[str, int] = {}
    if after is None or after in waiting:
        for queued in positions.in_order(wanted.queue, include_held=True, after=after):
            job = queued.job
            place = places.get(job.queue)
            places[job.queue] = place = positions.ahead_of(job.id) + 1 if place is None else place + 1
            if explainer.sees(job) and wanted.fits(job):
                yield job, place
    held = sorted(
        (explainer.state.jobs[name] for line in explainer.state.lines.values() for name in line if name not in waiting),
        key=lambda job: job.number,
    )
    begin = first.number if first is not None and first.id not in waiting else 0
    for job in held:
        if job.number > begin and explainer.sees(job) and wanted.fits(job):
            yield job, None


def _count(explainer: Explainer, wanted: _Wanted, everything: bool) -> int:
    lines = explainer.state.lines
    if everything:
        return sum(len(line) for line in lines.values())
    ids = (name for queue, line in lines.items() if wanted.queue in (None, queue) for name in line)
    jobs = (explainer.state.jobs[name] for name in ids)
    return sum(1 for job in jobs if explainer.sees(job) and wanted.fits(job))
