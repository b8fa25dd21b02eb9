"""The nodes of the cluster, and a link to the agent on each. Uses long polls, so that no poll returns without news."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from muster.engines.ray.cluster import PLAIN, Cluster, RayError, RayTaskError, RuntimeEnvSetupError, env_name
from muster.engines.ray.gangs import Ledger
from muster.engines.ray.nodes import has_resources, name_nodes
from muster.engines.ray.signing import BadSignature, SignedAgent, WrongKey, agent_key, authenticate

T = TypeVar("T")
POLL_SECONDS: Final = 20.0  # for which an agent keeps a poll open
AGAIN: Final = 0.3  # seconds before an agent that did not answer is called again, doubled each time
AGAIN_LAST: Final = 10.0
TROUBLE: Final = 4  # failures in a row after which the node is shown as suspect
IDLE: Final = 600.0  # idle seconds after which the agent of a job's own environment ends
CALLS_AT_ONCE: Final = 64


class NodeGone(Exception):
    """The node is no longer in the cluster."""


class BadEnvironment(Exception):
    """Ray could not create a job's runtime environment."""


@dataclass(slots=True)
class AgentLink:
    """The link to one agent. `ready` while the agent answers; `broken` says why it never will."""

    node: str
    name: str
    env: Mapping[str, Any] | None  # None: an existing agent was found, and it will report its own
    agent: SignedAgent | None = None
    ready: asyncio.Event = field(default_factory=asyncio.Event)
    broken: str = ""
    trouble: str = ""  # why it does not answer, if that continues
    failures: int = 0
    used_at: float = field(default_factory=time.monotonic)
    task: asyncio.Task[None] | None = None


