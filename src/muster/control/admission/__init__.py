"""The checks that a job passes before it is accepted, in order. A new one: a file here and a line below."""

from __future__ import annotations

from muster.control.admission import (
    capacity,
    command,
    isolation,
    limits,
    pools,
    priority,
    project,
    queue,
    required,
    secrets,
    topology,
    turns,
    workdir,
)
from muster.control.admission.base import Check, Context, Growth

CHECKS: tuple[Check, ...] = (
    project.check,
    queue.check,
    required.check,
    priority.check,
    pools.check,
    capacity.check,
    topology.check,
    turns.check,
    limits.check,
    secrets.check,
    isolation.check,
    workdir.check,
    command.check,
)

__all__ = ["CHECKS", "Check", "Context", "Growth"]
