"""Causal attention whose backward pass has the same bits in every run, in Triton.

The fast kernels of cuDNN add the gradient of the queries up in any order. Here each sum has one owner: a program holds
the gradients of one block of keys and values and writes the scores' gradient as it goes; a second kernel multiplies
that with the keys. It takes memory for the scores' gradient, and makes no product twice.
"""

from __future__ import annotations

from typing import Any, Final

import torch
import triton
import triton.language as tl
from torch import Tensor

from muster.train import kernels
from muster.train.kernels.attention import scores_bytes

LOG2E: Final = 1.4426950408889634
KEYS_FIRST: Final[dict[str, Any]] = {"QUERIES": 64, "KEYS": 128, "num_warps": 8, "num_stages": 3}
QUERIES_FIRST: Final[dict[str, Any]] = {"QUERIES": 128, "KEYS": 32, "num_warps": 4, "num_stages": 4}


def causal_attention_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of q, k and v. All are [batch, heads, tokens, width], k and v with fewer heads perhaps; `lse` is
    f32[batch, heads, tokens], the logarithms of the sums of the softmax."""
    batch, heads, tokens, width = q.shape
    groups = heads // k.shape[1]
    of_q, of_k, of_v = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
    delta = torch.empty_like(lse)
    rows = batch * heads * tokens
    _delta[(triton.cdiv(rows, 64),)](
        grad, out, delta, heads, tokens, *grad.stride()[:3], *out.stride()[:3], WIDTH=width, ROWS=64
    )
    scale = width**-0.5
    pairs = batch * k.shape[1]  # of a sample and a head of keys
    most = max(1, min(pairs, kernels.scores_most // scores_bytes(q, k)))
    scores = torch.empty(most * groups, tokens, tokens, dtype=q.dtype, device=q.device)
    for first in range(0, pairs, most):
        count = min(most, pairs - first)
        _keys_and_values[(tokens // KEYS_FIRST["KEYS"], count)](
            q, k, v, grad, lse, delta, of_k, of_v, scores, first, k.shape[1], tokens, scale, scale * LOG2E,
            *q.stride()[:3], *k.stride()[:3], *v.stride()[:3], *grad.stride()[:3],
            *of_k.stride()[:3], *of_v.stride()[:3], GROUPS=groups, WIDTH=width, **KEYS_FIRST,
        )  # fmt: skip
        _queries[(tokens // QUERIES_FIRST["QUERIES"], count * groups)](
            k, scores, of_q, first, k.shape[1], tokens, scale, *k.stride()[:3], *of_q.stride()[:3],
            GROUPS=groups, WIDTH=width, **QUERIES_FIRST,
        )  # fmt: skip
    return of_q, of_k, of_v


@triton.jit
def _delta(grad, out, delta, heads, tokens, gb, gh, gt, ob, oh, ot, WIDTH: tl.constexpr, ROWS: tl.constexpr):
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS)).to(tl.int64)
    token, head, sample = row % tokens, row // tokens % heads, row // tokens // heads
    column = tl.arange(0, WIDTH)[None, :]
    g = tl.load(grad + (sample * gb + head * gh + token * gt)[:, None] + column).to(tl.float32)
    o = tl.load(out + (sample * ob + head * oh + token * ot)[:, None] + column).to(tl.float32)
    tl.store(delta + row, tl.sum(g * o, 1))


@triton.jit
def _keys_and_values(
    q, k, v, grad, lse, delta, of_k, of_v, scores, first, kv_heads, tokens, scale, scale2,
    qb, qh, qt, kb, kh, kt, vb, vh, vt, gb, gh, gt, okb, okh, okt, ovb, ovh, ovt,
    GROUPS: tl.constexpr, WIDTH: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    block, local = tl.program_id(0), tl.program_id(1).to(tl.int64)  # the first blocks have the most to do
    pair = first + local
    sample, kv = pair // kv_heads, pair % kv_heads
    column = tl.arange(0, WIDTH)
    keys = block * KEYS + tl.arange(0, KEYS)
    k_tile = tl.load(k + sample * kb + kv * kh + keys[:, None] * kt + column[None, :])
    v_tile = tl.load(v + sample * vb + kv * vh + keys[:, None] * vt + column[None, :])
    dk = tl.zeros([KEYS, WIDTH], tl.float32)
    dv = tl.zeros([KEYS, WIDTH], tl.float32)
    begin = block * KEYS // QUERIES
    for group in tl.static_range(GROUPS):
        head = kv * GROUPS + group
        q_at, g_at = q + sample * qb + head * qh, grad + sample * gb + head * gh
        row_at = (sample * kv_heads * GROUPS + head) * tokens
        s_at = scores + (local * GROUPS + group) * tokens * tokens
        for number in tl.range(begin, tokens // QUERIES):
            rows = number * QUERIES + tl.arange(0, QUERIES)
            q_tile = tl.load(q_at + rows[:, None] * qt + column[None, :])
            g_tile = tl.load(g_at + rows[:, None] * gt + column[None, :])
            sums = tl.load(lse + row_at + rows) * 1.4426950408889634
            shift = tl.load(delta + row_at + rows)
            p = tl.math.exp2(tl.dot(k_tile, tl.trans(q_tile)) * scale2 - sums[None, :])  # [keys, queries]
            p = tl.where(rows[None, :] >= keys[:, None], p, 0.0)
            dv += tl.dot(p.to(g_tile.dtype), g_tile)
            dp = tl.dot(v_tile, tl.trans(g_tile))
            ds = (p * (dp - shift[None, :])).to(q_tile.dtype)
            dk += tl.dot(ds, q_tile)
            tl.store(s_at + keys[:, None].to(tl.int64) * tokens + rows[None, :], ds)
    dk_at = of_k + sample * okb + kv * okh + keys[:, None] * okt + column[None, :]
    dv_at = of_v + sample * ovb + kv * ovh + keys[:, None] * ovt + column[None, :]
    tl.store(dk_at, (dk * scale).to(of_k.dtype.element_ty))
    tl.store(dv_at, dv.to(of_v.dtype.element_ty))


@triton.jit
def _queries(
    k, scores, of_q, first, kv_heads, tokens, scale, kb, kh, kt, ob, oh, ot,
    GROUPS: tl.constexpr, WIDTH: tl.constexpr, QUERIES: tl.constexpr, KEYS: tl.constexpr,
):  # fmt: skip
    block, local = tl.num_programs(0) - 1 - tl.program_id(0), tl.program_id(1).to(tl.int64)  # the longest first
    pair = first + local // GROUPS
    sample, kv = pair // kv_heads, pair % kv_heads
    head = kv * GROUPS + local % GROUPS
    column = tl.arange(0, WIDTH)
    rows = block * QUERIES + tl.arange(0, QUERIES)
    s_at = scores + local * tokens * tokens
    k_at = k + sample * kb + kv * kh + column[None, :]
    dq = tl.zeros([QUERIES, WIDTH], tl.float32)
    whole = block * QUERIES // KEYS  # blocks that are below the diagonal
    for number in tl.range(0, whole):
        keys = number * KEYS + tl.arange(0, KEYS)
        ds = tl.trans(tl.load(s_at + keys[:, None].to(tl.int64) * tokens + rows[None, :]))
        dq += tl.dot(ds, tl.load(k_at + keys[:, None] * kt))
    for number in tl.range(whole, tl.cdiv((block + 1) * QUERIES, KEYS)):
        keys = number * KEYS + tl.arange(0, KEYS)
        ds = tl.trans(tl.load(s_at + keys[:, None].to(tl.int64) * tokens + rows[None, :]))
        ds = tl.where(rows[:, None] >= keys[None, :], ds, 0.0)  # what is above the diagonal was not written
        dq += tl.dot(ds, tl.load(k_at + keys[:, None] * kt))
    at = of_q + sample * ob + head * oh + rows[:, None] * ot + column[None, :]
    tl.store(at, (dq * scale).to(of_q.dtype.element_ty))
