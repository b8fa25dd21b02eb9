"""Describes this machine as nodes: its CPUs, memory and accelerators, as one node or split into logical nodes."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from typing import Final

from muster.core.errors import ConfigError
from muster.core.resources import Resources
from muster.engines.base import NodeInfo

CUDA_DEVICES: Final = "cuda_devices"  # label: the real GPUs of a node by their index on the machine, "0,1"

_VENDOR_WORDS: Final = {"NVIDIA", "TESLA", "GEFORCE", "QUADRO", "GRAPHICS", "DEVICE"}
_SMI_SECONDS: Final = 30.0  # the first call after boot may load the driver


def describe_machine(
    nodes: int = 1,
    accelerators: str | None = None,
    cpus: float | None = None,
    memory: int | None = None,
    pool: str = "local",
) -> list[NodeInfo]:
    """Logical nodes local-0, local-1, ... that share the machine evenly. Values given here apply to each node.

    A node has at least one CPU, or it would take no job: many nodes on a small machine share its CPUs.
    `accelerators` such as "H100:8" are logical, for experiments; "" means none. Without it, the GPUs that nvidia-smi
    finds are divided among the nodes, and each node's label lists its own.
    """
    if nodes < 1:
        raise ConfigError(f"The machine can't be split into {nodes} nodes.", "Ask for one or more.")
    kind, gpus = _real_gpus() if accelerators is None else ("", [])
    borders = [-(-len(gpus) * index // nodes) for index in range(nodes + 1)]  # each node gets adjacent GPUs
    shares = [gpus[start:end] for start, end in itertools.pairwise(borders)]
    logical = 0
    if accelerators is not None:
        kind, logical = _parse(accelerators)
    found = []
    for index, own in enumerate(shares):
        count = len(own) or logical
        resources = Resources(
            milli_cpus=int(1000 * (cpus if cpus is not None else max(_cpus() / nodes, 1.0))),
            memory=memory if memory is not None else _memory() // nodes,
            accelerators=count,
            accelerator=kind if count else "",
        )
        labels = {CUDA_DEVICES: ",".join(map(str, own))} if gpus else {}
        found.append(NodeInfo(f"local-{index}", pool, resources, labels))
    return found


def gpu_kind(product: str) -> str:
    """The accelerator name used in job files, from nvidia-smi's name: "NVIDIA H100 80GB HBM3" is an H100."""
    words = [w for w in product.replace("-", " ").split() if w.upper() not in _VENDOR_WORDS]
    if words and words[0].upper() in ("RTX", "GTX") and len(words) > 1:
        return words[0].upper() + words[1].upper()
    return words[0].upper() if words else "GPU"


def _parse(text: str) -> tuple[str, int]:
    if not text:
        return "", 0
    kind, colon, count = text.partition(":")
    if not kind or (colon and not count.isdigit()):
        raise ConfigError(f"accelerators: got {text!r}, expected a kind and a count.", 'Write it like "H100:8".')
    return kind.upper(), int(count) if colon else 1  # as in a job file, where case makes no difference


def _real_gpus() -> tuple[str, list[int]]:
    """The most frequent kind of GPU, and the indices of the GPUs of that kind."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return "", []
    command = [program, "--query-gpu=name", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_SMI_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return "", []  # installed, but the driver or the devices don't answer
    kinds = [gpu_kind(line) for line in done.stdout.splitlines() if line.strip()]
    if not kinds:
        return "", []
    kind = Counter(kinds).most_common(1)[0][0]
    return kind, [index for index, found in enumerate(kinds) if found == kind]


def _cpus() -> float:
    """The CPUs that this process may use, limited by its control group's quota."""
    cpus = float(len(os.sched_getaffinity(0)))
    quota = _cgroup("cpu.max").split()
    if len(quota) == 2 and quota[0] != "max":
        cpus = min(cpus, int(quota[0]) / int(quota[1]))
    return cpus


def _memory() -> int:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    limit = _cgroup("memory.max").strip()
    return min(memory, int(limit)) if limit.isdigit() else memory


def _cgroup(name: str) -> str:
    """A setting of the control group that a container sees as its root; empty if there is none."""
    try:
        return (Path("/sys/fs/cgroup") / name).read_text()
    except OSError:
        return ""
