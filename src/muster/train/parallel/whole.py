"""The step of a model without pipeline stages: one micro-batch after the other, with accumulated gradients."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from torch.nn.parallel import DistributedDataParallel

from muster.train.parallel.prepared import LossFn, Micro, Prepared, bare


@dataclass
class Whole(Prepared):
    """A single process, DDP, FSDP, tensor parallelism, and combinations of them."""

    def _forward_backward(self, micros: Sequence[Micro], loss_fn: LossFn, factor: float | Tensor) -> Tensor:
        (model,) = self.parts
        total = torch.zeros((), device=self.mesh.device)
        for number, micro in enumerate(micros):
            with self._reducing(model, last=number == len(micros) - 1):
                loss = loss_fn(model(*micro.inputs), micro.batch)
                (loss * factor).backward()  # type: ignore[no-untyped-call]
            total += loss.detach()
        return total

    def _evaluate(self, micros: Sequence[Micro], loss_fn: LossFn) -> Tensor:
        (model,) = self.parts
        inner = bare(model)  # DDP's own forward would expect a backward pass
        total = torch.zeros((), device=self.mesh.device)
        for micro in micros:
            total += loss_fn(inner(*micro.inputs), micro.batch)
        return total

    def _reducing(self, model: nn.Module, *, last: bool) -> AbstractContextManager[None]:
        """Reduces gradients over the data ranks only with the last micro-batch; for shards see `defer_reduce`."""
        if isinstance(model, DistributedDataParallel):
            return nullcontext() if last else model.no_sync()
        if isinstance(model, FSDPModule):
            shards = self.mesh.size("fsdp") > 1 and not self.settings.defer_reduce
            model.set_is_last_backward(last)
            model.set_requires_gradient_sync(last or shards)
            model.set_requires_all_reduce(last)
        return nullcontext()
