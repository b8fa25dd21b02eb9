"""The layers of the decoder and the image model: attention, feed-forward, norms and rotary positions.

Query, key and value are separate linear layers, and so are gate and up. Splitting a fused layer by rows would put the
gate's rows on the first tensor-parallel ranks and those of `up` on the last. Separate layers split cleanly by their
columns, match Hugging Face's weights, and need no `cat` of two gradients in the backward pass.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from muster.train.kernels.attention import causal_attention, repeatable

HEAD_MULTIPLE: Final = 64


@dataclass(frozen=True, slots=True)
class BlockShape:
    """The shape of one block."""

    dim: int
    heads: int
    kv_heads: int
    ffn: int
    norm: Literal["rms", "layer"]
    activation: Literal["swiglu", "gelu"]
    bias: bool
    eps: float
    dropout: float
    causal: bool

    @property
    def head_dim(self) -> int:
        return self.dim // self.heads


@dataclass(frozen=True, slots=True)
class RopeScaling:
    """Llama 3's scaling of the rotary wavelengths, for sequences longer than in the first training."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_context: int


class Block(nn.Module):
    """Attention and feed-forward, each on a normed copy of the stream `x [batch, seq, dim]` and added to it."""

    def __init__(self, shape: BlockShape, rope: Rope | None) -> None:
        super().__init__()
        self.attention_norm = norm(shape)
        self.attention = Attention(shape, rope)
        self.ffn_norm = norm(shape)
        self.ffn: nn.Module = SwiGLU(shape) if shape.activation == "swiglu" else GELU(shape)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x))
        x = x + self.ffn(self.ffn_norm(x))
        return x


class Attention(nn.Module):
    """Grouped-query attention. The number of heads comes from the weights: a tensor-parallel rank has some of them."""

    def __init__(self, shape: BlockShape, rope: Rope | None) -> None:
        super().__init__()
        width = shape.kv_heads * shape.head_dim
        self.q = nn.Linear(shape.dim, shape.dim, bias=shape.bias)
        self.k = nn.Linear(shape.dim, width, bias=shape.bias)
        self.v = nn.Linear(shape.dim, width, bias=shape.bias)
        self.out = nn.Linear(shape.dim, shape.dim, bias=shape.bias)
        self.rope = rope
        self.head_dim = shape.head_dim
        self.causal = shape.causal
        self.grouped = shape.kv_heads != shape.heads
        self.dropout = shape.dropout

    def forward(self, x: Tensor) -> Tensor:
        q = self.q(x).unflatten(-1, (-1, self.head_dim))  # [batch, seq, local heads, head_dim]
        k = self.k(x).unflatten(-1, (-1, self.head_dim))
        v = self.v(x).unflatten(-1, (-1, self.head_dim))
        if self.rope is not None:
            q, k = self.rope(q), self.rope(k)
        q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
        dropout = self.dropout if self.training else 0.0
        if repeatable(q, k, self.causal, dropout):
            mixed = causal_attention(q, k, v)
        else:
            mixed = F.scaled_dot_product_attention(
                q, k, v, dropout_p=dropout, is_causal=self.causal, enable_gqa=self.grouped
            )
        return dropped(self.out(mixed.transpose(1, 2).flatten(-2)), self.dropout, self.training)


class SwiGLU(nn.Module):
    """down(silu(gate(x)) * up(x))."""

    def __init__(self, shape: BlockShape) -> None:
        super().__init__()
        self.gate = nn.Linear(shape.dim, shape.ffn, bias=shape.bias)
        self.up = nn.Linear(shape.dim, shape.ffn, bias=shape.bias)
        self.down = nn.Linear(shape.ffn, shape.dim, bias=shape.bias)
        self.dropout = shape.dropout

    def forward(self, x: Tensor) -> Tensor:
        return dropped(self.down(F.silu(self.gate(x)) * self.up(x)), self.dropout, self.training)


class GELU(nn.Module):
    """down(gelu(up(x))), with GPT-2's tanh approximation."""

    def __init__(self, shape: BlockShape) -> None:
        super().__init__()
        self.up = nn.Linear(shape.dim, shape.ffn, bias=shape.bias)
        self.down = nn.Linear(shape.ffn, shape.dim, bias=shape.bias)
        self.dropout = shape.dropout

    def forward(self, x: Tensor) -> Tensor:
        return dropped(self.down(F.gelu(self.up(x), approximate="tanh")), self.dropout, self.training)


class Head(nn.Linear):
    """The product that makes logits. On a GPU in 16 bits its width is padded to a multiple of 64: with GPT-2's 50,257
    tokens the kernels for such odd widths take several times as long. The rest is cut off, which costs a copy of the
    logits' gradient, unless the loss passes over it: then it sets `keeps_rest`."""

    keeps_rest = False

    def forward(self, x: Tensor) -> Tensor:
        even = self.weight.shape[0] % HEAD_MULTIPLE == 0  # a tensor-parallel rank has a part of it
        if even or x.device.type != "cuda" or isinstance(self.weight, DTensor) or not _halves(x):
            return super().forward(x)
        return self.padded(x)

    def padded(self, x: Tensor) -> Tensor:
        """The same product with zeros beside it; those of a tensor-parallel rank never stay."""
        width = self.weight.shape[0]
        logits = F.linear(x, F.pad(self.weight, (0, 0, 0, -width % HEAD_MULTIPLE)))
        return logits if self.keeps_rest and width == self.out_features else logits[..., :width]


