"""The admission checks that a job passes before it is accepted, in order. To add one: a file here and a line below."""

from __future__ import annotations

from muster.control.admission import (
    capacity,
    command,
    engine,
    isolation,
    limits,
    output,
    parent,
    pools,
    priority,
    project,
    queue,
    quotas,
    required,
    secrets,
    topology,
    turns,
    workdir,
)
from muster.control.admission.base import Check, Context, Growth, Objections, Site
from muster.control.admission.files import Files

CHECKS: tuple[Check, ...] = (
    project.check,
    parent.check,
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
    output.check,
    isolation.check,
    workdir.check,
    command.check,
)

# Checks that depend on the jobs there are, which every submission changes. The verdict of the others holds for equal
# submissions until nodes, rules, projects, queues or secrets change.
LIVE_CHECKS: tuple[Check, ...] = (parent.check, quotas.check)

# Checks of the nodes and of what runs on them; a job without nodes does not need them.
NODE_CHECKS: frozenset[Check] = frozenset({
    pools.check, capacity.check, topology.check, engine.check, turns.check, limits.check, isolation.check,
    workdir.check, command.check,
})  # fmt: skip

__all__ = ["CHECKS", "LIVE_CHECKS", "NODE_CHECKS", "Check", "Context", "Files", "Growth", "Objections", "Site"]
