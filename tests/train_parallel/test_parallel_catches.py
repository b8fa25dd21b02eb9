"""The equivalence suite can fail: faults of the kind that cost others weeks are put in on purpose; each is found."""

from __future__ import annotations

from functools import cache
from typing import Any
from unittest.mock import patch

import pytest
from equal_kit import Case, Outcome, differences, divided, merge, plain
from torch import nn
from torch.distributed.tensor import DTensor, Replicate

from gang_kit import gang
from muster.train import optim
from muster.train.mesh import Mesh
from muster.train.parallel import ParallelSettings, pipeline, prepared, whole

S = ParallelSettings
_forward_backward = whole.Whole._forward_backward
_reducing = whole.Whole._reducing
_finish = prepared._finish


def mean_of_sums(self: Any, micros: Any, loss_fn: Any, factor: float) -> Any:
    """The mean that data parallelism takes over its ranks is not made up for."""
    return _forward_backward(self, micros, loss_fn, factor / self.mesh.data_world)


def own_alone(self: Mesh, tensor: Any, *_names: str, **_options: Any) -> Any:
    """Every rank keeps its own loss and norm."""
    return tensor


def last_alone(self: Any, model: nn.Module, *, last: bool) -> Any:
    """Gradients of all but the last micro-batch are forgotten."""
    for parameter in model.parameters() if last else ():
        parameter.grad = None
    return _reducing(self, model, last=last)


def mean_of_means(self: Any, output: Any, number: Any) -> Any:
    """A pipeline whose micro-batches all count alike, however many targets they have."""
    batch = self.micros[int(number)].batch
    loss = self.loss_fn(output, batch)
    self.losses.append(loss.detach())
    return loss / (batch >= 0).sum() / len(self.micros)


def half_for_copies(part: nn.Module) -> None:
    """Gradients of what each tensor-parallel rank has a copy of come out at half."""
    _finish(part)
    for parameter in part.parameters():
        if isinstance(parameter, DTensor) and parameter.placements == (Replicate(),) and parameter.grad is not None:
            parameter.grad.mul_(0.5)


FAULTS: dict[str, tuple[Case, Any, str, Any]] = {
    "mean of sums": (Case("", {"dp": 2}), whole.Whole, "_forward_backward", mean_of_sums),
    "norms of each rank alone": (Case("", {"fsdp": 2}, max_norm=0.5), Mesh, "reduce", own_alone),
    "micro-batches forgotten": (Case("", {"fsdp": 2}, micros=2), whole.Whole, "_reducing", last_alone),
    "mean of means": (Case("", {"pp": 2}, micros=2), pipeline._Loss, "__call__", mean_of_means),
    "half for copies": (Case("", {"tp": 2}), prepared, "_finish", half_for_copies),
    "sums over tp not taken": (Case("", {"tp": 2}, S(sequence=True)), prepared, "_finish", lambda part: None),
    "copies counted twice": (Case("", {"tp": 2}), optim, "DIMS", ("pp",)),
    "none": (Case("", {"tp": 2}), optim, "DIMS", optim.DIMS),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found(name: str) -> None:
    found = differences(_faulty()[name], plain(FAULTS[name][0]))
    assert not [words for words in found if "on one side alone" in words]  # compared, not merely left out
    assert bool(found) == (name != "none")


def faulty() -> dict[str, Outcome]:
    found = {}
    for name, (case, target, attribute, fault) in FAULTS.items():
        with patch.object(target, attribute, fault):
            found[name] = divided(case)
    return found


@cache
def _faulty() -> dict[str, Outcome]:
    ranks = gang(2, faulty)
    return {name: merge([rank[name] for rank in ranks], same=False) for name in FAULTS}
