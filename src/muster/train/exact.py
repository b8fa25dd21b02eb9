"""`exact: true`: a run that repeats to the bit on a GPU, by deterministic operations; others are refused by name.

Seeds, random numbers and the order of the data repeat without it, and so does a run on CPUs. What differs on a GPU is
the order in which some operations add up: those take their deterministic algorithm here, the compiler no longer chooses
reductions by their time, and attention takes a backward pass of our own on Hopper, and flash's or the plain one's else.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import torch

from muster.train.errors import NotExact

WORKSPACE: Final = "CUBLAS_WORKSPACE_CONFIG"
WORKSPACES: Final = (":4096:8", ":16:8")  # those with which cuBLAS repeats its products
_REFUSED: Final = re.compile(r"(\S+) does not have a deterministic implementation")


@contextmanager
def exact(on: bool) -> Iterator[None]:
    """Deterministic operations within the block, if `on`. Raises NotExact for one that has no deterministic algorithm.

    It has to begin before the process uses a GPU: cuBLAS reads its part from the environment once.
    """
    if not on:
        yield
        return
    _set_workspace()
    with ExitStack() as after:
        for now, change, wanted in _switches():
            after.callback(change, now)
            change(wanted)
        try:
            yield
        except RuntimeError as error:
            found = _REFUSED.search(str(error))
            if found is None:
                raise
            raise NotExact(
                f"exact is on, and {found[1]} has no deterministic algorithm on this device, so the run could not be "
                "repeated to the bit. Use another operation in the model or the loss, or leave `exact` out."
            ) from error


def _switches() -> list[tuple[Any, Callable[[Any], object], Any]]:
    """Each switch of PyTorch as it is, how it is set, and what it must be."""
    cuda: Any = torch.backends.cuda
    cudnn = torch.backends.cudnn
    memory: Any = torch.utils.deterministic
    return [
        (torch.are_deterministic_algorithms_enabled(), torch.use_deterministic_algorithms, True),
        # What no operation has written is not read here, and to fill all of it took 23 ms of a step of 355 on an H200.
        (memory.fill_uninitialized_memory, lambda value: setattr(memory, "fill_uninitialized_memory", value), False),
        (cudnn.deterministic, lambda value: setattr(cudnn, "deterministic", value), True),
        (cudnn.benchmark, lambda value: setattr(cudnn, "benchmark", value), False),
        # Their backward passes add up in any order. Flash has one that does not, and so have the plain attention and
        # `kernels.attention`, which takes the place of cuDNN's where it runs.
        (cuda.mem_efficient_sdp_enabled(), cuda.enable_mem_efficient_sdp, False),
        (cuda.cudnn_sdp_enabled(), cuda.enable_cudnn_sdp, False),
    ]


def _set_workspace() -> None:
    given = os.environ.get(WORKSPACE)
    if given is None and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        raise NotExact(
            f"exact is on, but this process uses a GPU already, and {WORKSPACE} is not set: products may differ. Set "
            f"{WORKSPACE}={WORKSPACES[0]} before it starts."
        )
    if given is not None and given not in WORKSPACES:
        raise NotExact(
            f"exact is on, but {WORKSPACE} is {given!r}, with which products may differ; expected one of "
            f"{', '.join(WORKSPACES)}, or nothing."
        )
    os.environ[WORKSPACE] = given or WORKSPACES[0]
