"""Several engines behind one interface: each pool belongs to one engine, and the controller need not know which."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from muster.core.errors import EngineError, NotFound, Problem
from muster.core.resources import Resources
from muster.core.spec import JobSpec
from muster.engines.base import (
    CauseReporting,
    Condition,
    Diagnosing,
    Draining,
    GangLaunch,
    Growing,
    Keeping,
    Member,
    NodeChecking,
    NodeInfo,
    PoolInfo,
    Queueing,
    SpecChecking,
    Wait,
    WorkerReport,
)
from muster.engines.names import Names
from muster.engines.registry import how_to_add

PATIENCE: Final = 60.0  # seconds; a launcher always reports, this is for one that can reach no server
AWAY_AFTER: Final = 10.0  # seconds without an answer before nothing is planned on an engine: a restart takes less
_FINE: Final = Condition(True, 0.0, "this machine")


class Engines:
    """See `muster.engines.base.Engine`. An engine that is away does not affect the others."""

    name = "engines"
    patience = PATIENCE

    def __init__(self, members: Sequence[Member], clock: Callable[[], float] = time.time) -> None:
        self._members: dict[str, Member] = {member.name: member for member in members}
        self._clock = clock
        self._names = Names()
        self._used: dict[str, Resources] = {}  # machine → what all its users together hold
        self._reported_away: dict[str, str] = {}  # engines → why they are away, as `pools` last reported

    def restore(self, pools: Mapping[str, str], nodes: Iterable[tuple[str, str]]) -> None:
        """Restores names that an earlier server assigned: pools and nodes, each with its engine.
        The names stay the same no matter which engine answers first this time."""
        there = {pool: engine for pool, engine in pools.items() if engine in self._members}
        self._names.restore(there, [(node, engine) for node, engine in nodes if engine in self._members])

    def members(self) -> Mapping[str, Member]:
        return self._members

    def member(self, name: str) -> Member:
        if name not in self._members:
            raise NotFound(f"There is no engine {name!r}.", how_to_add(name, self._members))
        return self._members[name]

    def condition(self, name: str) -> Condition:
        member = self._members[name]
        return member.condition() if isinstance(member, Diagnosing) else _FINE

    def away(self, name: str) -> str:
        """Why an engine that has not answered for a while is away; "" for one that answers or no longer exists."""
        if name not in self._members:
            return ""
        found = self.condition(name)
        return "" if found.ok or self._clock() - found.since < AWAY_AFTER else found.detail

    def used(self, node: str) -> Resources | None:
        """What all users of a machine together hold of it, if its engine reports that."""
        return self._used.get(node)

    def engine_of(self, node: str) -> str:
        """The engine that a node belongs to; "" for an unknown node."""
        return self._names.node(node)[0]

    def own_name(self, node: str) -> str:
        """The engine's own name for a node."""
        return self._names.node(node)[1]

    # --- the Engine protocol -----------------------------------------------------------------------------------------
    def has_reported(self, engine: str) -> bool:
        member = self._members.get(engine)
        answered: Callable[[], bool] | None = getattr(member, "answered", None)
        return answered() if answered is not None else True

    def nodes(self) -> Sequence[NodeInfo]:
        """The nodes of all engines. A name that two engines use is shown together with the engine's name."""
        found: list[NodeInfo] = []
        for name, member in self._members.items():
            for node in member.nodes():
                pool, shown = self._names.show_pool(name, node.pool), self._names.show_node(name, node.name)
                also = tuple([self._names.show_pool(name, other) for other in node.also])
                found.append(replace(node, name=shown, pool=pool, engine=name, also=also))
        self._used = {node.name: node.used for node in found if node.used is not None}
        return found

    def nodes_changed(self) -> bool:
        """Whether `nodes` or `pools` would return something new."""
        changed = [asked() for member in self._members.values() if (asked := getattr(member, "nodes_changed", None))]
        return any(changed) or {name: bool(self.away(name)) for name in self._members} != self._was_away()

    def pools(self) -> Mapping[str, PoolInfo]:
        self._reported_away = {name: self.away(name) for name in self._members}
        for name, member in self._members.items():
            for pool in member.most() if isinstance(member, Growing) else ():
                self._names.show_pool(name, pool)
        return {pool: PoolInfo(name, self._reported_away.get(name, "")) for pool, name in self._names.owners().items()}

    def launch(self, gang: GangLaunch) -> None:
        member = self._of(gang)
        seats = [replace(seat, node=self._names.node(seat.node)[1]) for seat in gang.seats]
        options = gang.options.get(getattr(member, "kind", ""), {})
        pool, sick = self._names.pool(gang.pool)[1], [self._names.node(name)[1] for name in gang.check_nodes]
        member.launch(replace(gang, seats=seats, pool=pool, options=options, check_nodes=sick))

    def stop(self, job: str, attempt: int, grace: float, reason: str) -> None:
        for member in self._members.values():
            member.stop(job, attempt, grace, reason)

    def poll(self) -> Sequence[WorkerReport]:
        found: list[WorkerReport] = []
        for name, member in self._members.items():
            for report in member.poll():
                if report.node:
                    report = replace(report, node=self._names.show_node(name, report.node))
                found.append(report)
        return found

    def forget(self, job: str, attempt: int) -> None:
        for member in self._members.values():
            member.forget(job, attempt)

    def on_change(self, wake: Callable[[], None]) -> None:
        for member in self._members.values():
            member.on_change(wake)

    def close(self) -> None:
        for member in self._members.values():
            member.close()

    # --- optional protocols ------------------------------------------------------------------------------------------
    def waits(self) -> Sequence[Wait]:
        return [wait for member in self._members.values() if isinstance(member, Queueing) for wait in member.waits()]

    def cause(self, job: str, attempt: int, worker: int) -> tuple[str, str] | None:
        knowing = (
            member.cause(job, attempt, worker)
            for member in self._members.values()
            if isinstance(member, CauseReporting)
        )
        return next((found for found in knowing if found is not None), None)

    def objections(self, spec: JobSpec, pool: str) -> Sequence[Problem]:
        owner, there = self._names.pool(pool)
        member = self._members.get(owner)
        return member.objections(spec, there) if isinstance(member, SpecChecking) else ()

    def kept(self) -> Collection[str]:
        return {job for member in self._members.values() if isinstance(member, Keeping) for job in member.kept()}

    def release(self, job: str) -> None:
        for member in self._members.values():
            if isinstance(member, Keeping):
                member.release(job)

    def drain(self, node: str, why: str) -> None:
        engine, there = self._drains(node)
        if engine is not None:
            engine.drain(there, why)

    def undrain(self, node: str) -> None:
        engine, there = self._drains(node)
        if engine is not None:
            engine.undrain(there)

    def check_node(self, node: str, shared: bool) -> Sequence[Mapping[str, Any]] | None:
        """What the checks of a node find now; None if its engine can only check it before the next start there."""
        owner, there = self._names.node(node)
        member = self._members.get(owner)
        return member.check_node(there, shared) if isinstance(member, NodeChecking) else None

    def want(self, waiting: Sequence[tuple[str, Resources, int]]) -> None:
        theirs: dict[str, list[tuple[str, Resources, int]]] = {name: [] for name in self._members}
        for pool, ask, workers in waiting:
            owner, there = self._names.pool(pool)
            if owner in theirs:
                theirs[owner].append((there, ask, workers))
        for name, member in self._members.items():
            if isinstance(member, Growing):
                member.want(theirs[name])

    def most(self) -> Mapping[str, tuple[Resources, int]]:
        return {
            self._names.show_pool(name, pool): most
            for name, member in self._members.items()
            if isinstance(member, Growing)
            for pool, most in member.most().items()
        }

    def _was_away(self) -> dict[str, bool]:
        return {name: bool(self._reported_away.get(name)) for name in self._members}

    def _drains(self, node: str) -> tuple[Draining | None, str]:
        name, there = self._names.node(node)
        member: object = self._members.get(name)
        return member if isinstance(member, Draining) else None, there

    def _of(self, gang: GangLaunch) -> Member:
        owner = self._names.pool(gang.pool)[0]
        if not owner and gang.seats:
            owner = self._names.node(gang.seats[0].node)[0]
        if owner not in self._members:
            raise EngineError(f"No engine has the pool {gang.pool!r}.", "See `muster engines`.")
        return self._members[owner]
