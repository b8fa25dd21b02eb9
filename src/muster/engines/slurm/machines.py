"""Slurm's nodes as Muster's nodes: `machine` entries to show and drain, and `slot` entries to queue in."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from muster.core.resources import Resources
from muster.core.units import ANY_ACCELERATOR
from muster.engines.base import Health, NodeInfo
from muster.engines.slurm.model import MachineRow, PartitionRow, count_gpus, gpus_of
from muster.engines.slurm.settings import PoolSettings

SPARE: Final = 8  # minimum number of slots beyond the machines, so that a small cluster has a queue too
_MIB: Final = 1 << 20
_BAD: Final = frozenset(
    {"DOWN", "FAIL", "FAILING", "ERROR", "NOT_RESPONDING", "UNKNOWN", "INVAL", "INVALID_REG", "FUTURE"}
)
_LEAVING: Final = frozenset({"DRAIN", "DRAINED", "DRAINING", "MAINT", "MAINTENANCE", "PLANNED_MAINT", "REBOOT_ISSUED",
                             "REBOOT_REQUESTED", "REBOOT", "BLOCKED"})  # fmt: skip


def pools_of(partitions: Sequence[PartitionRow], given: Mapping[str, PoolSettings]) -> dict[str, PoolSettings]:
    """The pools of the settings, or else one pool per partition, the default partition first."""
    if given:
        return dict(given)
    ordered = sorted(partitions, key=lambda partition: not partition.default)
    return {pool_name(partition.name): PoolSettings(partition.name) for partition in ordered}


def pool_name(partition: str) -> str:
    return re.sub(r"[^a-z0-9-]+", "-", partition.lower()).strip("-") or "slurm"


def node_infos(
    machines: Sequence[MachineRow], pools: Mapping[str, PoolSettings], depth: float, switch: str = ""
) -> list[NodeInfo]:
    """Every machine once, in the first of its pools, and each pool's slots, which take their sizes from its machines in
    turn.

    `switch` is the topology level that Slurm itself takes care of: all slots of a pool share it.
    """
    found: list[NodeInfo] = []
    taken: set[str] = set()
    for pool, settings in pools.items():
        members = [machine for machine in machines if settings.partition in machine.partitions]
        if not members:
            continue
        for machine in members:
            if machine.name not in taken:
                taken.add(machine.name)
                also = [name for name, other in pools.items() if other.partition in machine.partitions and name != pool]
                found.append(replace(_machine(machine, pool, settings), also=tuple(also)))
        for number in range(max(math.ceil(depth * len(members)), len(members) + SPARE)):
            like = resources_of(members[number % len(members)], settings)
            labels = {"slurm.partition": settings.partition, **({switch: pool} if switch else {})}
            found.append(NodeInfo(f"{pool}/{number + 1}", pool, like, labels, role="slot", machines=len(members)))
    return found


def resources_of(machine: MachineRow, settings: PoolSettings) -> Resources:
    gpus = gpus_of(machine.gres)
    count = count_gpus(machine.gres)
    kind = settings.accelerator or next((kind.upper() for kind, _ in gpus if kind), ANY_ACCELERATOR)
    return Resources(machine.cpus * 1000, machine.memory * _MIB, count, kind if count else "")


def health_of(machine: MachineRow) -> tuple[Health, str]:
    """A machine's health. A machine that Slurm has powered down counts as healthy: it is powered up when needed."""
    states = set(machine.states)
    said = f"Slurm: {'+'.join(machine.states)}" + (f", {machine.reason}" if machine.reason else "")
    if states & _BAD:
        return "suspect", said
    if states & _LEAVING:
        return "draining", said
    return "healthy", ""


def _machine(machine: MachineRow, pool: str, settings: PoolSettings) -> NodeInfo:
    health, why = health_of(machine)
    total = resources_of(machine, settings)
    used = Resources(machine.used_cpus * 1000, machine.used_memory * _MIB, machine.used_gpus, total.accelerator)
    labels = {f"slurm.feature.{name}": "yes" for name in machine.features}
    labels["slurm.partitions"] = ",".join(machine.partitions)
    return NodeInfo(machine.name, pool, total, labels, "machine", health, why, used)
