"""A model divided over a mesh, and its step: computes the global loss and the gradients of micro-batches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor
from torch.nn.parallel import DistributedDataParallel

from muster.train.errors import MeshError
from muster.train.mesh import Mesh
from muster.train.parallel.settings import ParallelSettings
from muster.train.precision import Precision, Scaler

LossFn = Callable[[Any, Any], Tensor]  # (output of the model, batch) -> sum of the losses of the batch's items


@dataclass(frozen=True)
class Micro:
    """One micro-batch on the device: the arguments of the model's forward, and the whole batch for the loss."""

    inputs: tuple[Tensor, ...]
    batch: Any


@dataclass
class Prepared(ABC):
    """A divided model. `parts` are this process's modules: one, or its stages in an interleaved pipeline."""

    parts: list[nn.Module]
    mesh: Mesh
    settings: ParallelSettings
    precision: Precision
    scaler: Scaler | None

    def forward_backward(self, micros: Sequence[Micro], loss_fn: LossFn, total: int | Tensor) -> Tensor:
        """Adds this step's gradients: of the loss summed over the global batch, divided by its `total` items.

        Returns that loss, f32[] on the device, the same on every process. No host sync. `loss_fn` returns the sum over
        a micro-batch; `total` counts the items of all data ranks and micro-batches. With float16 the gradients (not the
        loss) are multiplied by `scaler.scale` until `optim.step` removes it.
        """
        self._check(micros)
        # Data-parallel reductions compute the mean over the data ranks, so each part is scaled up by their number.
        factor: float | Tensor = self.mesh.data_world / total
        if self.scaler is not None:
            factor = factor * self.scaler.scale
        loss = self._forward_backward(micros, self._scored(loss_fn), factor) / total
        for part in self.parts:
            _finish(part)
        return self._everywhere(loss)

    def evaluate(self, micros: Sequence[Micro], loss_fn: LossFn) -> Tensor:
        """The sum of the losses over all data ranks, f32[] on the device, the same on every process; no gradients."""
        self._check(micros)
        was = [part.training for part in self.parts]
        for part in self.parts:
            part.eval()
        with torch.no_grad():
            loss = self._evaluate(micros, self._scored(loss_fn))
        self.reshard()
        for part, training in zip(self.parts, was, strict=True):
            part.train(training)
        return self._everywhere(loss)

    def reshard(self) -> None:
        """Frees weights that FSDP gathered for a forward pass without a backward pass."""
        for part in self.parts:
            for module in part.modules():
                if isinstance(module, FSDPModule):
                    module.reshard()

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """This process's parameters by the names that they have in the whole model."""
        for part in self.parts:
            yield from bare(part).named_parameters()

    def _check(self, micros: Sequence[Micro]) -> None:
        if not micros:
            raise MeshError("A step needs one micro-batch or more, but there are none.")
        tp = self.mesh.size("tp")
        if self.settings.sequence and (odd := [m for m in micros if m.inputs[0].shape[1] % tp]):
            tokens = odd[0].inputs[0].shape[1]
            raise MeshError(f"parallel.sequence: sequences of {tokens} tokens don't divide by tp {tp}.")

    def _everywhere(self, loss: Tensor) -> Tensor:
        """The sum over data ranks and stages, and the mean over `tp`, in one reduction: all get the same bits."""
        return self.mesh.reduce(loss / self.mesh.size("tp"))

    @abstractmethod
    def _forward_backward(self, micros: Sequence[Micro], loss_fn: LossFn, factor: float | Tensor) -> Tensor:
        """Adds the gradients of `factor` times the loss. Returns this process's summed loss, without the factor."""

    @abstractmethod
    def _evaluate(self, micros: Sequence[Micro], loss_fn: LossFn) -> Tensor:
        """The sum of this process's own losses."""

    def _scored(self, loss_fn: LossFn) -> LossFn:
        def score(output: Any, batch: Any) -> Tensor:
            with self.precision.autocast(self.mesh.device):
                return loss_fn(output, batch).float()

        return score


def bare(part: nn.Module) -> nn.Module:
    """The module inside DDP: its parameters have the names of the whole model, without DDP's prefix."""
    return part.module if isinstance(part, DistributedDataParallel) else part


def _finish(part: nn.Module) -> None:
    """Redistributes gradients to the placement of their parameters: tensor parallelism leaves some as partial sums."""
    for parameter in part.parameters():
        grad = parameter.grad
        if isinstance(grad, DTensor) and isinstance(parameter, DTensor) and grad.placements != parameter.placements:
            parameter.grad = grad.redistribute(placements=parameter.placements)
