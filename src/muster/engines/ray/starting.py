"""Starts and stops gangs on Ray: reserves a placement group, then calls the agents."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any, Final

from muster.engines.ray.agent_links import AgentLinks, BadEnvironment, NodeGone
from muster.engines.ray.cluster import Cluster, RayError, env_name
from muster.engines.ray.gangs import Key, RayGang, group_name
from muster.engines.ray.groups import CANCELLED, PlacementGroups

TRIES: Final = 4  # attempts to start a process on a node that refuses
AGAIN: Final = 0.5  # seconds
OUTSIDE_GRACE: Final = 30.0  # seconds to save for a gang whose placement group was removed
NEVER: Final = "stopped before it was started"


class GangRefused(Exception):
    """The gang can't run; the first argument is a reason code."""


class GangStarter:
    def __init__(
        self, cluster: Cluster, links: AgentLinks, groups: PlacementGroups, changed: Callable[[], None]
    ) -> None:
        self._cluster, self._agent_links, self._groups, self._changed = cluster, links, groups, changed
        groups.on_removed = self._removed

    def launch(self, raw: dict[str, Any]) -> None:
        """Starts a gang, unless it is started already."""
        ledger, gang = self._agent_links.ledger, RayGang(**raw)
        if gang.key in ledger.gangs or gang.key in ledger.ends:
            return
        ledger.gangs[gang.key] = gang
        gang.task = self._agent_links.spawn(self._run(gang))

    def stop(self, key: Key, grace: float, reason: str) -> None:
        gang = self._agent_links.ledger.gangs.get(key)
        if gang is not None and gang.task is not None and not gang.task.done():
            gang.stop = (min(grace, gang.stop[0]) if gang.stop else grace, reason)
            gang.placed.set()  # it need not wait any longer
            return
        self._stop_now(key, grace, reason)

    def forget(self, key: Key) -> None:
        self._call_agents(key, "forget", *key)
        gang = self._agent_links.ledger.gangs.get(key)
        if gang is not None and gang.task is not None:
            gang.task.cancel()
        self._agent_links.ledger.forget(key)
        self._agent_links.spawn(self._groups.release(key))

    async def _run(self, gang: RayGang) -> None:
        try:
            if gang.bad:
                raise BadEnvironment(gang.bad)
            await self._reserve(gang)
            if gang.stop is None:
                gang.stage = "starting"
                await self._start_workers(gang)
                gang.stage = "started"
        except GangRefused as refusal:
            self._end(gang, refusal.args[0], refusal.args[1])
        except BadEnvironment as error:
            self._end(gang, "bad_environment", str(error))
        except NodeGone:
            pass  # its workers were ended with the node
        except Exception as error:
            self._end(gang, "launch_failed", f"{type(error).__name__}: {error}")
        finally:
            gang.wait = None
            self._changed()
        if gang.stop is not None:
            self._stop_now(gang.key, *gang.stop)

    async def _reserve(self, gang: RayGang) -> None:
        if any(node not in self._agent_links.nodes for node in gang.nodes):
            gone = [w for w, node in enumerate(gang.nodes) if node not in self._agent_links.nodes]
            names = ", ".join(gang.names[worker] for worker in gone)
            self._agent_links.ledger.end(gang.key, gone, "failed", "node_lost", f"Ray has no node {names} any more")
            raise NodeGone(names)
        if not gang.bundles:
            return
        name = group_name(self._groups.installation, gang.key)
        there = await self._cluster.reserve(name, gang.bundles, gang.nodes)
        self._groups.hold(gang)
        if not there:
            self._groups.wait_for(gang)
            await gang.placed.wait()

    async def _start_workers(self, gang: RayGang) -> None:
        """Starts worker 0 first: its answer says where rank 0 listens."""
        launches = [json.loads(text) for text in gang.launches]
        await self._name_devices(gang, launches)
        address, port = await self._start(gang, 0, launches[0])
        for launch in launches[1:]:
            launch |= {"master_addr": address, "master_port": port}
        rest = [self._start(gang, worker, launch) for worker, launch in enumerate(launches[1:], 1)]
        for outcome in await asyncio.gather(*rest, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome

    async def _start(self, gang: RayGang, worker: int, launch: dict[str, Any]) -> tuple[str, int]:
        about = {"workers": len(gang.nodes), "driver": gang.driver}
        gang.launched.add(worker)
        for number in range(1, TRIES + 1):
            try:
                given = (about, [json.dumps(launch)])
                found = await self._agent_links.order(gang.nodes[worker], gang.env, "launch", *given)
                return str(found[0]), int(found[1])
            except BadEnvironment:
                gang.launched.discard(worker)
                raise
            except OSError as error:
                if number == TRIES:
                    gang.launched.discard(worker)
                    where = gang.names[worker]
                    raise GangRefused("launch_failed", f"{where} refused to start the launcher: {error}") from error
                await asyncio.sleep(AGAIN * number)
        raise AssertionError("unreachable")

    async def _name_devices(self, gang: RayGang, launches: list[dict[str, Any]]) -> None:
        name = group_name(self._groups.installation, gang.key)
        asked = [bundle.get("GPU", 0.0) for bundle in gang.bundles]
        if not any(asked):
            return
        asks = [self._cluster.devices(name, index, count) for index, count in enumerate(asked)]
        try:
            found = await asyncio.wait_for(asyncio.gather(*asks), 60.0)
        except (RayError, ValueError, TimeoutError) as error:
            if gang.key in self._agent_links.ledger.ends:
                raise NodeGone(name) from error
            raise GangRefused("launch_failed", f"Ray did not say which accelerators it keeps: {error}") from error
        for launch, devices in zip(launches, found, strict=True):
            launch["devices"] = list(devices)

    def _end(self, gang: RayGang, reason: str, detail: str) -> None:
        """Ends the workers that no agent was told of; the others are stopped by an order."""
        self._agent_links.ledger.end(gang.key, gang.unlaunched(), "failed", reason, detail[:4000])

    def _stop_now(self, key: Key, grace: float, reason: str) -> None:
        gang = self._agent_links.ledger.gangs.get(key)
        self._call_agents(key, "stop", *key, grace, reason)
        if gang is not None and gang.unlaunched():
            self._agent_links.ledger.end(key, gang.unlaunched(), "stopped", reason, NEVER)
        self._changed()

    def _call_agents(self, key: Key, method: str, *given: Any) -> None:
        targets: dict[tuple[str, str], None] = dict.fromkeys(self._agent_links.ledger.agents_of(key))
        if gang := self._agent_links.ledger.gangs.get(key):  # agents that were called but have not reported yet
            targets |= dict.fromkeys((gang.nodes[worker], env_name(gang.env)) for worker in gang.launched)
        for node, name in targets:
            self._agent_links.spawn(self._pass_on(node, name, method, *given))

    async def _pass_on(self, node: str, env: str, method: str, *given: Any) -> None:
        try:
            await self._agent_links.order(node, env, method, *given)
        except (NodeGone, BadEnvironment, OSError):
            pass  # no agent is left to be called

    def _removed(self, key: Key) -> None:
        """Called when a gang's placement group was removed with Ray's own tools."""
        self.stop(key, OUTSIDE_GRACE, CANCELLED)
