"""Divides a model over a mesh: checks first, then tensor parallel, recomputation, compilation, shards or replicas."""

from __future__ import annotations

import copy
from collections.abc import Callable

import torch
from torch import nn

from muster.train import kernels
from muster.train.errors import MeshError
from muster.train.float8 import CAPABILITY, use_float8
from muster.train.mesh import Mesh
from muster.train.models.parts import divisible
from muster.train.models.tensor_styles import LocalStyle
from muster.train.parallel.ddp import replicate
from muster.train.parallel.fsdp import shard
from muster.train.parallel.pipeline import Pipeline, spans
from muster.train.parallel.prepared import Prepared
from muster.train.parallel.recompute import compile_parts, load_compiler, recompute
from muster.train.parallel.settings import ParallelSettings
from muster.train.parallel.tensor import split
from muster.train.parallel.whole import Whole
from muster.train.precision import Precision, autocast_forward


def parallelize(
    model: nn.Module,
    mesh: Mesh,
    settings: ParallelSettings | None = None,
    precision: Precision | None = None,
    initialise: Callable[[nn.Module], None] | None = None,
) -> Prepared:
    """The model divided over the mesh. Raises `MeshError` for what the model or the settings don't allow.

    `model` is on "meta", or has weights that are the same on every process. On "meta", `initialise` fills each part
    after its division, so no process holds more than its share. Don't use `model` afterwards, only `Prepared.parts`.
    """
    settings = settings or ParallelSettings()
    precision = precision or Precision()
    check(model, mesh, settings, precision=precision)
    kernels.look(mesh.device)
    if mesh.size("pp") == 1:
        part = _prepare(model, mesh, settings, precision, initialise, last=True)
        return Whole([part], mesh, settings, precision, precision.scaler(mesh.device))
    stages = spans(len(block_list(model)), mesh, settings)
    parts = []
    for stage in stages:
        part = copy.deepcopy(model)
        known = divisible(part)
        assert known is not None, "checked before"
        known.stage(stage.first, stage.end, stage.is_first, stage.is_last)
        parts.append(_prepare(part, mesh, settings, precision, initialise, last=stage.is_last))
    return Pipeline(parts, mesh, settings, precision, precision.scaler(mesh.device), [each.index for each in stages])


def check(
    model: nn.Module,
    mesh: Mesh,
    settings: ParallelSettings,
    sequence: int | None = None,
    precision: Precision | None = None,
) -> None:
    """Raises `MeshError`, with the numbers or the reason, for a combination that is not supported.

    `sequence` is the number of tokens in a sample, if it is known before the first batch.
    """
    tp, pp, layout = mesh.size("tp"), mesh.size("pp"), mesh.layout
    if tp > 1 or pp > 1:
        known = divisible(model)
        if known is None:
            name = type(model).__name__
            raise MeshError(
                f"{layout}: {name} can't be cut into tp or pp parts (it is no `Divisible`); use dp or fsdp."
            )
        known.check(tp, pp, sequence if settings.sequence else None)
    if pp > 1:
        spans(len(block_list(model)), mesh, settings)
    if settings.sequence and tp == 1:
        raise MeshError(f"parallel.sequence is on, but the mesh is {layout}: it splits over tp; give tp 2 or more.")
    if settings.offload and layout.fsdp == 1:
        raise MeshError(f"parallel.offload is on, but the mesh is {layout}: it moves shards; give fsdp 2 or more.")
    if settings.compile and tp > 1:
        _check_styles(model, mesh, settings)
    if precision is not None and precision.compute == "float8":
        _check_float8(model, mesh)
    if settings.checkpointing != "none" and not block_list(model):
        name = type(model).__name__
        raise MeshError(
            f"parallel.checkpointing is {settings.checkpointing}, but {name} has no `blocks` to compute again."
        )


def _check_styles(model: nn.Module, mesh: Mesh, settings: ParallelSettings) -> None:
    known = divisible(model)
    assert known is not None, "checked before"
    for name, style in known.tensor_plan(settings.sequence).items():
        if not isinstance(style, LocalStyle):
            raise MeshError(
                f"parallel.compile is on, but the mesh is {mesh.layout} and {name} is split by {type(style).__name__}: "
                "compiled blocks take no DTensors; use the styles of muster.train.models.tensor_styles, or tp 1."
            )


def _check_float8(model: nn.Module, mesh: Mesh) -> None:
    if mesh.size("tp") > 1:
        raise MeshError(f"precision is fp8, but the mesh is {mesh.layout}: its products take no tp; use tp 1, or bf16.")
    if not any(isinstance(module, nn.Linear) for block in block_list(model) for module in block.modules()):
        name = type(model).__name__
        raise MeshError(f"precision is fp8, but {name} has no `blocks` with linear layers to compute in it; use bf16.")
    if mesh.device.type == "cuda" and (has := torch.cuda.get_device_capability(mesh.device)) < CAPABILITY:
        name = torch.cuda.get_device_name(mesh.device)
        found, least = (".".join(map(str, each)) for each in (has, CAPABILITY))
        raise MeshError(
            f"precision is fp8, but {name} has compute capability {found}, and {least} is needed (L4, L40S, H100 and "
            "later); use bf16."
        )


def _prepare(
    part: nn.Module,
    mesh: Mesh,
    settings: ParallelSettings,
    precision: Precision,
    initialise: Callable[[nn.Module], None] | None,
    *,
    last: bool,
) -> nn.Module:
    """Divides one module over all dimensions except `pp`. No step changes a parameter's name."""
    blocks = block_list(part)
    loading = load_compiler() if settings.compile else None
    if mesh.size("tp") > 1:
        split(part, mesh, settings)
    if precision.compute == "float8":
        use_float8(blocks)
    recompute(blocks, settings.checkpointing)
    if settings.compile:
        compile_parts(part, blocks)
    sharded = mesh.size("fsdp") > 1 or (mesh.size("dp") > 1 and mesh.size("tp") > 1)
    if sharded:
        shard(part, blocks, mesh, settings, precision, last)
    else:
        autocast_forward(part, precision, mesh.device)
    _fill(part, mesh, settings, initialise)
    if loading is not None:
        loading.join()
    return replicate(part, mesh, settings) if mesh.size("dp") > 1 and not sharded else part


def _fill(
    part: nn.Module, mesh: Mesh, settings: ParallelSettings, initialise: Callable[[nn.Module], None] | None
) -> None:
    """Allocates a part on "meta", and fills every part with its initial weights."""
    if any(parameter.is_meta for parameter in part.parameters()):
        if initialise is None:
            raise MeshError("The model is on the meta device, so `initialise` must fill its weights; it was not given.")
        part.to_empty(device="cpu" if settings.offload else mesh.device)
        if (known := divisible(part)) is not None:
            known.tie()
        for module in part.modules():
            for name, buffer in module.named_buffers(recurse=False):
                setattr(module, name, buffer.to(mesh.device))  # only parameters are offloaded
    elif not settings.offload:
        part.to(mesh.device)
    if initialise is not None:
        initialise(part)


def block_list(model: nn.Module) -> list[nn.Module]:
    """The model's blocks, if it has a container `blocks`."""
    found = getattr(model, "blocks", None)
    if isinstance(found, nn.ModuleDict):
        return list(found.values())
    return list(found) if isinstance(found, nn.ModuleList | nn.Sequential) else []
