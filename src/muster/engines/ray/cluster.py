"""The Ray cluster as the bridge uses it: every call into Ray stands here, and none of them keeps the others waiting."""

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
RESERVE_SECONDS: Final = 2.0  # that a new placement group is waited for; later it is looked at with all others
CALLS: Final = 32  # at the same time, in an agent
THREADS: Final = 16
PLAIN: Final = "plain"  # the agent without an environment of a job's own
_PREFIX: Final = "muster-agent"

__all__ = ["NODE_ID", "PLAIN", "Cluster", "Group", "RayError", "RayTaskError", "RuntimeEnvSetupError", "env_name"]


@dataclass(frozen=True, slots=True)
class Group:
    """A placement group as Ray's own table shows it."""

    name: str
    state: str  # PENDING, PREPARED, CREATED, RESCHEDULING, REMOVED
    why: str  # Ray's word for what keeps it pending
    bundles: list[dict[str, float]]


class Cluster:
    """A connection to Ray: call `connect` first. Calls that may take time are made by threads."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, "ray")
        self._package = ""  # where Ray has the shipped package
        self._namespace = ""
        self.gcs = ""

    def connect(self, address: str, namespace: str, package: str) -> dict[str, Any]:
        """`package`: the folder that holds `muster`."""
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
        """Every node that lives, in one call."""
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
        """Node and environment of every agent that there is."""
        found = await self.call(lambda: list_named_actors())
        parts = [name.split(":") for name in found if name.startswith(f"{_PREFIX}:")]
        return [(part[1], part[2]) for part in parts if len(part) == 3]

    async def find_agent(self, node: str, name: str) -> Any:
        return await self.call(ray.get_actor, f"{_PREFIX}:{node}:{name}", self._namespace)

    async def agent(self, node: str, name: str, settings: Mapping[str, Any]) -> Any:
        """The agent of a node for one environment, made where there is none."""
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
        """The launchers stay."""
        await self.call(lambda: ray.kill(agent, no_restart=True))

    # --- placement groups ---------------------------------------------------------------------------------------------
    async def groups(self, prefix: str) -> dict[str, Group]:
        """Those of this Muster, in one call, by name."""
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
        """All or nothing, each bundle on its node; whether it is there by now. The same name is the same group."""

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
        """Which accelerators of the node Ray keeps for a bundle: only work inside the group is told."""

        def ask() -> Any:
            strategy = PlacementGroupSchedulingStrategy(get_placement_group(name), placement_group_bundle_index=index)
            return _accelerators.options(num_gpus=count, scheduling_strategy=strategy).remote()

        found = await (await self.call(ask))
        return tuple(int(device) for device in found)

    async def warm(self, node: str) -> None:
        """Has a process ready on the node for `devices`: the first takes seconds."""
        strategy = NodeAffinitySchedulingStrategy(node, soft=False)
        await _accelerators.options(scheduling_strategy=strategy).remote()

    async def request(self, bundles: Sequence[Mapping[str, float]], labels: Sequence[Mapping[str, str]]) -> None:
        """Has the autoscaler make room for all of these at once."""
        given = [dict(bundle) for bundle in bundles]
        await self.call(lambda: request_resources(bundles=given, bundle_label_selectors=[dict(one) for one in labels]))


def env_name(env: Mapping[str, Any]) -> str:
    """A short name of a runtime environment: the same for the same content."""
    if not env:
        return PLAIN
    return hashlib.sha256(json.dumps(env, sort_keys=True).encode()).hexdigest()[:12]


@ray.remote(num_cpus=0, max_retries=2)  # type: ignore[untyped-decorator, unused-ignore]
def _accelerators() -> list[int]:
    return [int(device) for device in ray.get_gpu_ids()]
