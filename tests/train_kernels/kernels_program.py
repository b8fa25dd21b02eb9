"""Run by the tests with Triton's interpreter, which computes the kernels on a CPU; prints what it found as JSON."""

from __future__ import annotations

import json
import sys

import torch
from torch import Tensor

from muster.train import kernels
from muster.train.kernels import attention_triton, rounding_triton

LEAST = 1e-30


def attention(batch: int, heads: int, kv_heads: int, tokens: int, width: int, at_once: int) -> dict[str, object]:
    """Errors of the gradients relative to those of autograd. `at_once`: heads of keys in one go."""
    draw = torch.Generator().manual_seed(1)

    def made(count: int) -> Tensor:
        return torch.randn(batch, tokens, count, width, generator=draw).transpose(1, 2).requires_grad_()

    q, k, v, grad = made(heads), made(kv_heads), made(kv_heads), made(heads).detach()
    groups = heads // kv_heads
    scores = q @ k.repeat_interleave(groups, 1).transpose(-1, -2) * width**-0.5
    scores = scores.masked_fill(~torch.ones(tokens, tokens, dtype=torch.bool).tril(), -torch.inf)
    out = scores.softmax(-1) @ v.repeat_interleave(groups, 1)
    true = torch.autograd.grad(out, (q, k, v), grad)
    kernels.scores_most = at_once * groups * tokens * tokens * 4
    given = [each.detach() for each in (grad, q, k, v, out, scores.logsumexp(-1))]
    found, again = (attention_triton.causal_attention_backward(*given) for _ in range(2))
    return {
        "errors": [float((a - b).norm() / b.norm()) for a, b in zip(found, true, strict=True)],
        "strides": all(a.stride() == b.stride() for a, b in zip(found, (q, k, v), strict=True)),
        "repeats": all(torch.equal(a, b) for a, b in zip(found, again, strict=True)),
    }


def rounding(rows: int, columns: int, kind: torch.dtype, source: torch.dtype) -> dict[str, object]:
    x = 3 * torch.randn(rows, columns, generator=torch.Generator().manual_seed(1)).to(source)
    straight, turned, scale = rounding_triton.rounded_both(x, kind, LEAST)
    return {
        "shapes": [list(straight.shape), list(turned.shape)],
        "turned": torch.equal(straight.view(torch.uint8).t(), turned.view(torch.uint8)),
        "scale": float(scale) == float(x.abs().amax().float() / torch.finfo(kind).max),
        "error": float((straight.float() * scale - x.float()).norm() / x.float().norm()),
    }


def edges() -> dict[str, object]:
    zeros, broken = torch.zeros(16, 16), torch.ones(16, 16)
    broken[3, 4] = torch.nan
    _, _, least = rounding_triton.rounded_both(zeros, torch.float8_e5m2, LEAST)
    straight, _, scale = rounding_triton.rounded_both(broken, torch.float8_e5m2, LEAST)
    return {"of zeros": float(least), "of NaN": bool(scale.isnan()), "all NaN": bool(straight.float().isnan().all())}


if __name__ == "__main__":
    json.dump(
        {
            "attention": [attention(2, 4, 2, 256, 64, at_once=3), attention(1, 2, 2, 384, 32, at_once=9)],
            "rounding": [
                rounding(256, 128, torch.float8_e4m3fn, torch.bfloat16),
                rounding(208, 96, torch.float8_e5m2, torch.float32),
            ],
            "edges": edges(),
        },
        sys.stdout,
    )
