"""A matrix in 8 bits, as it lies and transposed: products of 8 bits take both of their sides by rows."""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

from muster.train import kernels

LEAST: Final = 1e-30  # scale, of a tensor of zeros


def rounded_both(x: Tensor, kind: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """`x [rows, columns]` in 8 bits as [rows, columns] and as [columns, rows], and the scale that both have to be
    multiplied by, f32[]. A scale makes the largest value the largest of the format. A value that is not finite makes
    NaN of itself at least."""
    if kernels.usable and x.device.type == "cuda":
        found: tuple[Tensor, Tensor, Tensor] = _by_kernel(x, kind)
        return found
    most = torch.finfo(kind).max
    scale = (x.abs().amax().float() / most).clamp(min=LEAST)
    straight = (x.float() / scale).clamp(-most, most).to(kind).contiguous()
    return straight, straight.t().contiguous(), scale


@torch.library.custom_op("muster::rounded_both", mutates_args=(), device_types="cuda")
def _by_kernel(x: Tensor, kind: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    from muster.train.kernels.rounding_triton import rounded_both as rounded  # noqa: PLC0415 - needs Triton

    return rounded(x.contiguous(), kind, LEAST)


@_by_kernel.register_fake
def _(x: Tensor, kind: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    rows, columns = x.shape
    return (
        x.new_empty(rows, columns, dtype=kind),
        x.new_empty(columns, rows, dtype=kind),
        x.new_empty((), dtype=torch.float32),
    )
