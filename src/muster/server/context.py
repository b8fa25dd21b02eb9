"""Dependencies of the routes: the server's parts, the identity of the caller, and the job that a reference means."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import Annotated, Final

from fastapi import Depends, Header, Path, Request

from muster.api.jobs import JobView
from muster.api.words import UNFINISHED
from muster.core.array import split_index, task_id
from muster.core.entities import Role
from muster.core.entities.study import trials_of
from muster.core.errors import Invalid, NotFound, Unavailable
from muster.core.job import Job
from muster.core.reasons import Reason
from muster.core.state import State
from muster.sched.explain import Explainer
from muster.sched.likely_end import Ends
from muster.server.auth import Identity
from muster.server.leader import Leader
from muster.server.service import Service
from muster.server.stream import Watcher
from muster.server.views import job_view
from muster.server.web.credentials import LONGEST, identify
from muster.store.base import JobFilter
from muster.track.tracking import Tracking

_LEADER: Final = "muster.leader"  # in the scope of a request
_LISTED: Final = 10  # jobs of an ambiguous name that an error lists


# Of these, only the caller is what others depend on: FastAPI builds all that a dependency depends on for every route
# anew, and looks through it with every request.
async def service(request: Request) -> Service:
    return service_of(request)


async def leader(request: Request) -> Leader:
    """The parts that only the server with the lease has."""
    return leader_of(request)


async def identity(
    request: Request,
    authorization: Annotated[str | None, Header(max_length=LONGEST)] = None,  # for the description
) -> Identity:
    return identify(request.scope, leader_of(request))


async def tracking(request: Request) -> Tracking:
    """The record of runs; Unavailable if the store keeps none."""
    track = leader_of(request).track
    if track is None:
        raise Unavailable("This server's store keeps no record of runs.", "Start it with SQLite or PostgreSQL.")
    return track


async def heavy(request: Request, caller: Annotated[Identity, Depends(identity)]) -> AsyncIterator[None]:
    """For expensive routes: waits for a turn of the user before the route takes a thread."""
    async with service_of(request).read_slots.take(caller.user):
        yield


async def watcher(request: Request, caller: Annotated[Identity, Depends(identity)]) -> Watcher:
    """For routes that stream: the token or the session is checked again before each look."""
    service, leader = service_of(request), leader_of(request)
    return Watcher(
        caller.user, partial(identify, request.scope, leader), lambda: service.leader is leader and service.leads
    )


def service_of(request: Request) -> Service:
    found: Service = request.app.state.service
    return found


def leader_of(request: Request) -> Leader:
    """The same for all of a request, whatever happens to the lease meanwhile."""
    found: Leader | None = request.scope.get(_LEADER)
    if found is None:
        service = service_of(request)
        if service.leader is None or not service.leads:
            raise service.not_leading()
        found = request.scope[_LEADER] = service.leader
    return found


Serving = Annotated[Service, Depends(service)]
Leading = Annotated[Leader, Depends(leader)]
Caller = Annotated[Identity, Depends(identity)]
Tracked = Annotated[Tracking, Depends(tracking)]
Watching = Annotated[Watcher, Depends(watcher)]
HEAVY = [Depends(heavy)]  # for `dependencies` of a route


async def forecasting(request: Request, caller: Annotated[Identity, Depends(identity)]) -> AsyncIterator[None]:
    """As `heavy`, with turns of their own: forecasts of large clusters take seconds, and other reads don't wait."""
    async with service_of(request).forecast_slots.take(caller.user):
        yield


FORECASTS = [Depends(forecasting)]
Ref = Annotated[
    str,
    Path(
        min_length=1,
        max_length=100,
        description="A job's id, its number, or a name: its one job that has not ended, else its newest. `sweep[3]` is "
        "a task of an array, or a trial of a study",
    ),
]


def whole_number(text: str | None) -> int | None:
    """The number in a text of plain digits that a database can store; None for any other text."""
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 16 else None


