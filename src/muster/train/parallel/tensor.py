"""Tensor parallelism: splits each matrix by columns or rows over `tp`, by the model's own plan."""

from __future__ import annotations

from torch import nn
from torch.distributed.tensor.parallel import parallelize_module

from muster.train.mesh import Mesh
from muster.train.models.parts import divisible
from muster.train.parallel.settings import ParallelSettings


def split(module: nn.Module, mesh: Mesh, settings: ParallelSettings) -> None:
    """Splits the module's parameters over `tp` in place."""
    known = divisible(module)
    assert known is not None, "checked before"
    # None: all ranks already have the same weights, so none are sent.
    parallelize_module(module, mesh.sub("tp"), known.tensor_plan(settings.sequence), src_data_rank=None)
    known.tie()
