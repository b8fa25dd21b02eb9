"""Language modelling: a decoder predicts the next token, with new weights or those of a Hugging Face folder."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor

from muster.data.collate import Arrays, next_token
from muster.data.formats import open_dataset
from muster.train.config import Config, SourceSettings
from muster.train.errors import CheckpointMismatch, ConfigError, Problem
from muster.train.models import Decoder, DecoderConfig, initialise
from muster.train.models.hub import load_hub
from muster.train.models.initial import plain_name
from muster.train.models.shapes import shape
from muster.train.settings import bounded
from muster.train.task import Data, Split, Supply, Tensors

IGNORED: Final = -100  # a target that is ignored in the loss


@dataclass(frozen=True, slots=True)
class LanguageSettings:
    """The section `model`: a named shape or a Hugging Face folder, and changes to it."""

    shape: str | None = None  # a name of `models.shapes`
    hub: str | None = None  # a folder with config.json and safetensors weights, to start from
    sequence: int | None = bounded(None, low=1)  # tokens per sample; default: the context
    vocab: int | None = bounded(None, low=1)
    dim: int | None = bounded(None, low=1)
    layers: int | None = bounded(None, low=1)
    heads: int | None = bounded(None, low=1)
    kv_heads: int | None = bounded(None, low=1)
    ffn: int | None = bounded(None, low=1)
    context: int | None = bounded(None, low=1)
    norm: Literal["rms", "layer"] | None = None
    activation: Literal["swiglu", "gelu"] | None = None
    positions: Literal["rope", "learned"] | None = None
    rope_theta: float | None = bounded(None, above=0)
    bias: bool | None = None
    tied: bool | None = None
    eps: float | None = bounded(None, above=0)
    dropout: float | None = bounded(None, low=0, high=0.99)


@dataclass
class Language:
    """See `task.Task`. An item is a token; a sample is `sequence` tokens and the one after each."""

    Settings = LanguageSettings
    unit = "tokens"
    fills_parameters_only = True

    settings: LanguageSettings
    config: Config

    def build(self) -> nn.Module:
        if self.sequence > self.shape.context:
            expected = f"at most the context of {self.shape.context} tokens"
            raise ConfigError([Problem("sequence", str(self.sequence), expected)])
        model = Decoder(self.shape)
        assert model.head is not None
        model.head.keeps_rest = self.config.parallel.compile  # the compiled loss passes over it
        return model

    def initialise(self, part: nn.Module, seed: int) -> None:
        initialise(part, seed)
        if self.settings.hub is not None:
            _, weights = load_hub(Path(self.settings.hub))
            copy_weights(part, weights, self.settings.hub)

    def data(self, split: Split) -> Data | None:
        given = self.config.data.sources if split == "train" else self.config.data.evaluate
        return Data([self._supply(source) for source in given], next_token) if given else None

    def inputs(self, batch: Tensors) -> tuple[Tensor, ...]:
        return (batch["inputs"],)

    def loss(self, output: Tensor, batch: Tensors) -> Tensor:
        logits, targets = output.flatten(0, 1), batch["targets"].flatten()  # [b * s, vocab], [b * s]
        return self._entropy(logits, targets, self.shape.vocab)

    def items(self, arrays: Arrays) -> int:
        return int(np.count_nonzero(arrays["targets"] != IGNORED))

    def flops(self) -> float:
        with torch.device("meta"):
            return float(Decoder(self.shape).flops_per_token(self.sequence))

    @cached_property
    def _entropy(self) -> Callable[[Tensor, Tensor, int], Tensor]:
        """Compiled like the blocks, it neither writes the logits in float32 nor their softmax."""
        return torch.compile(cross_entropy) if self.config.parallel.compile else cross_entropy

    @property
    def sequence(self) -> int:
        """Tokens of a sample."""
        return self.settings.sequence or self.shape.context

    @cached_property
    def shape(self) -> DecoderConfig:
        """The decoder's shape: that of the name or folder, with the changes of the settings."""
        changes = {
            name: value
            for name, value in dataclasses.asdict(self.settings).items()
            if value is not None and name in _CHANGEABLE
        }
        if self.settings.hub is not None:
            found, _ = load_hub(Path(self.settings.hub))
            return dataclasses.replace(found, **{name: changes[name] for name in changes if name == "dropout"})
        if self.settings.shape is not None:
            return dataclasses.replace(shape(self.settings.shape), **changes)
        return _from_parts(changes)

    def _supply(self, source: SourceSettings) -> Supply:
        samples = open_dataset(source.format or "tokens", Path(source.path), length=self.sequence)
        return Supply(source.name or source.path, samples, source.weight)


def cross_entropy(logits: Tensor, targets: Tensor, vocab: int) -> Tensor:
    """The sum over the targets that count, in float32. Columns from `vocab` on are no tokens; see `layers.Head`."""
    logits = logits.float()
    if logits.shape[-1] > vocab:
        rest = torch.arange(logits.shape[-1], device=logits.device) >= vocab
        logits = logits.masked_fill(rest, -torch.inf)
    return F.cross_entropy(logits, targets, reduction="sum", ignore_index=IGNORED)


def copy_weights(part: nn.Module, weights: Mapping[str, Tensor], source: str) -> None:
    """Copies the weights of a whole model into a part of any layout."""
    parameters = [(plain_name(name), parameter) for name, parameter in part.named_parameters()]
    missing = [name for name, _ in parameters if name not in weights]
    wrong = [
        f"{name} is {list(weights[name].shape)} there and {list(parameter.shape)} in the model"
        for name, parameter in parameters
        if name in weights and weights[name].shape != parameter.shape
    ]
    if missing or wrong:
        raise CheckpointMismatch(f"{source} has other weights: missing {missing[:5]}; {'; '.join(wrong[:5])}.")
    with torch.no_grad():
        for name, parameter in parameters:
            _copy(parameter, weights[name])


def _copy(parameter: Tensor, whole: Tensor) -> None:
    if isinstance(parameter, DTensor):
        mine = distribute_tensor(whole, parameter.device_mesh, parameter.placements, src_data_rank=None)
        parameter.to_local().copy_(mine.to_local())
    else:
        parameter.copy_(whole)


_CHANGEABLE: Final = {each.name for each in dataclasses.fields(DecoderConfig)}


def _from_parts(given: Mapping[str, Any]) -> DecoderConfig:
    needed: Sequence[str] = ("vocab", "dim", "layers", "heads", "context")
    missing = [name for name in needed if name not in given]
    if missing:
        expected = "model.shape, model.hub, or all of " + ", ".join(needed)
        raise ConfigError([Problem("shape", f"no {', '.join(missing)}", expected)])
    rest = {"kv_heads": given["heads"], "ffn": 4 * given["dim"]}
    return DecoderConfig(**{**rest, **given})
