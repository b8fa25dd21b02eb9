"""A small character-level transformer: a pre-norm decoder whose output layer is its embedding, transposed."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass(frozen=True)
class Config:
    """B sequences, T tokens of context, D wide, V characters."""

    vocab: int
    context: int = 64
    dim: int = 128
    layers: int = 3
    heads: int = 4
    dropout: float = 0.0

    def to_dict(self) -> dict[str, float]:
        return asdict(self)


class Block(nn.Module):
    """Attention, then a two-layer MLP; each reads a normalised copy of the stream and adds to the stream."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.heads, self.dropout = config.heads, config.dropout
        self.norm1, self.norm2 = nn.LayerNorm(config.dim), nn.LayerNorm(config.dim)
        self.qkv = nn.Linear(config.dim, 3 * config.dim, bias=False)
        self.out = nn.Linear(config.dim, config.dim, bias=False)
        self.up = nn.Linear(config.dim, 4 * config.dim, bias=False)
        self.down = nn.Linear(4 * config.dim, config.dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:  # (B, T, D) → (B, T, D)
        B, T, D = x.shape
        qkv = self.qkv(self.norm1(x)).view(B, T, 3, self.heads, D // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)  # each (B, heads, T, D / heads)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self._drop(self.out(y.transpose(1, 2).reshape(B, T, D)))
        return x + self._drop(self.down(F.relu(self.up(self.norm2(x))).square()))

    def _drop(self, x: Tensor) -> Tensor:
        return F.dropout(x, self.dropout, self.training)


class Transformer(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.token = nn.Embedding(config.vocab, config.dim)
        self.position = nn.Embedding(config.context, config.dim)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.dim)
        for name, weight in self.named_parameters():
            # What adds to the stream starts at zero, so that at first every block passes its input through.
            if name.endswith(("out.weight", "down.weight")):
                nn.init.zeros_(weight)
            elif weight.dim() == 2:
                nn.init.normal_(weight, std=0.02 if "blocks" not in name else config.dim**-0.5)

    def forward(self, tokens: Tensor) -> Tensor:
        """(B, T) characters → (B, T, V) logits of the character that follows each."""
        at = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.token(tokens) + self.position(at)  # (B, T, D)
        for block in self.blocks:
            x = block(x)
        return self.norm(x) @ self.token.weight.T


def next_character_loss(model: nn.Module, window: Tensor) -> Tensor:
    """(B, T + 1) characters → the mean loss in nats of predicting each but the first."""
    logits = model(window[:, :-1])
    return F.cross_entropy(logits.flatten(0, 1), window[:, 1:].flatten())
