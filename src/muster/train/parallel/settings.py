"""The section `parallel` of a configuration: how the mesh is used, beside how large it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from muster.train.settings import bounded


@dataclass(frozen=True)
class ParallelSettings:
    """How a model is divided and run. The sizes of the mesh are in `Layout`."""

    sequence: bool = False  # tp: what lies between the products is split over the sequence
    schedule: Literal["gpipe", "1f1b", "interleaved"] = "1f1b"  # pp
    virtual: int = bounded(2, low=2)  # pp, interleaved: stages on each process
    checkpointing: Literal["none", "selective", "full"] = "none"  # blocks computed again for the backward pass
    compile: bool = False  # torch.compile, block by block
    reshard: bool = True  # fsdp: free a block's weights after its forward, gather them again for its backward
    defer_reduce: bool = False  # fsdp: reduce once a step, not once a micro-batch: fewer messages, whole gradients kept
    offload: bool = False  # fsdp: weights, gradients and optimizer state live in host memory
    bucket_mb: int = bounded(25, low=1)  # dp: gradients that one reduction takes, MiB
