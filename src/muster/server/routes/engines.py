"""Engines: their state and abilities, their diagnosis, and their own accounting."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Annotated, Final, cast

from fastapi import Path, Query
from fastapi.responses import StreamingResponse

from muster.api.engines import EngineList, EngineView, GangCounts, Reconciliation, UsageDifference, UsageList, UsageView
from muster.control.usage_audit import Attempted, compare
from muster.core.errors import Invalid, MusterError
from muster.core.job import Job
from muster.core.state import State
from muster.engines.base import Accounting, Diagnosing, Finding, Usage
from muster.engines.registry import LOCAL
from muster.server.context import Caller, Leading
from muster.server.leader import Leader
from muster.server.typed_routes import needs, typed_router
from muster.store.base import JobFilter

router = typed_router(prefix="/v1/engines", tags=["engines"])

EngineName = Annotated[str, Path(min_length=1, max_length=50, pattern=r"^[a-z0-9-]+$")]
_WEEK: Final = 7 * 86_400.0
_PAGE: Final = 1000  # jobs
Since = Annotated[float, Query(ge=60, le=315_360_000, description="seconds back from now")]
_HERE: Final = ("places gangs by itself", "starts workers at once", "keeps them when the server ends")


@router.get("", openapi_extra=needs("anyone"))
def list_engines(leader: Leading, caller: Caller) -> EngineList:
    """The configured engines, their state and what they can do. Only superusers see what is wrong."""
    views = leader.look(lambda state: [_view(leader, state, name) for name in leader.engine.members()])
    return {"engines": [_shown(view, caller.superuser) for view in views]}


@router.get("/{name}", openapi_extra=needs("anyone"))
def get_engine(name: EngineName, leader: Leading, caller: Caller) -> EngineView:
    leader.engine.member(name)
    return _shown(leader.look(lambda state: _view(leader, state, name)), caller.superuser)


@router.get("/{name}/doctor", response_class=StreamingResponse, openapi_extra=needs("superuser"))
def diagnose(name: EngineName, leader: Leading, caller: Caller) -> StreamingResponse:
    """Checks the engine now. Streams the findings, one JSON object per line."""
    caller.need_superuser()
    member: object = leader.engine.member(name)
    found: Iterable[Finding] = [Finding("ok", "engine", "this machine: see `muster doctor`")]
    if isinstance(member, Diagnosing):
        found = member.diagnose()
    return StreamingResponse(_lines(found), media_type="application/x-ndjson")


@router.get("/{name}/usage", openapi_extra=needs("superuser"))
def usage(name: EngineName, leader: Leading, caller: Caller, since: Since = _WEEK) -> UsageList:
    """What attempts used, according to the engine's own accounting."""
    caller.need_superuser()
    now = leader.clock.now()
    found = [cast(UsageView, asdict(one)) for one in engine_usage(leader, name, now - since)]
    return {"engine": name, "since": now - since, "usage": found}


@router.get("/{name}/reconcile", openapi_extra=needs("superuser"))
def reconcile(name: EngineName, leader: Leading, caller: Caller, since: Since = _WEEK) -> Reconciliation:
    """Where the engine's accounting and Muster's record differ by more than the tolerance."""
    caller.need_superuser()
    began = leader.clock.now() - since
    theirs = list(engine_usage(leader, name, began))
    ours = list(_kept(leader, name, began, {one.job for one in theirs}))
    found = [cast(UsageDifference, asdict(one)) for one in compare(ours, theirs)]
    return {"engine": name, "since": began, "attempts": len(ours), "records": len(theirs), "differences": found}


def engine_usage(leader: Leader, name: str, since: float) -> Iterable[Usage]:
    member: object = leader.engine.member(name)
    if not isinstance(member, Accounting):
        raise Invalid(f"The engine {name!r} keeps no books of its own.", "See `muster cost` for Muster's.")
    return member.usage(since)


def _kept(leader: Leader, engine: str, since: float, named: set[str]) -> Iterator[Attempted]:
    """Attempts on the engine that ended since then or still run, also those of older jobs that its accounting names."""
    pools = {pool.name for pool in leader.store.state().pools.values() if pool.engine == engine}
    for job in _jobs(leader, since, named):
        for one in leader.store.attempts(job.id):
            if one.pool not in pools or one.running_at is None or (one.ended_at or since) < since:
                continue
            nodes = tuple(dict.fromkeys(leader.engine.own_name(worker.node) for worker in one.workers))
            accelerators = job.ask.accelerators * len(one.workers)
            yield Attempted(job.id, one.number, nodes, one.running_at, one.ended_at, accelerators)


def _jobs(leader: Leader, since: float, named: set[str]) -> Iterator[Job]:
    seen, before = set[str](), None
    while page := leader.store.jobs(JobFilter(before=before, limit=_PAGE)):
        recent = [job for job in page if job.finished_at is None or job.finished_at >= since]
        seen.update(job.id for job in recent)
        yield from recent
        before = page[-1].number
        if not recent:
            break  # earlier jobs ended before `since`, except those that the engine's accounting names
    for name in sorted(named - seen):
        if (job := leader.store.job(name)) is not None:
            yield job


def _lines(found: Iterable[Finding]) -> Iterator[str]:
    """Findings as JSON lines. An error in the middle becomes a finding too, because the answer has already begun."""
    try:
        for one in found:
            yield json.dumps(asdict(one)) + "\n"
    except MusterError as error:
        yield json.dumps(asdict(Finding("fail", "engine", error.message, error.hint))) + "\n"


def _view(leader: Leader, state: State, name: str) -> EngineView:
    member: object = leader.engine.member(name)
    condition = leader.engine.condition(name)
    pools = sorted(pool.name for pool in state.pools.values() if pool.engine == name)
    machines = [node for node in state.machines.values() if leader.engine.engine_of(node.name) == name]
    nodes = [node for node in state.nodes.values() if node.role == "node" and node.pool in pools] or machines
    return {
        "name": name,
        "kind": member.kind if isinstance(member, Diagnosing) else LOCAL,
        "ok": condition.ok and not condition.trouble,
        "away": bool(leader.engine.away(name)),
        "since": condition.since or None,
        "detail": condition.detail,
        "trouble": condition.trouble,
        "hint": condition.hint,
        "pools": pools,
        "nodes": len(nodes),
        "healthy": sum(node.health == "healthy" for node in nodes),
        "gangs": _gangs(state, set(pools)),
        "abilities": list(member.abilities) if isinstance(member, Diagnosing) else list(_HERE),
    }


def _gangs(state: State, pools: set[str]) -> GangCounts:
    """Number of gangs on the engine: running, and waiting in its own queue."""
    found: GangCounts = {"running": 0, "waiting": 0}
    for job_id in state.active:
        job = state.jobs[job_id]
        if job.attempt is not None and job.attempt.pool in pools:
            found["waiting" if job.phase == "starting" else "running"] += 1
    return found


def _shown(view: EngineView, everything: bool) -> EngineView:
    if everything:
        return view
    return {**view, "detail": "", "hint": "", "trouble": "an administrator must see to it" if view["trouble"] else ""}
