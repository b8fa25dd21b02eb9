"""Tasks of muster.train for preflight: a correct one, and the same with one mistake each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from muster.data.collate import Arrays, stack
from muster.train.config import Config
from muster.train.task import Data, Split, Supply


@dataclass(frozen=True)
class PointSettings:
    width: int = 16
    layers: int = 6
    dropout: float = 0.0


class Points:
    """Numbers to learn by heart."""

    def __len__(self) -> int:
        return 64

    def read(self, index: int) -> Mapping[str, Any]:
        draw = np.random.default_rng(index)
        x = draw.normal(size=4).astype(np.float32)
        return {"x": x, "labels": np.int64(x.sum() > 0)}


class Correct:
    Settings = PointSettings
    unit = "points"

    def __init__(self, settings: PointSettings, config: Config) -> None:
        self.settings = settings

    def build(self) -> nn.Module:
        width = self.settings.width
        layers: list[nn.Module] = [nn.Linear(4, width)]
        for _ in range(self.settings.layers - 1):
            layers += [
                nn.Tanh(),
                nn.Dropout(self.settings.dropout),
                nn.Linear(self.settings.width, self.settings.width),
            ]
        return nn.Sequential(*layers, nn.Linear(self.settings.width, 2))

    def data(self, split: Split) -> Data | None:
        return Data([Supply("points", Points())], stack) if split == "train" else None

    def inputs(self, batch: dict[str, Tensor]) -> tuple[Tensor, ...]:
        return (batch["x"],)

    def loss(self, output: Tensor, batch: dict[str, Tensor]) -> Tensor:
        return F.cross_entropy(output.float(), batch["labels"], reduction="sum")

    def items(self, arrays: Arrays) -> int:
        return len(arrays["labels"])


class MeanLoss(Correct):
    """Returns the mean, where the sum is expected: the more processes, the larger the gradient."""

    def loss(self, output: Tensor, batch: dict[str, Tensor]) -> Tensor:
        return F.cross_entropy(output.float(), batch["labels"])


class BatchMean(Correct):
    """Its loss depends on how samples are divided over processes."""

    def loss(self, output: Tensor, batch: dict[str, Tensor]) -> Tensor:
        return super().loss(output - output.mean(0, keepdim=True).detach(), batch)


class Counter(Correct):
    """Keeps something that no checkpoint has: what the loss is multiplied by."""

    def __init__(self, settings: PointSettings, config: Config) -> None:
        super().__init__(settings, config)
        self.calls = 0

    def loss(self, output: Tensor, batch: dict[str, Tensor]) -> Tensor:
        self.calls += torch.is_grad_enabled()
        return super().loss(output, batch) * (1 + 0.1 * self.calls)
