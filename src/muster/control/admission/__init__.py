"""The admission checks that a job passes before it is accepted, in order. To add one: a file here and a line below."""

from __future__ import annotations

from muster.control.admission import (
    advisories,
    budget,
    capacity,
    certificate,
    command,
    engine,
    environments,
    images,
    isolation,
    leaks,
    limits,
    memory,
    output,
    parent,
    pools,
    priority,
    project,
    queue,
    quotas,
    required,
    secrets,
    start,
    topology,
    turns,
    workdir,
)
from muster.control.admission.base import Check, Context, Growth, Objections, Site
from muster.control.admission.files import Files

CHECKS: tuple[Check, ...] = (
    project.check,
    parent.check,
    start.check,
    quotas.check,
    queue.check,
    required.check,
    priority.check,
    pools.check,
    capacity.check,
    topology.check,
    engine.check,
    turns.check,
    limits.check,
    secrets.check,
    leaks.secrets,
    leaks.large_files,
    leaks.notebooks,
    output.check,
    isolation.check,
    workdir.check,
    command.check,
    images.check,
    environments.check,
    advisories.check,
    memory.check,
    budget.check,
    certificate.check,
)

# Checks that depend on the jobs there are, which every submission changes. The verdict of the others holds for equal
# submissions until nodes, rules, projects, queues or secrets change.
LIVE_CHECKS: tuple[Check, ...] = (parent.check, start.check, quotas.check, budget.check, certificate.check)

# Checks of the nodes and of what runs on them; a job without nodes does not need them.
NODE_CHECKS: frozenset[Check] = frozenset({
    pools.check, capacity.check, topology.check, engine.check, turns.check, limits.check, isolation.check,
    workdir.check, command.check, certificate.check, images.check, environments.check, advisories.check,
    memory.check,
})  # fmt: skip

# Checks of what the policy says. Their verdict on a job of the past needs no more than its spec.
RULE_CHECKS: tuple[Check, ...] = (required.check, pools.check, turns.check, limits.check, images.check, leaks.secrets)

__all__ = [
    "CHECKS",
    "LIVE_CHECKS",
    "NODE_CHECKS",
    "RULE_CHECKS",
    "Check",
    "Context",
    "Files",
    "Growth",
    "Objections",
    "Site",
]
