"""A small vision transformer for image classification, built from the decoder's blocks without the causal mask."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor, nn
from torch.distributed.tensor.parallel import ParallelStyle

from muster.train.errors import ConfigError, MeshError, Problem
from muster.train.models import parts
from muster.train.models.layers import Block, BlockShape, dropped, layer_parameters, norm, norm_parameters, problems
from muster.train.models.tensor_styles import Replicated

_NO_SEQUENCE: Final = "an image model has no sequence parallelism, as it averages over the sequence"


@dataclass(frozen=True, slots=True)
class VisionConfig:
    """The shape of an image classifier: square images of `image` pixels, cut into squares of `patch` pixels."""

    classes: int
    image: int = 32
    patch: int = 4
    channels: int = 3
    dim: int = 128
    layers: int = 4
    heads: int = 4
    ffn: int = 512
    eps: float = 1e-6
    dropout: float = 0.0

    @property
    def patches(self) -> int:
        """Patches of one image: the length of the sequence that the blocks see."""
        return (self.image // self.patch) ** 2

    @property
    def block(self) -> BlockShape:
        return BlockShape(
            dim=self.dim,
            heads=self.heads,
            kv_heads=self.heads,
            ffn=self.ffn,
            norm="layer",
            activation="gelu",
            bias=True,
            eps=self.eps,
            dropout=self.dropout,
            causal=False,
        )

    def check(self) -> None:
        """Raises `ConfigError` with everything that is wrong with the numbers."""
        found = problems(self.block)
        for name in ("classes", "image", "patch", "channels", "layers"):
            if getattr(self, name) < 1:
                found.append((name, getattr(self, name), "1 or more"))
        if self.patch > 0 and self.image % self.patch:
            found.append(("patch", self.patch, f"a divisor of image {self.image}"))
        if found:
            raise ConfigError([Problem(name, str(given), expected) for name, given, expected in found], "the model")


class Vision(nn.Module):
    """`forward(images [batch, channels, height, width]) -> logits [batch, classes]`; a stage of it gives or takes the
    stream `[batch, patches, dim]`."""

    def __init__(self, config: VisionConfig) -> None:
        super().__init__()
        config.check()
        self.config = config
        self.patches: nn.Linear | None = nn.Linear(config.channels * config.patch**2, config.dim)
        self.positions: nn.Embedding | None = nn.Embedding(config.patches, config.dim)
        self.blocks = nn.ModuleDict({str(index): Block(config.block, None) for index in range(config.layers)})
        self.norm: nn.Module | None = norm(config.block)
        self.head: nn.Linear | None = nn.Linear(config.dim, config.classes)

    def forward(self, images: Tensor) -> Tensor:
        x = images
        if self.patches is not None and self.positions is not None:
            x = self.patches(self._cut(images)) + self.positions(torch.arange(self.config.patches, device=x.device))
            x = dropped(x, self.config.dropout, self.training)
        for block in self.blocks.values():
            x = block(x)
        if self.norm is not None and self.head is not None:
            x = self.head(self.norm(x).mean(1))
        return x

    def _cut(self, images: Tensor) -> Tensor:
        """[batch, channels, height, width] to [batch, patches, channels * patch * patch]."""
        config = self.config
        wanted = (config.channels, config.image, config.image)
        if tuple(images.shape[1:]) != wanted:
            raise ValueError(
                f"Images of {tuple(images.shape[1:])}; the model takes (channels, height, width) {wanted}."
            )
        side = config.image // config.patch
        cut = images.reshape(-1, config.channels, side, config.patch, side, config.patch)
        return cut.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)

    def tie(self) -> None:
        """Does nothing: no parameters are shared."""

    def stage(self, first: int, last: int, is_first: bool, is_last: bool) -> None:
        parts.keep_blocks(self.blocks, first, last)
        if not is_first:
            self.patches = self.positions = None
        if not is_last:
            self.norm = self.head = None

    def tensor_plan(self, sequence: bool) -> dict[str, ParallelStyle]:
        if sequence:
            raise MeshError(f"The model can't be split so: {_NO_SEQUENCE}.")
        ends = ("patches", "positions", "norm", "head")
        plan: dict[str, ParallelStyle] = {name: Replicated() for name in ends if getattr(self, name) is not None}
        for name, block in self.blocks.items():
            plan |= parts.block_plan(f"blocks.{name}", block, False)
        return plan

    def check(self, tp: int = 1, pp: int = 1, sequence: int | None = None) -> None:
        found = parts.check_split(self.config.block, self.config.layers, tp, pp)
        if sequence is not None and tp > 1:
            found.append(_NO_SEQUENCE)
        parts.refuse(found)

    def flops_per_token(self, seq: int) -> int:
        """For one patch of `seq`: 6 x (parameters that it meets) + 12 x layers x seq x dim, as nothing is masked; the
        head is met once an image."""
        config = self.config
        weights = config.channels * config.patch**2 * config.dim
        weights += config.layers * layer_parameters(config.block) + norm_parameters(config.block)
        return 6 * (weights + config.dim * config.classes // seq) + 12 * config.layers * seq * config.dim

    def init_std(self, name: str) -> float:
        return parts.stream_std(name, self.config.layers)
