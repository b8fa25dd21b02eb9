"""Queues and nodes."""

from __future__ import annotations

import threading
from collections.abc import Container, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Annotated, Any, Final, cast

from fastapi import Path, Query
from pydantic import BaseModel, ConfigDict, Field

from muster.api.cluster import (
    CheckView,
    NodeCheckView,
    NodeEntry,
    NodeList,
    NodeRecordView,
    NodeView,
    QueueList,
    QueueView,
)
from muster.api.jobs import JobLine
from muster.core.entities import Health, Node, Queue
from muster.core.entities.node import NodeHealth
from muster.core.entities.node_record import NODE_RECORDS, NodeChecked
from muster.core.entities.queue import QueueSet
from muster.core.errors import Conflict, Invalid, NotFound, TooMany
from muster.core.event import SYSTEM, Event
from muster.core.state import State
from muster.server.auth import Identity
from muster.server.context import Caller, Leading, explainer_for, job_views
from muster.server.leader import Leader
from muster.server.typed_routes import needs, typed_router
from muster.server.views import node_view, queue_view
from muster.store.base import Entry

router = typed_router(prefix="/v1", tags=["cluster"])

CHECKS_MAX: Final = 8  # nodes that are checked at the same time
NAME = r"^[a-z]([a-z0-9-]{0,48}[a-z0-9])?$"
Name = Annotated[str, Path(pattern=NAME, max_length=50)]
NodeName = Annotated[str, Path(min_length=1, max_length=253, pattern=r"^[^\x00]*$")]


class QueueBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    name: str = Field(pattern=NAME)
    project: str = Field("default", pattern=NAME)
    min_priority: int = Field(0, ge=0, le=100)
    max_priority: int = Field(100, ge=0, le=100)


class HealthBody(BaseModel):
    model_config = ConfigDict(extra="forbid")

    health: Health
    reason: str = Field("", max_length=500)


@router.get("/queues", openapi_extra=needs("anyone"))
def list_queues(leader: Leading, caller: Caller) -> QueueList:
    def look(state: State) -> list[QueueView]:
        return [queue_view(queue, state) for queue in state.queues.values() if _sees(caller, state, queue)]

    return {"queues": leader.look(look)}


@router.post("/queues", status_code=201, openapi_extra=needs("admin"))
def set_queue(body: QueueBody, leader: Leading, caller: Caller) -> QueueView:
    """Creates or changes a queue."""
    if body.min_priority > body.max_priority:
        raise Invalid(
            f"min_priority is {body.min_priority}, above max_priority {body.max_priority}.", "Swap or change them."
        )
    caller.need(leader.store.state(), body.project, "admin")
    queue = QueueSet(**body.model_dump())

    def propose(state: State) -> Entry:
        known = state.queues.get(queue.name)
        if known is not None:
            caller.need(state, known.project, "admin")
        return Entry([Event(queue, leader.clock.now(), caller.user, queue.project)])

    leader.propose(propose)
    return leader.look(lambda state: queue_view(state.queues[queue.name], state))


@router.get("/queues/{name}/line", openapi_extra=needs("viewer"))
def queue_line(
    name: Name, leader: Leading, caller: Caller, limit: Annotated[int, Query(ge=1, le=1000)] = 50
) -> JobLine:
    """The queued jobs of a queue in the order in which they would start."""

    def look(state: State) -> list[str]:
        queue = state.queues.get(name)
        if queue is None or not _sees(caller, state, queue):
            raise NotFound(f"There is no queue {name!r} that you can see.", "See `muster queue`.")
        explainer = explainer_for(leader, caller, state)
        line = (queued.job for queued in explainer.positions.in_order(name, include_held=True))
        return [job.id for job in islice((job for job in line if explainer.sees(job)), limit)]

    jobs = [leader.store.job(job_id) for job_id in leader.look(look)]
    return {"jobs": job_views(leader, caller, [job for job in jobs if job is not None])}


@router.get("/nodes", openapi_extra=needs("anyone"))
def list_nodes(
    leader: Leading,
    caller: Caller,
    name: Annotated[list[str] | None, Query(max_length=1000, description="only these nodes")] = None,
) -> NodeList:
    """All nodes and machines, without the queue slots of engines that choose the machines themselves."""
    visible = caller.projects(leader.store.state())
    return {"nodes": leader.look(lambda state: _nodes(leader, state, visible, None if name is None else set(name)))}


@router.post("/nodes/{name}/health", openapi_extra=needs("superuser"))
def set_health(name: NodeName, body: HealthBody, leader: Leading, caller: Caller) -> NodeView:
    """Sets a node's health and informs its engine. An unhealthy node gets no new work; what runs there goes on."""
    caller.need_superuser()

    def propose(state: State) -> Entry:
        node = state.find_node(name)
        if node is None or node.role == "slot":
            raise NotFound(f"There is no node {name!r}.", "See `muster nodes`.")
        return Entry([Event(NodeHealth(name, body.health, body.reason), leader.clock.now(), caller.user)])

    leader.propose(propose)
    if body.health == "healthy":
        leader.engine.undrain(name)
    else:
        leader.engine.drain(name, body.reason or f"{body.health} by {caller.user}")
    return leader.look(lambda state: _nodes(leader, state, None, {name})[0])


