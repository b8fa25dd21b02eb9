"""The bridge's interface to the Ray cluster: every call into Ray is here, and no call blocks another."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import ray
from ray.autoscaler.sdk import request_resources
from ray.exceptions import RayError, RayTaskError, RuntimeEnvSetupError
from ray.util import get_placement_group, list_named_actors
from ray.util.placement_group import placement_group, placement_group_table, remove_placement_group
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy

from muster.engines.ray.agent import Agent

NODE_ID: Final = "ray.io/node-id"  # label that Ray gives every node
RESERVE_SECONDS: Final = 2.0  # to wait for a new placement group; after that it is checked together with all others
CALLS: Final = 32  # concurrent calls in an agent
THREADS: Final = 16
PLAIN: Final = "plain"  # the agent without a job's own environment
_PREFIX: Final = "muster-agent"

__all__ = ["NODE_ID", "PLAIN", "Cluster", "Group", "RayError", "RayTaskError", "RuntimeEnvSetupError", "env_name"]


@dataclass(frozen=True, slots=True)
class Group:
    """A placement group, as in Ray's own table."""

    name: str
    state: str  # PENDING, PREPARED, CREATED, RESCHEDULING, REMOVED
    why: str  # Ray's reason why it is pending
    bundles: list[dict[str, float]]


class Cluster:
    """A connection to Ray: call `connect` first. Calls that may take time run in threads."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, "ray")
        self._package = ""  # URI of the shipped package in Ray
        self._namespace = ""
        self.gcs = ""

    def connect(self, address: str, namespace: str, package: str) -> dict[str, Any]:
        """Connects. `package`: the folder that contains `muster`."""
        ray.init(
            address=address,
            namespace=namespace,
            log_to_driver=False,
            configure_logging=False,
            runtime_env={"py_modules": [str(Path(package) / "muster")]},
        )
        self._namespace = namespace
        about = ray.get_runtime_context()
        self._package, self.gcs = about.runtime_env["py_modules"][0], about.gcs_address
        return {"address": self.gcs, "version": ray.__version__}

    async def call(self, what: Callable[..., Any], *given: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._threads, what, *given)

    async def nodes(self) -> list[dict[str, Any]]:
        """Every live node, in one call."""
        found = await self.call(ray.nodes)
        return [
            {
                "id": node["NodeID"],
                "ip": node["NodeManagerAddress"],
                "host": node["NodeManagerHostname"],
                "resources": {k: v for k, v in node["Resources"].items() if isinstance(v, int | float)},
                "labels": dict(node["Labels"]),
            }
            for node in found
            if node["Alive"]
        ]

    # --- agents -------------------------------------------------------------------------------------------------------
    async def agents(self) -> list[tuple[str, str]]:
        """Node and environment name of every existing agent."""
        found = await self.call(lambda: list_named_actors())
        parts = [name.split(":") for name in found if name.startswith(f"{_PREFIX}:")]
        return [(part[1], part[2]) for part in parts if len(part) == 3]

    async def find_agent(self, node: str, name: str) -> Any:
        return await self.call(ray.get_actor, f"{_PREFIX}:{node}:{name}", self._namespace)

    async def agent(self, node: str, name: str, settings: Mapping[str, Any]) -> Any:
        """The agent of a node for one environment, created if there is none."""
        given = dict(settings["env"])
        env = {**given, "py_modules": [*given.get("py_modules", ()), self._package]}

        def make() -> Any:
            options = {
                "name": f"{_PREFIX}:{node}:{name}",
                "namespace": self._namespace,
                "lifetime": "detached",
                "get_if_exists": True,
                "num_cpus": 0,
                "max_restarts": -1,
                "max_task_retries": 0,
                "max_concurrency": CALLS,
                "scheduling_strategy": NodeAffinitySchedulingStrategy(node, soft=False),
                "runtime_env": env,
            }
            return ray.remote(Agent).options(**options).remote({**settings, "name": name})

        return await self.call(make)

    async def kill(self, agent: Any) -> None:
        """Ends an agent; its launchers keep running."""
        await self.call(lambda: ray.kill(agent, no_restart=True))

    # --- placement groups ---------------------------------------------------------------------------------------------
    async def groups(self, prefix: str) -> dict[str, Group]:
        """The placement groups of this Muster by name, in one call."""
        table = await self.call(placement_group_table)
        found = [entry for entry in table.values() if entry["name"].startswith(prefix)]
        found.sort(key=lambda entry: entry["state"] != "REMOVED")  # a name may have been used before
        return {
            entry["name"]: Group(
                entry["name"],
                entry["state"],
                str(entry["stats"].get("scheduling_state", "")),
                list(entry["bundles"].values()),
            )
            for entry in found
        }

    async def reserve(self, name: str, bundles: Sequence[Mapping[str, float]], nodes: Sequence[str]) -> bool:
        """Reserves all bundles or none, each on its node; returns whether they are reserved yet.
        Equal names are one group."""

        def make() -> bool:
            try:
                group = get_placement_group(name)
            except ValueError:
                group = placement_group(
                    [dict(bundle) for bundle in bundles],
                    strategy="PACK",
                    name=name,
                    lifetime="detached",
                    bundle_label_selector=[{NODE_ID: node} for node in nodes],
                )
            return bool(group.wait(RESERVE_SECONDS))

        return bool(await self.call(make))

    async def release(self, name: str) -> None:
        def remove() -> None:
            try:
                remove_placement_group(get_placement_group(name))
            except ValueError:
                pass  # it is gone already

        await self.call(remove)

    async def devices(self, name: str, index: int, count: float) -> tuple[int, ...]:
        """The node's accelerators that Ray keeps for a bundle; only a task inside the group can find out."""

        def ask() -> Any:
            strategy = PlacementGroupSchedulingStrategy(get_placement_group(name), placement_group_bundle_index=index)
            return _accelerators.options(num_gpus=count, scheduling_strategy=strategy).remote()

        found = await (await self.call(ask))
        return tuple(int(device) for device in found)

    async def warm(self, node: str) -> None:
        """Starts a process on the node for `devices`, because the first one takes seconds."""
        strategy = NodeAffinitySchedulingStrategy(node, soft=False)
        await _accelerators.options(scheduling_strategy=strategy).remote()

    async def request(self, bundles: Sequence[Mapping[str, float]], labels: Sequence[Mapping[str, str]]) -> None:
        """Asks the autoscaler for room for all of these at once."""
        given = [dict(bundle) for bundle in bundles]
        await self.call(lambda: request_resources(bundles=given, bundle_label_selectors=[dict(one) for one in labels]))


def env_name(env: Mapping[str, Any]) -> str:
    """A short name of a runtime environment, derived from its content."""
    if not env:
        return PLAIN
    return hashlib.sha256(json.dumps(env, sort_keys=True).encode()).hexdigest()[:12]


@ray.remote(num_cpus=0, max_retries=2)  # type: ignore[untyped-decorator, unused-ignore]
def _accelerators() -> list[int]:
    return [int(device) for device in ray.get_gpu_ids()]
