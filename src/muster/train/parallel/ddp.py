"""Data parallelism (DDP): a replica on each process; gradients are reduced in buckets during the backward pass."""

from __future__ import annotations

import inspect
import warnings
from typing import Any, Final

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from muster.train.mesh import Mesh
from muster.train.parallel.settings import ParallelSettings

# With `exact`: otherwise DDP orders its buckets anew after the first step of a process. Then the first step of a
# resumed run would add up over more than two ranks in another order than the straight one. DDP finds the look needless.
_LOOKS: Final = "find_unused_parameters=True was specified in DDP constructor, but did not find any unused parameters"
warnings.filterwarnings("ignore", _LOOKS, UserWarning)

# Buffers don't change in training, so they are not sent with each forward. The option was renamed after torch 2.11.
_NAMES: Final = inspect.signature(DistributedDataParallel.__init__).parameters
_KEEP_BUFFERS: Final[dict[str, Any]] = {
    "forward_sync_buffers" if "forward_sync_buffers" in _NAMES else "broadcast_buffers": False
}


def replicate(module: nn.Module, mesh: Mesh, settings: ParallelSettings) -> DistributedDataParallel:
    """The module as a replica over `dp`. The first replica sends its weights once."""
    return DistributedDataParallel(
        module,
        device_ids=[mesh.device] if mesh.device.type == "cuda" else None,
        process_group=mesh.group("dp"),
        bucket_cap_mb=settings.bucket_mb,
        gradient_as_bucket_view=True,
        find_unused_parameters=torch.are_deterministic_algorithms_enabled(),
        **_KEEP_BUFFERS,
    )
