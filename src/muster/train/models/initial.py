"""Initial weights: they depend only on the seed and the parameter's name, not on the layout or the device."""

from __future__ import annotations

import math
import os
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor

from muster import wire
from muster.train.models.parts import divisible

MOST_THREADS: Final = 16
_WRAPPERS: Final = ("_orig_mod.", "_checkpoint_wrapped_module.")  # of compiled and of recomputed blocks


def initialise(model: nn.Module, seed: int) -> None:
    """Fills every parameter in place: matrices normal, with a `Divisible` model's own `init_std(name)` and
    1/sqrt(inputs) for any other; vectors called `bias` zero, other vectors (the scales of norms) one.

    Works for a whole model, for a pipeline stage, and for DTensors of any placement: each rank draws the whole tensor
    on the CPU and keeps its own part, without communication. A model on "meta" must be materialized first, with
    `model.to_empty(device=...)`. A `Divisible` model is tied here.
    """
    rule, known = None, divisible(model)
    if known is not None:
        known.tie()
        rule = known.init_std
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.is_meta:
                raise ValueError(f"{name} has no storage: call model.to_empty(device=...) first.")
        for kept, whole in _drawn(dict(model.named_parameters()), rule, seed):
            _keep(kept, whole)


def _drawn(
    parameters: Mapping[str, Tensor], rule: Callable[[str], float] | None, seed: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """Every parameter with its initial value. Each has a generator of its own, so several are drawn at a time."""
    ranks = int(os.environ.get(wire.LOCAL_WORLD_SIZE, "1"))
    several = max(1, min(MOST_THREADS, (os.cpu_count() or 1) // max(1, ranks)))
    with ThreadPoolExecutor(several, "muster-initial") as pool:
        waiting: deque[tuple[Tensor, Future[Tensor]]] = deque()
        for name, parameter in parameters.items():
            waiting.append((parameter, pool.submit(_whole, plain_name(name), parameter.shape, rule, seed)))
            if len(waiting) > several:
                first, drawn = waiting.popleft()
                yield first, drawn.result()
        for first, drawn in waiting:
            yield first, drawn.result()


def plain_name(name: str) -> str:
    """A parameter's name without the parts that wrappers of blocks add."""
    for wrapper in _WRAPPERS:
        name = name.replace(wrapper, "")
    return name


def _whole(name: str, shape: torch.Size, rule: Callable[[str], float] | None, seed: int) -> Tensor:
    if len(shape) < 2:
        return torch.zeros(shape) if name.endswith("bias") else torch.ones(shape)
    # The CPU's generator takes 32 bits of a seed, so the seed and the name must both reach those.
    generator = torch.Generator("cpu").manual_seed(zlib.crc32(f"{seed}/{name}".encode()))
    std = rule(name) if rule is not None else 1.0 / math.sqrt(math.prod(shape[1:]))
    return torch.empty(shape, dtype=torch.float32).normal_(0.0, std, generator=generator)


def _keep(parameter: Tensor, whole: Tensor) -> None:
    """Copies this rank's part of `whole` into the parameter."""
    if isinstance(parameter, DTensor):
        mine = distribute_tensor(whole, parameter.device_mesh, parameter.placements, src_data_rank=None)
        parameter.to_local().copy_(mine.to_local())
    else:
        parameter.copy_(whole)
