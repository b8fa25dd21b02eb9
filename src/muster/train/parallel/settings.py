"""The section `parallel` of a configuration: how the mesh is used."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from muster.train.settings import bounded


@dataclass(frozen=True)
class ParallelSettings:
    """How a model is divided and run. The sizes of the mesh are in `Layout`."""

    sequence: bool = False  # tp: activations between the products are split over the sequence
    schedule: Literal["gpipe", "1f1b", "interleaved"] = "1f1b"  # pp
    virtual: int = bounded(2, low=2)  # pp, interleaved: stages on each process
    checkpointing: Literal["none", "selective", "full"] = "none"  # blocks that are recomputed in the backward pass
    compile: bool = False  # torch.compile, block by block
    reshard: bool = True  # fsdp: free a block's weights after its forward, gather them again for its backward
    defer_reduce: bool = False  # fsdp: reduce once per step, not per micro-batch: less traffic, more memory
    offload: bool = False  # fsdp: weights, gradients and optimizer state are in host memory
    bucket_mb: int = bounded(25, low=1)  # dp: bytes of gradients per reduction, MiB