class Rope(nn.Module):
    """Rotary positions in Hugging Face's layout: the first half of a head is turned against the second.

    One table for the whole model, shared by its blocks. It is not a parameter and not in checkpoints. It stays in
    float32, and is recomputed when the module moves to another device, so that `to_empty` leaves no garbage in it.
    """

    table: Tensor  # [2, context, head_dim]: cosines, and sines with the sign of each half

    def __init__(self, head_dim: int, context: int, theta: float, scaling: RopeScaling | None) -> None:
        super().__init__()
        self.head_dim = head_dim
        self.context = context
        self.theta = theta
        self.scaling = scaling
        self.register_buffer("table", self._table(None), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """`x [batch, seq, heads, head_dim]`, turned in float32; the roll brings the other half to each element."""
        if self.table.device != x.device:  # once, where parameters were left on the host to be fetched block by block
            self.table = self._table(x.device)
        cos, sin = self.table[:, : x.shape[1], None, :]
        wide = x.float()
        turned: Tensor = wide * cos + wide.roll(self.head_dim // 2, -1) * sin
        return turned.to(x.dtype)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        device = fn(self.table.new_empty(0)).device
        if device != self.table.device:
            self.table = self._table(device)
        return self

    def _table(self, device: torch.device | None) -> Tensor:
        steps = torch.arange(0, self.head_dim, 2, dtype=torch.float32, device=device)
        frequencies = _scaled(1.0 / self.theta ** (steps / self.head_dim), self.scaling)
        angles = torch.outer(torch.arange(self.context, dtype=torch.float32, device=device), frequencies)
        cos, sin = angles.cos(), angles.sin()
        return torch.stack([torch.cat([cos, cos], -1), torch.cat([-sin, sin], -1)])


class RMSNorm(nn.RMSNorm):
    """Under autocast it is computed in float32, and the result has the stream's own type. Autocast leaves norms of
    float32 alone; to switch it off here would keep compiled blocks out of the compiler's cache of whole graphs."""

    def forward(self, x: Tensor) -> Tensor:
        if not _autocasts(x):
            return super().forward(x)
        return F.rms_norm(x.float(), self.normalized_shape, self.weight.float(), self.eps).to(x.dtype)


class LayerNorm(nn.LayerNorm):
    """Under autocast it is computed in float32, and the result has the stream's own type."""

    def forward(self, x: Tensor) -> Tensor:
        if not _autocasts(x):
            return super().forward(x)
        bias = None if self.bias is None else self.bias.float()
        return F.layer_norm(x.float(), self.normalized_shape, self.weight.float(), bias, self.eps).to(x.dtype)


def norm(shape: BlockShape) -> nn.Module:
    if shape.norm == "rms":
        return RMSNorm(shape.dim, eps=shape.eps)
    return LayerNorm(shape.dim, eps=shape.eps, bias=shape.bias)


def stream(x: Tensor) -> Tensor:
    """The stream as the first block takes it: in bfloat16 under autocast to that, so that each block reads, adds and
    keeps half the bytes. It has float32's range; float16 has not, so that leaves the stream in float32."""
    halved = _autocasts(x) and torch.get_autocast_dtype(x.device.type) is torch.bfloat16
    return x.to(torch.bfloat16) if halved else x


def _autocasts(x: Tensor) -> bool:
    return x.device.type != "meta" and torch.is_autocast_enabled(x.device.type)


def _halves(x: Tensor) -> bool:
    """Whether products with it have 16 bits."""
    return x.dtype in (torch.bfloat16, torch.float16) or _autocasts(x)


def dropped(x: Tensor, probability: float, training: bool) -> Tensor:
    """Returns `x` unchanged without dropout: no random numbers, no kernel."""
    return F.dropout(x, probability, training) if probability > 0 else x


def _scaled(frequencies: Tensor, scaling: RopeScaling | None) -> Tensor:
    """Stretches long wavelengths by `factor`, keeps short ones, and interpolates between them."""
    if scaling is None:
        return frequencies
    turns = scaling.original_context * frequencies / (2 * torch.pi)  # full turns within the first training's length
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    kept = ((turns - low) / (high - low)).clamp(0, 1)
    return frequencies * kept + frequencies / scaling.factor * (1 - kept)


def layer_parameters(shape: BlockShape) -> int:
    """The number of parameters of one block, including norms and biases."""
    kv = shape.kv_heads * shape.head_dim
    up = shape.ffn * (2 if shape.activation == "swiglu" else 1)
    weights = 2 * shape.dim * shape.dim + 2 * shape.dim * kv + shape.dim * (up + shape.ffn)
    biases = (2 * shape.dim + 2 * kv + up + shape.dim) if shape.bias else 0
    return weights + biases + 2 * norm_parameters(shape)


def norm_parameters(shape: BlockShape) -> int:
    return shape.dim * (2 if shape.norm == "layer" and shape.bias else 1)


def problems(shape: BlockShape) -> list[tuple[str, Any, str]]:
    """What is wrong with a block's numbers: field, given, expected."""
    found: list[tuple[str, Any, str]] = []
    for name in ("dim", "heads", "kv_heads", "ffn"):
        if getattr(shape, name) < 1:
            found.append((name, getattr(shape, name), "1 or more"))
    if found:
        return found
    if shape.dim % shape.heads:
        found.append(("heads", shape.heads, f"a divisor of dim {shape.dim}"))
    if shape.heads % shape.kv_heads:
        found.append(("kv_heads", shape.kv_heads, f"a divisor of heads {shape.heads}"))
    if not 0 <= shape.dropout < 1:
        found.append(("dropout", shape.dropout, "0 or more and below 1"))
    if shape.eps <= 0:
        found.append(("eps", shape.eps, "above 0"))
    return found