def find_job(leader: Leader, caller: Identity, ref: str, role: Role = "viewer") -> Job:
    """The job that `ref` means, if the caller may see it."""
    state, job, number = leader.store.state(), None, whole_number(ref)
    if number is not None:
        job = leader.store.job_by_number(number)
    elif (split := split_index(ref)) is not None:
        array = find_job(leader, caller, split[0], role)
        task = task_id(array, split[1]) if array.is_array else _trial_job(state, array, split[1])
        job = leader.store.job(task) if task is not None else None
    elif "\0" not in ref:
        job = leader.store.job(ref)
        if job is None:
            job = unfinished_job(leader, caller, ref)
        if job is None:
            named = leader.store.jobs(JobFilter(projects=caller.projects(state), name=ref, limit=1))
            job = named[0] if named else None
    if job is None or caller.role(state, job.project) is None:
        raise NotFound(f"There is no job {ref!r} that you can see.", "See `muster ls --all`.")
    caller.need_run(job.id)
    caller.need(state, job.project, role)
    return job


def _trial_job(state: State, study: Job, number: int) -> str | None:
    trial = trials_of(state, study.id).get(number)
    return trial.job if trial is not None and trial.job else None


def unfinished_job(leader: Leader, caller: Identity, name: str) -> Job | None:
    """The job of this name that has not ended, of those that the caller may see. Raises Invalid if there are several.

    An action by name must not reach a newer job that is over, nor choose between jobs that are not.
    """
    visible = caller.projects(leader.store.state())
    found = leader.store.jobs(JobFilter(projects=visible, phases=UNFINISHED, name=name, limit=_LISTED + 1))
    if len(found) > 1:
        told = ", ".join(f"{job.id} ({job.phase})" for job in found[:_LISTED])
        more = " and more" if len(found) > _LISTED else ""
        raise Invalid(
            f"{name!r} is the name of several jobs that have not ended: {told}{more}.",
            f"Give the id of one, as in `{found[0].id}`; `muster ls --name {name}` lists them.",
        )
    return found[0] if found else None


def job_views(leader: Leader, caller: Identity, jobs: Sequence[Job]) -> list[JobView]:
    """Views of jobs; queued jobs with the current reason why they wait."""
    runs = leader.store.runs([job.id for job in jobs])
    waiting = [job.id for job in jobs if job.phase == "queued"]
    waits = leader.look(lambda state: waits_of(leader, caller, state, waiting)) if waiting else {}
    arrays = [job.id for job in jobs if job.is_array]
    phases = leader.store.task_phases(arrays) if arrays else {}
    return [job_view(job, runs.get(job.id, {}), waits.get(job.id), phases.get(job.id)) for job in jobs]


def view_of(leader: Leader, caller: Identity, job_id: str) -> JobView:
    job = leader.store.job(job_id)
    if job is None:
        raise NotFound(f"There is no job {job_id!r}.")
    return job_views(leader, caller, [job])[0]


def explainer_for(leader: Leader, caller: Identity, state: State, ends: Ends | None = None) -> Explainer:
    """Explains why jobs wait, and names only jobs that the caller may see. Call it between two commits."""
    return Explainer.of(state, leader.clock.now(), leader.controller.board, sees(caller, state), ends)


def sees(caller: Identity, state: State) -> Callable[[Job], bool]:
    visible, share = caller.projects(state), caller.share
    if share is not None:
        return lambda job: job.id == share.run
    return lambda job: visible is None or job.project in visible


def waits_of(leader: Leader, caller: Identity, state: State, job_ids: list[str]) -> dict[str, Reason]:
    """The reason for each of these jobs that is queued. Call it between two commits, or within one."""
    explainer = explainer_for(leader, caller, state)
    live = (state.jobs.get(job_id) for job_id in job_ids)
    queued = [job for job in live if job is not None and job.phase == "queued"]
    return {job.id: found[0] for job in queued if (found := explainer.explain(job, brief=True))}
