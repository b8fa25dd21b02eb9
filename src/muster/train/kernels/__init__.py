"""Kernels of our own for NVIDIA GPUs. They are written in Triton, which PyTorch for CUDA brings along; a module that
needs it is called `..._triton` and is imported by the first use. Where they don't run, PyTorch's operations compute the
same."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

import torch

SEEN_ON: Final = 9  # Hopper, the generation on which the kernels were tried

SHARE: Final = 32  # of the device's memory that attention's backward pass may take beside what is trained

usable = False  # as `look` has found; plain values, since compiled code reads them
scores_most = 0  # bytes of that share


def look(device: torch.device) -> None:
    """Finds out whether the kernels run on this device. A model asks before its first step."""
    global usable, scores_most
    usable = (
        device.type == "cuda"
        and torch.version.hip is None  # AMD's devices have capabilities of the same numbers
        and torch.cuda.get_device_capability(device)[0] == SEEN_ON
        and torch.backends.cudnn.is_available()  # type: ignore[no-untyped-call]
        and find_spec("triton") is not None
    )
    scores_most = torch.cuda.get_device_properties(device).total_memory // SHARE if usable else 0
