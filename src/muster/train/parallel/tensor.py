"""Tensor parallel: each matrix in columns or rows over `tp`, by the model's own plan."""

from __future__ import annotations

from typing import Final, cast

from torch import nn
from torch.distributed.tensor.parallel import parallelize_module

from muster.train.mesh import Mesh
from muster.train.models.parts import Divisible
from muster.train.parallel.settings import ParallelSettings

_ASKED: Final = ("stage", "tensor_plan", "tie", "check")


def divisible(model: nn.Module) -> Divisible | None:
    """The model as a `Divisible`, where it offers what that asks for.

    From Python 3.12 on `isinstance` does not see a module's submodules, and `blocks` is one.
    """
    has_blocks = isinstance(getattr(model, "blocks", None), nn.ModuleDict)
    return cast(Divisible, model) if has_blocks and all(hasattr(model, name) for name in _ASKED) else None


def split(module: nn.Module, mesh: Mesh, settings: ParallelSettings) -> None:
    """Splits the module's parameters over `tp` in place."""
    known = divisible(module)
    assert known is not None, "checked before"
    # None: every rank holds the same weights already, so none are sent.
    parallelize_module(module, mesh.sub("tp"), known.tensor_plan(settings.sequence), src_data_rank=None)
    known.tie()
