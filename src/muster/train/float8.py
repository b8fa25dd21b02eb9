"""Products in 8 bits: the linear layers of blocks, with a scale for each tensor that is found anew in every step.

Inputs and weights are rounded to e4m3 (4 bits of exponent, 3 of mantissa) and gradients to e5m2, which has more range.
A scale makes the largest value of a tensor the largest of the format. Parameters and their gradients stay in float32,
and the result of a product is bfloat16. Attention, norms and the head are as in bf16.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from muster.train.kernels.rounding import rounded_both

FORWARD: Final = torch.float8_e4m3fn
BACKWARD: Final = torch.float8_e5m2
MULTIPLE: Final = 16  # the kernels take matrices whose sizes are multiples of this
CAPABILITY: Final = (8, 9)  # the least: L4, L40S, H100 and later


class Float8Linear(nn.Linear):
    """A linear layer whose three products (forward, and both of backward) are made in 8 bits."""

    def forward(self, x: Tensor) -> Tensor:
        rows = x.reshape(-1, self.in_features)
        count = rows.shape[0]
        if count % MULTIPLE:
            rows = F.pad(rows, (0, 0, 0, -count % MULTIPLE))  # zeros add nothing to a product
        out: Tensor = _Product.apply(rows, self.weight)  # type: ignore[no-untyped-call]
        if self.bias is not None:
            out = out + self.bias.to(out.dtype)
        return out[:count].reshape(*x.shape[:-1], self.out_features)


def use_float8(blocks: Sequence[nn.Module]) -> int:
    """Makes the linear layers of the blocks `Float8Linear`, in place. Returns how many are; their parameters stay."""
    count = 0
    for block in blocks:
        for module in block.modules():
            if type(module) is nn.Linear and not (module.in_features % MULTIPLE or module.out_features % MULTIPLE):
                module.__class__ = Float8Linear
                count += 1
    return count


class _Product(torch.autograd.Function):
    """`x [rows, in] @ weight [out, in]` transposed, in bfloat16. What it keeps for backward has 8 bits, too."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        given, given_turned, given_scale = rounded_both(x, FORWARD)
        by, by_turned, by_scale = rounded_both(weight, FORWARD)
        ctx.save_for_backward(given_turned, given_scale, by_turned, by_scale)
        ctx.types = x.dtype, weight.dtype
        return _multiplied(given, given_scale, by, by_scale, fast=True)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        x_turned, x_scale, weight_turned, weight_scale = ctx.saved_tensors
        back, back_turned, scale = rounded_both(grad, BACKWARD)
        of_x = _multiplied(back, scale, weight_turned, weight_scale)
        of_weight = _multiplied(back_turned, scale, x_turned, x_scale)
        return of_x.to(ctx.types[0]), of_weight.to(ctx.types[1])


def _multiplied(a: Tensor, a_scale: Tensor, b: Tensor, b_scale: Tensor, fast: bool = False) -> Tensor:
    """`a [m, k] @ b [n, k]` transposed. `fast`: sums in fewer bits, which is enough forward (as in NVIDIA's own
    recipes)."""
    return torch._scaled_mm(a, b.t(), scale_a=a_scale, scale_b=b_scale, out_dtype=torch.bfloat16, use_fast_accum=fast)
