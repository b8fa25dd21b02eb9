"""Image classification with a small vision transformer."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from muster.data.collate import Arrays
from muster.data.dataset import Sample
from muster.data.errors import DataError
from muster.data.formats import open_dataset
from muster.train.config import Config, SourceSettings
from muster.train.models import initialise
from muster.train.models.vision import Vision, VisionConfig
from muster.train.settings import bounded
from muster.train.task import Data, Split, Supply, Tensors


@dataclass(frozen=True, slots=True)
class ClassifySettings:
    """The section `model`: the classifier's shape, and the names of the two parts of a sample."""

    classes: int = dataclasses.field(metadata={"low": 2})
    image: int = bounded(32, low=1)  # pixels per side
    patch: int = bounded(4, low=1)  # pixels a side
    channels: int = bounded(3, low=1)
    dim: int = bounded(128, low=1)
    layers: int = bounded(4, low=1)
    heads: int = bounded(4, low=1)
    ffn: int = bounded(512, low=1)
    dropout: float = bounded(0.0, low=0, high=0.99)
    image_part: str = "npy"  # an array [channels, image, image] of bytes, or of float32, which is used unchanged
    label_part: str = "cls"  # a whole number from 0


@dataclass
class Classify:
    """See `task.Task`. An item is an image."""

    Settings = ClassifySettings
    unit = "images"
    fills_parameters_only = True
    measures = ("accuracy",)

    settings: ClassifySettings
    config: Config

    def build(self) -> nn.Module:
        return Vision(self.shape)

    def initialise(self, part: nn.Module, seed: int) -> None:
        initialise(part, seed)

    def data(self, split: Split) -> Data | None:
        given = self.config.data.sources if split == "train" else self.config.data.evaluate
        return Data([_supply(source) for source in given], self.collate) if given else None

    def collate(self, samples: Sequence[Sample]) -> Arrays:
        """`images` [n, channels, image, image], bytes or float32, and `labels` i64[n]."""
        for sample in samples:
            missing = [name for name in (self.settings.image_part, self.settings.label_part) if name not in sample]
            if missing:
                raise DataError(f"a sample has no part {missing[0]!r}; it has {sorted(sample)}.")
        images = np.stack([np.asarray(sample[self.settings.image_part]) for sample in samples])
        labels = np.array([int(sample[self.settings.label_part]) for sample in samples], np.int64)
        self._check(images, labels)
        return {"images": images, "labels": labels}

    def inputs(self, batch: Tensors) -> tuple[Tensor, ...]:
        images = batch["images"]
        # Bytes are sent to the device as bytes, a quarter of float32's size, and scaled to -1..1 there.
        return (images.float() / 127.5 - 1 if images.dtype == torch.uint8 else images,)

    def loss(self, output: Tensor, batch: Tensors) -> Tensor:
        return F.cross_entropy(output.float(), batch["labels"], reduction="sum")

    def items(self, arrays: Arrays) -> int:
        return len(arrays["labels"])

    def measure(self, output: Tensor, batch: Tensors) -> Mapping[str, Tensor]:
        return {"accuracy": (output.argmax(1) == batch["labels"]).sum()}

    def flops(self) -> float:
        with torch.device("meta"):
            return float(self.shape.patches * Vision(self.shape).flops_per_token(self.shape.patches))

    @cached_property
    def shape(self) -> VisionConfig:
        """The classifier's shape."""
        return VisionConfig(**{name: getattr(self.settings, name) for name in _SHAPE})

    def _check(self, images: NDArray[np.generic], labels: NDArray[np.int64]) -> None:
        side, classes = self.settings.image, self.settings.classes
        if images.shape[1:] != (self.settings.channels, side, side) or images.dtype not in (np.uint8, np.float32):
            expected = f"bytes or float32 of shape {(self.settings.channels, side, side)}"
            raise DataError(f"images are {images.dtype} of shape {images.shape[1:]}; the model takes {expected}.")
        if labels.min() < 0 or labels.max() >= classes:
            raise DataError(f"labels go from {labels.min()} to {labels.max()}; model.classes is {classes}.")


def _supply(source: SourceSettings) -> Supply:
    samples = open_dataset(source.format or "tar", Path(source.path))
    return Supply(source.name or source.path, samples, source.weight)


_SHAPE: Final = ("classes", "image", "patch", "channels", "dim", "layers", "heads", "ffn", "dropout")
