"""A language decoder: one configuration for GPT-2, Llama and shapes between them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Self

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor.parallel import ParallelStyle

from muster.train.errors import ConfigError, Problem
from muster.train.models import parts
from muster.train.models.layers import (
    Block,
    BlockShape,
    Head,
    Rope,
    RopeScaling,
    dropped,
    layer_parameters,
    norm,
    norm_parameters,
    problems,
    stream,
)
from muster.train.models.tensor_styles import Output, Replicated, Table


@dataclass(frozen=True, slots=True)
class DecoderConfig:
    """The shape of a decoder. `context` is the longest sequence that it takes, in tokens."""

    vocab: int
    dim: int
    layers: int
    heads: int
    kv_heads: int
    ffn: int
    context: int
    norm: Literal["rms", "layer"] = "rms"
    activation: Literal["swiglu", "gelu"] = "swiglu"
    positions: Literal["rope", "learned"] = "rope"
    rope_theta: float = 10_000.0
    rope_scaling: RopeScaling | None = None
    bias: bool = False
    tied: bool = False  # the head is the embedding's matrix
    eps: float = 1e-5
    dropout: float = 0.0

    @property
    def block(self) -> BlockShape:
        return BlockShape(
            dim=self.dim,
            heads=self.heads,
            kv_heads=self.kv_heads,
            ffn=self.ffn,
            norm=self.norm,
            activation=self.activation,
            bias=self.bias,
            eps=self.eps,
            dropout=self.dropout,
            causal=True,
        )

    @property
    def parameters(self) -> int:
        """Parameters of the whole model; a tied head counts once."""
        tables = self.vocab * (1 if self.tied else 2) + (self.context if self.positions == "learned" else 0)
        return tables * self.dim + self.layers * layer_parameters(self.block) + norm_parameters(self.block)

    def check(self) -> None:
        """Raises `ConfigError` with everything that is wrong with the numbers."""
        found = problems(self.block)
        found += [
            (name, getattr(self, name), "1 or more")
            for name in ("vocab", "layers", "context")
            if getattr(self, name) < 1
        ]
        if self.positions == "rope" and not found and self.block.head_dim % 2:
            found.append(
                ("heads", self.heads, f"heads of even width for rope; dim {self.dim} gives {self.block.head_dim}")
            )
        if found:
            raise ConfigError([Problem(name, str(given), expected) for name, given, expected in found], "the model")


class Decoder(nn.Module):
    """`forward(tokens i64[batch, seq]) -> logits [batch, seq, vocab]`.

    As a pipeline stage, its input or output is the stream `[batch, seq, dim]` if it has no embedding or no head.
    """

    def __init__(self, config: DecoderConfig) -> None:
        super().__init__()
        config.check()
        self.config = config
        learned, rope = config.positions == "learned", None
        if not learned:
            rope = Rope(config.block.head_dim, config.context, config.rope_theta, config.rope_scaling)
        self.embed: nn.Embedding | None = nn.Embedding(config.vocab, config.dim)
        self.positions: nn.Embedding | None = nn.Embedding(config.context, config.dim) if learned else None
        self.blocks = nn.ModuleDict({str(index): Block(config.block, rope) for index in range(config.layers)})
        self.norm: nn.Module | None = norm(config.block)
        self.head: Head | None = Head(config.dim, config.vocab, bias=False)
        self.tie()

    def forward(self, tokens: Tensor) -> Tensor:
        x = tokens if self.embed is None else self._embedded(tokens)
        for block in self.blocks.values():
            x = block(x)
        if self.norm is not None:
            x = self.norm(x)
        return x if self.head is None else self.head(x)

    def _embedded(self, tokens: Tensor) -> Tensor:
        assert self.embed is not None
        seq = tokens.shape[1]
        if seq > self.config.context:
            raise ValueError(f"{seq} tokens in a sequence; the model takes {self.config.context} at most.")
        x: Tensor = self.embed(tokens)
        if self.positions is not None:
            x = x + self.positions(torch.arange(seq, device=tokens.device))
        return dropped(stream(x), self.config.dropout, self.training)

    def tie(self) -> None:
        if not self.config.tied or self.head is None or self.embed is None or self.head.weight is self.embed.weight:
            return
        if isinstance(self, FSDPModule):
            raise RuntimeError("The head and the embedding are sharded apart: call tie() before fully_shard().")
        self.head.weight = self.embed.weight

    def stage(self, first: int, last: int, is_first: bool, is_last: bool) -> None:
        parts.keep_blocks(self.blocks, first, last)
        if not is_first:
            self.embed = self.positions = None
        if not is_last:
            self.norm = self.head = None

    def tensor_plan(self, sequence: bool) -> dict[str, ParallelStyle]:
        plan: dict[str, ParallelStyle] = {}
        for name in ("embed", "positions"):
            if getattr(self, name) is not None:
                plan[name] = Table(sequence=sequence)
        for name, block in self.blocks.items():
            plan |= parts.block_plan(f"blocks.{name}", block, sequence)
        if self.norm is not None:
            plan["norm"] = Replicated(sequence=sequence)
        if self.head is not None:
            plan["head"] = Output(sequence=sequence)
        return plan

    def check(self, tp: int = 1, pp: int = 1, sequence: int | None = None) -> None:
        found = parts.check_split(self.config.block, self.config.layers, tp, pp)
        if pp > 1 and self.config.tied:
            found.append(
                f"a tied head would need the embedding on the first and the last of pp {pp} stages; set tied to false"
            )
        if sequence is not None and tp > 1 and sequence % tp:
            found.append(f"sequences of {sequence} tokens don't divide by tp {tp}, which sequence parallelism needs")
        parts.refuse(found)

    def flops_per_token(self, seq: int) -> int:
        """6 x (parameters without the input embeddings) + 6 x layers x seq x dim: two operations for each weight
        forward and four backward, and attention counted once: a causal mask leaves half of 12 x layers x seq x dim."""
        config = self.config
        weights = (
            config.vocab * config.dim + config.layers * layer_parameters(config.block) + norm_parameters(config.block)
        )
        return 6 * weights + 6 * config.layers * seq * config.dim

    def init_std(self, name: str) -> float:
        return parts.stream_std(name, self.config.layers)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Moves the model. Tied parameters stay tied, even if `to_empty` creates new parameters."""
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self.tie()
        return self
