"""Causal attention that has the same bits in every run: the forward pass of cuDNN, and a backward pass of our own."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor

from muster.train import kernels

TOKENS: Final = 128  # a multiple of it: the kernels have no remainder
WIDTHS: Final = (64, 128)


def repeatable(q: Tensor, k: Tensor, causal: bool, dropout: float) -> bool:
    """Whether this module computes such an attention: deterministic algorithms are wanted, and the kernels fit."""
    return (
        kernels.usable
        and torch.are_deterministic_algorithms_enabled()
        and q.device.type == "cuda"
        and q.dtype in (torch.bfloat16, torch.float16)
        and causal
        and dropout == 0.0
        and q.shape[-2] % TOKENS == 0
        and q.shape[-1] in WIDTHS
        and scores_bytes(q, k) <= kernels.scores_most
    )


def scores_bytes(q: Tensor, k: Tensor) -> int:
    """Of the gradient of the scores, for one head of keys: what the backward pass needs at least."""
    return q.shape[1] // k.shape[1] * q.shape[2] ** 2 * q.element_size()


def causal_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """All are [batch, heads, tokens, width]; k and v may have fewer heads, each of which serves as many of q's."""
    out: Tensor = _forward(q, k, v)[0]
    return out


@torch.library.custom_op("muster::causal_attention", mutates_args=(), device_types="cuda")
def _forward(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """The result, with the strides of q, and the logarithms of the softmax's sums, f32[batch, heads, tokens]."""
    found = torch.ops.aten._scaled_dot_product_cudnn_attention(q, k, v, None, True, 0.0, True, False)
    out = torch.empty_like(q)
    if found[0].stride() == out.stride():
        out = found[0]
    else:
        out.copy_(found[0])
    return out, found[1].reshape(q.shape[:-1]).contiguous()


@_forward.register_fake
def _(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    return torch.empty_like(q), torch.empty(q.shape[:-1], dtype=torch.float32, device=q.device)


@torch.library.custom_op("muster::causal_attention_backward", mutates_args=(), device_types="cuda")
def _backward(grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    from muster.train.kernels.attention_triton import causal_attention_backward  # noqa: PLC0415 - needs Triton

    return causal_attention_backward(grad, q, k, v, out, lse)


@_backward.register_fake
def _(grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)


def _keep(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(*inputs, *output)


def _gradients(ctx: Any, grad: Tensor, _: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    found: tuple[Tensor, Tensor, Tensor] = _backward(grad, *ctx.saved_tensors)
    return found


torch.library.register_autograd("muster::causal_attention", _gradients, setup_context=_keep)
