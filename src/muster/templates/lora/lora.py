"""Low-rank adapters: beside each frozen linear layer a product of two thin matrices, which alone is trained."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn


class Adapted(nn.Module):
    """The frozen layer, plus `scale · up · down` of its input. `up` begins at zero: at first nothing changes."""

    def __init__(self, frozen: nn.Linear, rank: int, scale: float) -> None:
        super().__init__()
        self.frozen, self.scale = frozen, scale
        like = {"device": frozen.weight.device, "dtype": frozen.weight.dtype}
        self.adapter_down = nn.Parameter(torch.randn(rank, frozen.in_features, **like) * frozen.in_features**-0.5)
        self.adapter_up = nn.Parameter(torch.zeros(frozen.out_features, rank, **like))

    def forward(self, x: Tensor) -> Tensor:
        return self.frozen(x) + self.scale * (x @ self.adapter_down.T @ self.adapter_up.T)


def attach(model: nn.Module, rank: int, scale: float) -> None:
    """Freezes the model, and puts an adapter beside each of its linear layers."""
    model.requires_grad_(False)
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.Linear):
                setattr(parent, name, Adapted(child, rank, scale))


def adapters(model: nn.Module) -> dict[str, Tensor]:
    """All that is trained, and all that is saved."""
    return {name: each.detach() for name, each in model.named_parameters() if each.requires_grad}


def merged(model: nn.Module) -> nn.Module:
    """A copy in which the adapters are part of the weights: it computes the same, and has the shape of the base."""
    plain = copy.deepcopy(model)
    for parent in list(plain.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, Adapted):
                child.frozen.weight.data += child.scale * (child.adapter_up.data @ child.adapter_down.data)
                setattr(parent, name, child.frozen)
    return plain