@router.post("/nodes/{name}/check", openapi_extra=needs("superuser"))
def check_node(name: NodeName, leader: Leading, caller: Caller) -> NodeCheckView:
    """Checks a node now. It takes some seconds; where a cluster chooses the machines, it waits up to a minute for a
    place on the node. With `later` it is checked before the next start there: its engine can't check it now."""
    caller.need_superuser()
    node = _find_node(leader, name)
    with _checking(name):
        found = leader.engine.check_node(name, bool(node.jobs))
    docs = [dict(one) for one in found or ()]
    checked = NodeChecked(name, docs)
    leader.propose(lambda state: Entry([Event(checked, leader.clock.now(), caller.user)]))
    return {"name": name, "later": found is None, "findings": cast(list[CheckView], docs)}


@router.get("/nodes/{name}/history", openapi_extra=needs("anyone"))
def node_record(
    name: NodeName,
    leader: Leading,
    caller: Caller,
    before: Annotated[int | None, Query(ge=0, le=2**53)] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 50,
) -> NodeRecordView:
    """Failures, checks, changes of health and stragglers of a node, oldest first; at most the newest hundred are kept.

    The text of an entry about a job is for those who can see the job.
    """
    visible = caller.projects(leader.store.state())

    def look(state: State) -> NodeRecordView:
        record = NODE_RECORDS.all(state).get(name)
        if record is None:
            _find_node(leader, name)
            return {"name": name, "failures": {}, "entries": [], "next": None}
        found = [entry for entry in record.history if before is None or entry["seq"] < before]
        shown = [_entry_view(entry, visible) for entry in found[-limit:]]
        more = len(found) > limit
        return {
            "name": name,
            "failures": dict(record.failures),
            "entries": shown,
            "next": shown[0]["seq"] if more else None,
        }

    return leader.look(look)


def _entry_view(entry: dict[str, Any], visible: Container[str] | None) -> NodeEntry:
    """`visible`: the projects of the caller; None: all of them."""
    sees = visible is None or not entry["project"] or entry["project"] in visible
    return {
        "seq": entry["seq"],
        "time": entry["time"],
        "kind": entry["kind"],
        "text": entry["text"] if sees else "a job of another project",
        "job": entry["job"] if sees else "",
        "actor": entry["actor"] if visible is None and entry["actor"] != SYSTEM else "",
    }


def _find_node(leader: Leader, name: str) -> Node:
    node = leader.store.state().find_node(name)
    if node is None or node.role == "slot":
        raise NotFound(f"There is no node {name!r}.", "See `muster nodes`.")
    return node


@contextmanager
def _checking(name: str) -> Iterator[None]:
    """One check of a node at a time, and a few altogether: each holds a thread."""
    with _checks_lock:
        if name in _checked_now:
            raise Conflict(f"{name} is being checked already.", f"See `muster nodes history {name}` in a minute.")
        if len(_checked_now) >= CHECKS_MAX:
            raise TooMany(f"{CHECKS_MAX} nodes are being checked now.", "Try it again in a minute.")
        _checked_now.add(name)
    try:
        yield
    finally:
        _checked_now.discard(name)


_checks_lock: Final = threading.Lock()
_checked_now: Final[set[str]] = set()


def _nodes(
    leader: Leader, state: State, visible: Container[str] | None, names: Container[str] | None
) -> list[NodeView]:
    """`visible`: the projects whose jobs are named; `names`: of the nodes that are wanted. None: all of them."""
    engines = {pool.name: pool.engine for pool in state.pools.values()}
    records = NODE_RECORDS.all(state)
    spares = _spares(leader, state)
    views: list[NodeView] = []
    for node in state.nodes.values():
        if node.role == "node" and (names is None or node.name in names):
            failed = records[node.name].count if node.name in records else 0
            views.append(node_view(node, engines.get(node.pool, ""), failures=failed, spare=node.name in spares))
    if state.machines:
        jobs: dict[str, list[str]] = {}
        for job_id in state.active:
            attempt = state.jobs[job_id].attempt
            for at in {worker.at for worker in attempt.workers if worker.at} if attempt is not None else ():
                jobs.setdefault(at, []).append(job_id)
        for node in state.machines.values():
            if names is None or node.name in names:
                engine = leader.engine.engine_of(node.name) or engines.get(node.pool, "")
                failed = records[node.name].count if node.name in records else 0
                used = leader.engine.used(node.name)
                views.append(node_view(node, engine, jobs.get(node.name, ()), used, failed))
    for view in views:
        there = [state.jobs[job_id] for job_id in view["jobs"]]
        seen = [job for job in there if visible is None or job.project in visible]
        view["jobs"], view["users"] = [job.id for job in seen], sorted({job.user for job in seen})
    return views


def _spares(leader: Leader, state: State) -> set[str]:
    """The nodes that are kept free now, for jobs that lose a node."""
    pools = [name for name, rule in state.rules.pools.items() if rule.spares]
    if not pools:
        return set()
    board = leader.controller.board
    board.sync(state, leader.clock.now())
    return {slot.name for pool in pools for slot in board.free.kept(pool)}


def _sees(caller: Identity, state: State, queue: Queue) -> bool:
    visible = caller.projects(state)
    return visible is None or queue.project in visible or queue.name == "default"
