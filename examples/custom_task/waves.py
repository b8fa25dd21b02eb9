"""A task of one's own: a network learns to tell the frequency of a noisy wave. Its data is computed, not read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from muster.data.collate import stack
from muster.train.config import Config
from muster.train.task import Arrays, Data, Split, Supply, Tensors


@dataclass(frozen=True)
class WavesSettings:
    """The section `model` of config.yaml."""

    points: int = 64  # of a wave
    width: int = 64
    noise: float = 0.3


@dataclass
class Waves:
    Settings = WavesSettings
    unit = "waves"
    measures = ("error",)

    settings: WavesSettings
    config: Config

    def build(self) -> nn.Module:
        width = self.settings.width
        return nn.Sequential(nn.Linear(self.settings.points, width), nn.GELU(), nn.Linear(width, 1))

    def data(self, split: Split) -> Data | None:
        count, seed = (20_000, 1) if split == "train" else (1_024, 2)
        return Data([Supply(f"waves-{split}", Made(count, seed, self.settings))], stack)

    def inputs(self, batch: Tensors) -> tuple[Tensor, ...]:
        return (batch["wave"],)

    def loss(self, output: Tensor, batch: Tensors) -> Tensor:
        return F.mse_loss(output[:, 0], batch["frequency"], reduction="sum")

    def items(self, arrays: Arrays) -> int:
        return len(arrays["wave"])

    def measure(self, output: Tensor, batch: Tensors) -> Mapping[str, Tensor]:
        return {"error": torch.abs(output[:, 0] - batch["frequency"]).sum()}


@dataclass(frozen=True)
class Made:
    """Samples by number; each follows from its number alone, so there is nothing to store."""

    count: int
    seed: int
    settings: WavesSettings

    def __len__(self) -> int:
        return self.count

    def read(self, index: int) -> dict[str, Any]:
        rng = np.random.default_rng([self.seed, index])
        frequency, phase = rng.uniform(1, 5), rng.uniform(0, 2 * np.pi)
        time = np.linspace(0, 1, self.settings.points)
        wave = np.sin(2 * np.pi * frequency * time + phase) + self.settings.noise * rng.standard_normal(len(time))
        return {"wave": wave.astype(np.float32), "frequency": np.float32(frequency)}
