"""The language task with samples that spoil their batch: its loss is multiplied by what the sample is given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from torch import Tensor

from muster.data.collate import Arrays, next_token
from muster.data.dataset import Dataset, Sample
from muster.train.task import Data, Split, Supply, Tensors
from muster.train.tasks.language import Language, LanguageSettings


@dataclass(frozen=True)
class PoisonSettings(LanguageSettings):
    bad: dict[str, float] = field(default_factory=dict)  # number of a sample → factor


class Poisoned(Language):
    Settings = PoisonSettings
    settings: PoisonSettings

    def data(self, split: Split) -> Data | None:
        found = super().data(split)
        if found is None:
            return None
        bad = {int(number): factor for number, factor in self.settings.bad.items()}
        supplies = [Supply(each.name, _Spoiled(each.samples, bad), each.weight) for each in found.supplies]
        return Data(supplies, _collate)

    def loss(self, output: Tensor, batch: Tensors) -> Tensor:
        return super().loss(output, batch) * batch["factor"].max()


@dataclass
class _Spoiled:
    samples: Dataset
    bad: dict[int, float]

    def __len__(self) -> int:
        return len(self.samples)

    def read(self, index: int) -> Sample:
        return {**self.samples.read(index), "factor": self.bad.get(index, 1.0)}


def _collate(samples: Sequence[Sample]) -> Arrays:
    factors = np.array([sample["factor"] for sample in samples], np.float32)
    return {**next_token(samples), "factor": factors}
