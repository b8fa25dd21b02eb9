"""Several engines as one: each pool belongs to one of them, and the controller need not know which."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from muster.core.errors import EngineError, NotFound
from muster.core.resources import Resources
from muster.engines.base import (
    Condition,
    Diagnosing,
    Draining,
    GangLaunch,
    Growing,
    Knowing,
    Member,
    NodeInfo,
    Queueing,
    Wait,
    WorkerReport,
)

PATIENCE: Final = 60.0  # seconds; a launcher always tells, this is for one that can reach no server
_FINE: Final = Condition(True, 0.0, "this machine")


class Engines:
    """See `muster.engines.base.Engine`. An engine that is away keeps the others from nothing."""

    name = "engines"
    patience = PATIENCE

    def __init__(self, members: Sequence[Member]) -> None:
        self._members: dict[str, Member] = {member.name: member for member in members}
        self._owners: dict[str, str] = {}  # pool → engine
        self._nodes: dict[str, tuple[str, str]] = {}  # node, as it is shown → engine, and its name there
        self._shown: dict[tuple[str, str], str] = {}  # the other way round

    def members(self) -> Mapping[str, Member]:
        return self._members

    def member(self, name: str) -> Member:
        if name not in self._members:
            raise NotFound(f"There is no engine {name!r}.", f"There are: {', '.join(self._members)}.")
        return self._members[name]

    def condition(self, name: str) -> Condition:
        member = self._members[name]
        return member.condition() if isinstance(member, Diagnosing) else _FINE

    def owner(self, pool: str) -> str | None:
        """The engine that a pool belongs to; None for a pool that was never heard of."""
        return self._owners.get(pool)

    # --- what an engine does -----------------------------------------------------------------------------------------
    def heard(self, engine: str) -> bool:
        member = self._members.get(engine)
        answered: Callable[[], bool] | None = getattr(member, "answered", None)
        return answered() if answered is not None else True

    def nodes(self) -> Sequence[NodeInfo]:
        """A name that two engines use is shown with the engine's behind it; a pool belongs to who named it first."""
        found: list[NodeInfo] = []
        for name, member in self._members.items():
            for node in member.nodes():
                if self._owners.setdefault(node.pool, name) != name:
                    node = replace(node, pool=f"{name}-{node.pool}")
                    self._owners[node.pool] = name
                found.append(replace(node, name=self._show(name, node.name), engine=name))
        return found

    def launch(self, gang: GangLaunch) -> None:
        member = self._of(gang)
        seats = [replace(seat, node=self._nodes.get(seat.node, ("", seat.node))[1]) for seat in gang.seats]
        member.launch(replace(gang, seats=seats))

    def stop(self, job: str, attempt: int, grace: float, reason: str) -> None:
        for member in self._members.values():
            member.stop(job, attempt, grace, reason)

    def poll(self) -> Sequence[WorkerReport]:
        found: list[WorkerReport] = []
        for name, member in self._members.items():
            for report in member.poll():
                if report.node:
                    report = replace(report, node=self._show(name, report.node))
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

    # --- what only some of them do -----------------------------------------------------------------------------------
    def waits(self) -> Sequence[Wait]:
        return [wait for member in self._members.values() if isinstance(member, Queueing) for wait in member.waits()]

    def cause(self, job: str, attempt: int, worker: int) -> tuple[str, str] | None:
        knowing = (
            member.cause(job, attempt, worker) for member in self._members.values() if isinstance(member, Knowing)
        )
        return next((found for found in knowing if found is not None), None)

    def drain(self, node: str, why: str) -> None:
        engine, there = self._drains(node)
        if engine is not None:
            engine.drain(there, why)

    def undrain(self, node: str) -> None:
        engine, there = self._drains(node)
        if engine is not None:
            engine.undrain(there)

    def want(self, waiting: Sequence[tuple[str, Resources, int]]) -> None:
        for name, member in self._members.items():
            if isinstance(member, Growing):
                member.want([(pool, ask, nodes) for pool, ask, nodes in waiting if self._owners.get(pool) == name])

    def most(self) -> Mapping[str, tuple[Resources, int]]:
        found: dict[str, tuple[Resources, int]] = {}
        for member in self._members.values():
            if isinstance(member, Growing):
                found.update(member.most())
        return found

    def _drains(self, node: str) -> tuple[Draining | None, str]:
        name, there = self._nodes.get(node, ("", node))
        member: object = self._members.get(name)
        return member if isinstance(member, Draining) else None, there

    def _of(self, gang: GangLaunch) -> Member:
        owner = self._owners.get(gang.pool)
        if owner is None and gang.seats:
            owner = self._nodes.get(gang.seats[0].node, (None, ""))[0]
        if owner is None:
            raise EngineError(f"No engine has the pool {gang.pool!r}.", "See `muster engines`.")
        return self._members[owner]

    def _show(self, engine: str, name: str) -> str:
        shown = self._shown.get((engine, name))
        if shown is None:
            shown = name if name not in self._nodes else f"{name}@{engine}"
            self._shown[engine, name], self._nodes[shown] = shown, (engine, name)
        return shown
