"""The placement groups of this Muster: polls them all at once, releases those no longer needed,
and turns waiting gangs into requests to the autoscaler."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

from muster.engines.ray.agent_links import AgentLinks
from muster.engines.ray.cluster import Cluster, Group, RayError
from muster.engines.ray.gangs import WITHHELD, Key, RayGang, group_key, group_name, group_prefix

EVERY: Final = 5.0  # seconds between looks when no gang waits for its reservation
WAITING: Final = 0.5  # seconds between looks when one does
REMOVED: Final = "REMOVED"
CANCELLED: Final = "cancelled_outside"  # a reason code

Bundle = Mapping[str, float]


class PlacementGroups:
    def __init__(self, cluster: Cluster, links: AgentLinks, changed: Callable[[], None]) -> None:
        self.installation = ""
        self.on_removed: Callable[[Key], None] = lambda key: None
        self._cluster = cluster
        self._agent_links = links
        self._changed = changed
        self._held: dict[Key, list[dict[str, float]]] = {}  # groups that exist, as far as known, and their bundles
        self._given_up: set[Key] = set()  # groups that should no longer exist
        self._orphans: dict[Key, float] = {}  # groups of unknown attempts → since when
        self._waiting: list[tuple[Bundle, Mapping[str, str]]] = []
        self._requested: list[Bundle] = []
        self._look_now = asyncio.Event()
        self._nudged = False

    async def open(self, installation: str) -> None:
        self.installation = installation
        await self._look()
        self._agent_links.spawn(self._watch())

    def wait_for(self, gang: RayGang) -> None:
        gang.wait = ("PENDING", "Ray is reserving its places")
        self._changed()
        self._look_now.set()

    def hold(self, gang: RayGang) -> None:
        self._held[gang.key] = gang.bundles
        self._given_up.discard(gang.key)

    async def release(self, key: Key) -> None:
        """Releases a group; does nothing if there is none."""
        if self._held.pop(key, None) is not None:
            self._given_up.add(key)  # if Ray does not answer now, the next look finds it
            with suppress(RayError, OSError, RuntimeError):
                await self._cluster.release(group_name(self.installation, key))

    def nudge(self) -> None:
        """Called at every change: releases the groups of ended attempts."""
        if self._held and not self._nudged:
            self._nudged = True
            self._agent_links.spawn(self._give_up())

    async def _give_up(self) -> None:
        self._nudged = False
        for key in self._agent_links.ledger.over() & self._held.keys():
            await self.release(key)

    async def want(self, bundles: list[tuple[Bundle, Mapping[str, str]]]) -> None:
        self._waiting = bundles
        await self._request()

    async def _watch(self) -> None:
        while True:
            busy = any(gang.wait is not None for gang in self._agent_links.ledger.gangs.values())
            with suppress(TimeoutError):
                await asyncio.wait_for(self._look_now.wait(), WAITING if busy else EVERY)
            self._look_now.clear()
            with suppress(RayError, OSError, RuntimeError):
                await self._look()

    async def _look(self) -> None:
        asked = set(self._held)
        found = await self._cluster.groups(group_prefix(self.installation))
        groups = {group_key(self.installation, name): group for name, group in found.items()}
        ledger = self._agent_links.ledger
        for gang in list(ledger.gangs.values()):
            if gang.wait is not None and gang.key in groups:
                self._update_wait(gang, groups[gang.key])
        known, over = ledger.known(), ledger.over()
        for key, group in groups.items():
            if group.state != REMOVED:
                self._held.setdefault(key, group.bundles)
                if key in over or (key not in known and (key in self._given_up or self._orphaned(key))):
                    await self.release(key)
            elif key in asked and key in self._held:
                del self._held[key]
                self.on_removed(key)
        self._given_up &= groups.keys()
        self._orphans = {key: since for key, since in self._orphans.items() if key in groups and key not in known}
        await self._request()

    def _orphaned(self, key: Key) -> bool:
        """Whether the group's attempt has been unknown for long; a server that was just started may still launch it."""
        return time.monotonic() - self._orphans.setdefault(key, time.monotonic()) > WITHHELD

    def _update_wait(self, gang: RayGang, group: Group) -> None:
        if group.state in ("CREATED", REMOVED):
            if group.state == REMOVED and gang.stop is None:
                gang.stop = (0.0, CANCELLED)
            gang.wait = None
            gang.placed.set()
            return
        found = (group.why or group.state, _sentence(gang, group))
        if gang.wait != found:
            gang.wait = found
            self._changed()

    async def _request(self) -> None:
        """Sends the request. Ray counts what is in use as part of a request, so it is included."""
        pairs: list[tuple[Bundle, Mapping[str, str]]] = []
        if self._waiting:
            pairs = [(bundle, {}) for bundles in self._held.values() for bundle in bundles] + self._waiting
        if (wanted := [bundle for bundle, _ in pairs]) != self._requested:
            self._requested = wanted
            await self._cluster.request(wanted, [labels for _, labels in pairs])


def _sentence(gang: RayGang, group: Group) -> str:
    amounts: dict[str, Any] = gang.bundles[0]
    each = ", ".join(f"{amount:g} {name}" for name, amount in amounts.items() if not name.startswith("node:"))
    where = ", ".join(dict.fromkeys(gang.names))
    if group.why == "INFEASIBLE":
        return f"Ray has no node that could hold {each} at {where}"
    return f"somebody else in Ray holds what it needs: {each} on each of {where}"
