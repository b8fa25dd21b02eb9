"""Trainings that need more memory than their accelerators have, as `muster plan` predicts it from the configuration."""

from __future__ import annotations

import posixpath
import shlex
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Final

from muster.control.admission.base import Context
from muster.control.admission.guarded import refusing
from muster.control.admission.inspected import MemoryNeed
from muster.core.reasons import Reason, reason
from muster.core.rules import GuardRule
from muster.core.spec import JobSpec, ranks_per_node
from muster.planner.catalogue import GIB
from muster.planner.catalogue import find as find_device
from muster.planner.search import predict
from muster.planner.setups import read_setup

_NAMED: Final = ("-m", "muster.train")


def find(spec: JobSpec, context: Context, rule: GuardRule) -> Reason | None:
    need = context.inspected.memory
    if need is None or need.bytes <= need.available:
        return None
    article = "an" if need.device[0] in "AEFHLMNRSX" else "a"
    amounts = f"{need.bytes / GIB:.0f} GiB of {need.available / GIB:.0f}"
    return reason(
        "too_little_memory",
        f"this will not fit {article} {need.device}: {need.config} needs {amounts}, as predicted",
        f"`muster plan {shlex.quote(need.config)}` says what would.",
        device=need.device, needs=int(need.bytes), available=int(need.available),
    )  # fmt: skip


def configuration(run: str) -> tuple[str, list[str]] | None:
    """The configuration's path and the settings of a command such as `python -m muster.train config.yaml data.batch=8`,
    with any launcher before it. None for another command, and where the shell decides what they are."""
    if "muster.train" not in run or "\n" in run.strip() or any(mark in run for mark in "$`*?;|&<>"):
        return None
    try:
        words = shlex.split(run)
    except ValueError:
        return None
    at = next((n for n, pair in enumerate(pairwise(words)) if pair == _NAMED), None)
    if at is None or len(words) <= at + 2:
        return None
    path, rest = posixpath.normpath(words[at + 2]), words[at + 3 :]
    if path.startswith(("/", "..", "-")) or any(word.startswith("-") or "=" not in word for word in rest):
        return None
    return path, rest


def memory_need(spec: JobSpec, path: str, text: str, overrides: list[str]) -> MemoryNeed | None:
    """None for what can't be predicted: an accelerator that is not in the catalogue, a task of the user's own, and a
    configuration with mistakes, which the job tells of itself."""
    resources = spec.resources
    device = find_device(resources.accelerator) if resources.share == 1000 else None
    if device is None:
        return None
    world = spec.num_nodes * ranks_per_node(spec)
    try:
        setup = read_setup(text, PurePosixPath(path).suffix, overrides)
        predicted = predict(setup, setup.layout(world), device)
    except (ValueError, TypeError, ArithmeticError, RecursionError):
        return None
    available = max(device.memory, resources.accelerator_memory or 0)
    return MemoryNeed(path, device.name, predicted.memory.total, available)


check = refusing("memory", find)