class AgentLinks:
    """Holds what is known about the cluster, and calls `changed` when that changes."""

    def __init__(self, cluster: Cluster, changed: Callable[[], None]) -> None:
        self.ledger = Ledger()
        self.nodes: dict[str, dict[str, Any]] = {}
        self.answered_at = time.monotonic()
        self._cluster = cluster
        self._changed = changed
        self._agent_links: dict[tuple[str, str], AgentLink] = {}
        self._settings: dict[str, Any] = {}
        self._urls: list[str] = []
        self._certificate = ""
        self._names: dict[str, str] = {}  # of the nodes, by id
        self._look_now = asyncio.Event()
        self._busy = asyncio.Semaphore(CALLS_AT_ONCE)
        self._tasks: set[asyncio.Task[Any]] = set()

    async def open(self, settings: Mapping[str, Any], urls: list[str], certificate: str, every: float) -> None:
        self._settings, self._urls, self._certificate = dict(settings), urls, certificate
        there = await self._cluster.agents()
        self._names = await self._known_names([node for node, name in there if name == PLAIN])
        await self._look()
        for node, name in there:
            if node in self.nodes and (node, name) not in self._agent_links:
                self._begin(AgentLink(node, name, None))
        self.spawn(self._watch(every))  # before the wait: the head is polled while agents start
        await self._first_reports()

    async def _known_names(self, nodes: list[str]) -> dict[str, str]:
        """The names that the previous bridge gave to the nodes, as their agents know them."""

        async def ask(node: str) -> str:
            async with asyncio.timeout(POLL_SECONDS):
                found = await self._authenticate(await self._cluster.find_agent(node, PLAIN), node, PLAIN)
                return str((await found.ask("hello", self._urls, self._certificate))["node"])

        told = await asyncio.gather(*[ask(node) for node in nodes], return_exceptions=True)
        return {node: name for node, name in zip(nodes, told, strict=True) if isinstance(name, str)}

    def spawn(self, work: Any) -> asyncio.Task[Any]:
        task: asyncio.Task[Any] = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def described(self) -> list[dict[str, Any]]:
        """Every node, with its agent's trouble."""
        plain = {node: self._agent_links.get((node, PLAIN)) for node in self.nodes}
        return [
            {**about, "trouble": link.trouble if (link := plain[node]) else ""} for node, about in self.nodes.items()
        ]

    async def order(self, node: str, env: Mapping[str, Any] | str, method: str, *given: Any) -> Any:
        """Calls an agent until it answers. Raises NodeGone, BadEnvironment, or what the agent raised."""
        while True:
            link = self._link_to(node, env)
            await self._when_ready(link)
            assert link.agent is not None
            try:
                async with self._busy:
                    return await link.agent.ask(method, *given)
            except RayError as error:
                if isinstance(error, RayTaskError) and not isinstance(
                    error.cause, BadSignature
                ):  # the agent's own error
                    raise error.cause from error
                self._look_now.set()
                await asyncio.sleep(AGAIN)

    async def probe(self, node: str, mark: str, write: str) -> dict[str, Any]:
        result: dict[str, Any] = await self.order(node, {}, "probe", mark, write)
        return result

    # --- nodes --------------------------------------------------------------------------------------------------------
    async def _watch(self, every: float) -> None:
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._look_now.wait(), every)
            self._look_now.clear()
            with suppress(RayError, OSError, RuntimeError):  # `answered_at` shows for how long
                await self._look()
            self._dismiss_idle()

    async def _look(self) -> None:
        found = {node["id"]: node for node in await self._cluster.nodes()}
        self.answered_at = time.monotonic()
        self._names = name_nodes(
            {key: node for key, node in found.items() if has_resources(node["resources"])}, self._names
        )
        for node_id, node in found.items():
            node["name"] = self._names.get(node_id, node["ip"])
        before, self.nodes = self.nodes, found
        for node_id in before.keys() - found.keys():
            self._lose(node_id, str(before[node_id]["name"]))
        for node_id in found.keys() - before.keys():
            if not has_resources(found[node_id]["resources"]):
                continue
            if (node_id, PLAIN) not in self._agent_links:
                self._begin(AgentLink(node_id, PLAIN, {}))
            if found[node_id]["resources"].get("GPU"):
                self.spawn(_quietly(self._cluster.warm(node_id)))
        if before != found:
            self._changed()

    def _lose(self, node: str, name: str) -> None:
        for key in [key for key in self._agent_links if key[0] == node]:
            link = self._agent_links.pop(key)
            link.broken = "gone"
            link.ready.set()
            if link.task is not None:
                link.task.cancel()
        self.ledger.lose_node(node, name)

    # --- agents -------------------------------------------------------------------------------------------------------
    def _link_to(self, node: str, env: Mapping[str, Any] | str) -> AgentLink:
        if node not in self.nodes:
            raise NodeGone(node)
        name = env if isinstance(env, str) else env_name(env)
        link = self._agent_links.get((node, name))
        if link is None or (link.broken and link.task is not None and link.task.done()):
            link = self._begin(AgentLink(node, name, None if isinstance(env, str) else env))
        if link.env is None and not isinstance(env, str):
            link.env = env  # the actor that was found may not be an agent
        link.used_at = time.monotonic()
        return link

    def _begin(self, link: AgentLink) -> AgentLink:
        self._agent_links[link.node, link.name] = link
        link.task = self.spawn(self._attend(link))
        return link

    async def _when_ready(self, link: AgentLink) -> None:
        await link.ready.wait()
        if link.node not in self.nodes:
            raise NodeGone(link.node)
        if link.broken:
            raise BadEnvironment(link.broken)

    async def _first_reports(self) -> None:
        """Waits for the agents' first reports, so that the first look is complete;
        does not wait for agents that can't report."""
        waits = [asyncio.create_task(link.ready.wait()) for link in self._agent_links.values()]
        if waits:
            await asyncio.wait(waits, timeout=POLL_SECONDS)
            for wait in waits:
                wait.cancel()

    async def _attend(self, link: AgentLink) -> None:
        """Keeps the link to the agent for as long as the node lives."""
        while link.node in self.nodes:
            try:
                await self._greet(link)
                await self._listen(link)
            except RuntimeEnvSetupError as error:
                link.broken = str(error)
                link.ready.set()
                return
            except Exception as error:  # the agent died, is being restarted, or lost its name
                link.ready.clear()
                link.failures += 1
                self._look_now.set()
                if link.failures >= TROUBLE and link.name == PLAIN:
                    link.trouble = (
                        f"the agent does not start: {(str(error) or repr(error)).strip().splitlines()[-1][:300]}"
                    )
                    self._changed()
                await asyncio.sleep(min(AGAIN * 2 ** (link.failures - 1), AGAIN_LAST))

    async def _greet(self, link: AgentLink) -> None:
        """Finds or creates the agent. An actor with the agent's name but not its key,
        or with another version of Muster, is replaced; its launchers keep running."""
        handle = await self._agent(link)
        try:
            found = await self._authenticate(handle, link.node, link.name)
        except (WrongKey, AttributeError) as error:
            link.env = await _reported_env(handle, link) if isinstance(error, AttributeError) else link.env
            link.env = {} if link.name == PLAIN else link.env
            await self._cluster.kill(handle)
            raise WrongKey(f"replaced: {error}") from error
        about = await found.ask("hello", self._urls, self._certificate)
        link.env = about["env"]
        if about["package"] != self._settings["package"]:
            await self._cluster.kill(handle)
            raise KeyError("replaced")
        link.agent = found

    async def _authenticate(self, handle: Any, node: str, name: str) -> SignedAgent:
        """Raises Stranger, or AttributeError for an agent of a version without keys."""
        return await authenticate(handle, agent_key(self._settings["key"], node, name))

    async def _agent(self, link: AgentLink) -> Any:
        if link.env is None:
            return await self._cluster.find_agent(link.node, link.name)
        node = self.nodes[link.node]
        settings = {**self._settings, "node": node["name"], "address": node["ip"], "env": dict(link.env)}
        settings["key"] = agent_key(self._settings["key"], link.node, link.name)
        return await self._cluster.agent(link.node, link.name, settings)

    async def _listen(self, link: AgentLink) -> None:
        seen, link.failures, link.trouble = 0, 0, ""
        assert link.agent is not None
        while True:
            number, reports = await link.agent.ask("poll", seen, POLL_SECONDS)
            if number != seen:
                self.ledger.record_reports((link.node, link.name), reports)
                self._changed()
            seen = number
            link.ready.set()

    def _dismiss_idle(self) -> None:
        for key, link in list(self._agent_links.items()):
            if link.name == PLAIN or self.ledger.busy(key):
                link.used_at = time.monotonic()
            elif time.monotonic() - link.used_at > IDLE and link.agent is not None and link.task is not None:
                del self._agent_links[key]
                link.task.cancel()
                self.spawn(_quietly(self._cluster.kill(link.agent.handle)))


async def _reported_env(handle: Any, link: AgentLink) -> Mapping[str, Any] | None:
    """The environment of an agent of a version without keys, as it reports it; its name is derived from it."""
    try:
        found: Mapping[str, Any] = (await handle.hello.remote([], ""))["env"]
    except (RayError, AttributeError, KeyError, TypeError):
        return link.env
    return found if env_name(found) == link.name else link.env


async def _quietly(work: Awaitable[T]) -> None:
    with suppress(RayError, ValueError):
        await work
