"""The bridge's lines to agents, with a cluster whose agents do not come up."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from muster.engines.ray import agent_links
from muster.engines.ray.agent_links import AgentLinks
from muster.engines.ray.cluster import Cluster


class _Slow(Cluster):
    """Its head answers at once; its agents never do."""

    looks = 0

    async def agents(self) -> list[tuple[str, str]]:
        return []

    async def nodes(self) -> list[dict[str, Any]]:
        self.looks += 1
        return [{"id": "n1", "ip": "127.0.0.1", "host": "n1", "resources": {"CPU": 1.0}, "labels": {}}]

    async def agent(self, *given: Any) -> Any:
        await asyncio.Event().wait()


def test_the_head_is_asked_while_slow_agents_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a connection that took as long as a silence may last was taken for a head that is away."""
    monkeypatch.setattr(agent_links, "POLL_SECONDS", 1.0)

    async def connect() -> int:
        cluster = _Slow()
        made = AgentLinks(cluster, lambda: None)
        await made.open({"package": "", "installation": "i"}, [], "", 0.05)
        return cluster.looks

    assert asyncio.run(connect()) > 1
