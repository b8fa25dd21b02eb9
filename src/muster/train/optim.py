"""The optimizer: AdamW with decay groups, and a step that clips by the global norm and can be masked."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.optim import AdamW, Optimizer

from muster.train.mesh import DIMS, Mesh
from muster.train.precision import Scaler
from muster.train.settings import bounded


@dataclass(frozen=True)
class OptimSettings:
    """AdamW. Weight decay applies only to matrices, not to norms, biases (one dimension) or embeddings."""

    lr: float = bounded(3e-4, low=0.0)
    betas: tuple[float, float] = (0.9, 0.95)
    eps: float = bounded(1e-8, above=0.0)
    weight_decay: float = bounded(0.1, low=0.0)


def adamw(parts: Sequence[nn.Module], settings: OptimSettings, fused: bool | None = None) -> AdamW:
    """AdamW over the parts' parameters: fused on CUDA by default; one tensor after another on CPU.

    The groups are `decay` and `no decay`, each split by the parameters' mesh (fused kernels take one kind at a time).
    """
    groups: dict[Hashable, dict[str, Any]] = {}
    for parameter, decays in _with_decay(parts):
        mesh = parameter.device_mesh if isinstance(parameter, DTensor) else None
        decay = settings.weight_decay if decays else 0.0
        group = groups.setdefault((decays, mesh), {"params": [], "weight_decay": decay, "decays": decays})
        group["params"].append(parameter)
    if fused is None:
        fused = all(p.device.type == "cuda" for group in groups.values() for p in group["params"])
    return AdamW(
        list(groups.values()), lr=settings.lr, betas=settings.betas, eps=settings.eps, fused=fused, foreach=False
    )


def measure(
    parts: Sequence[nn.Module], mesh: Mesh, max_norm: float | None, scaler: Scaler | None = None
) -> tuple[Tensor, Tensor | None]:
    """The gradient's global norm, and the factor that clips it to `max_norm` and removes a loss scale, if any.

    Both are f32[] on the device, the same on every process. The norm is that of the true gradient, not finite if a part
    of it isn't. The gradients stay as they are: `step` takes the factor. No host sync.
    """
    norm = _norm(_local_grads(parts), mesh)
    factor = None
    if scaler is not None:
        factor = scaler.scale.reciprocal()
        norm = norm * factor
    if max_norm is not None:
        clipping = torch.clamp(max_norm / (norm + 1e-6), max=1.0)
        factor = clipping if factor is None else factor * clipping
    return norm, factor


def step(optimizer: Optimizer, skip: Tensor | None = None, factor: Tensor | None = None) -> None:
    """One step of the optimizer with the gradients multiplied by `factor`; none if `skip` is not zero. Both are f32[],
    the same on every process.

    The fused optimizer (CUDA) takes both on the device, without a host sync and without another pass over the
    gradients. For any other the host reads `skip`, and the gradients are multiplied in place.
    """
    if optimizer.defaults.get("fused"):
        # The fused kernels look for these two: they divide by the one, and do nothing where the other is not zero.
        given = {} if skip is None else {"found_inf": skip.float()}
        given |= {} if factor is None else {"grad_scale": factor.reciprocal()}
        vars(optimizer).update(given)
        try:
            optimizer.step()
        finally:
            for name in given:
                delattr(optimizer, name)
    elif skip is None or not bool(skip):
        if factor is not None:
            _multiply(optimizer, factor)
        optimizer.step()


def ready(optimizer: Optimizer) -> None:
    """Creates AdamW's state for every parameter, as its first step would, so that a checkpoint can be loaded."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            state = optimizer.state[parameter]
            if state:
                continue
            on_device = group["fused"] or group["capturable"]
            state["step"] = torch.zeros((), dtype=torch.float32, device=parameter.device if on_device else "cpu")
            state["exp_avg"] = torch.zeros_like(parameter, memory_format=torch.preserve_format)
            state["exp_avg_sq"] = torch.zeros_like(parameter, memory_format=torch.preserve_format)


def _with_decay(parts: Sequence[nn.Module]) -> Iterable[tuple[nn.Parameter, bool]]:
    """Each trainable parameter once, and whether it decays. Independent of the layout: DTensors have global shapes."""
    embeddings = {
        parameter
        for part in parts
        for module in part.modules()
        if isinstance(module, nn.Embedding)
        for parameter in module.parameters(recurse=False)
    }
    for part in parts:
        for parameter in part.parameters():
            if parameter.requires_grad:
                yield parameter, parameter.ndim >= 2 and parameter not in embeddings


def _local_grads(parts: Sequence[nn.Module]) -> list[tuple[Tensor, frozenset[str]]]:
    """The local part of each gradient, and the mesh dimensions over which the gradient is sharded."""
    found: list[tuple[Tensor, frozenset[str]]] = []
    for part in parts:
        for parameter in part.parameters():
            grad = parameter.grad
            if grad is None:
                continue
            if not isinstance(grad, DTensor):
                found.append((grad, frozenset()))
                continue
            names = grad.device_mesh.mesh_dim_names or ()
            # Not `isinstance(at, Shard)`: FSDP over tensor parallelism uses another class.
            divided = [name for name, at in zip(names, grad.placements, strict=True) if not at.is_replicate()]
            found.append((grad.to_local(), frozenset(divided)))
    return found


def _norm(grads: Sequence[tuple[Tensor, frozenset[str]]], mesh: Mesh) -> Tensor:
    """One sum over all processes, in which a replicated part counts once.

    Replicas may differ in the last bit. The result of one reduction is the same everywhere, so all decide alike.
    """
    total = torch.zeros((), device=mesh.device)
    for kind in sorted({kind for _, kind in grads}, key=sorted):
        copies = math.prod(mesh.size(name) for name in DIMS if name != "pp" and name not in kind)
        total += _square_sum([grad for grad, each in grads if each == kind], mesh.device) / copies
    return mesh.reduce(total).sqrt()


def _square_sum(grads: list[Tensor], device: torch.device) -> Tensor:
    full = [grad for grad in grads if grad.numel()]  # a shard may be empty
    if not full:
        return torch.zeros((), device=device)
    norms = torch._foreach_norm(full, 2, dtype=torch.float32)
    return torch.stack(norms).square().sum().to(device, non_blocking=True)


def _multiply(optimizer: Optimizer, factor: Tensor) -> None:
    by_device: dict[torch.device, list[Tensor]] = {}
    for group in optimizer.param_groups:
        for grad in (parameter.grad for parameter in group["params"]):
            if grad is not None:
                local = grad.to_local() if isinstance(grad, DTensor) else grad
                by_device.setdefault(local.device, []).append(local)
    for device, found in by_device.items():
        torch._foreach_mul_(found, factor.to(device))  # the host waits only for offloaded gradients
