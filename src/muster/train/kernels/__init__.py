"""Kernels of our own for NVIDIA GPUs. They are written in Triton, which PyTorch for CUDA brings along; a module that
needs it is called `..._triton` and is imported by the first use. Where they don't run, PyTorch's operations compute the
same."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Final

import torch

SEEN_ON: Final = 9  # Hopper, the generation on which the kernels were tried

usable = False  # as `look` has found; a plain value, since compiled code reads it


def look(device: torch.device) -> None:
    """Finds out whether the kernels run on this device. A model asks before its first step."""
    global usable
    usable = (
        device.type == "cuda"
        and torch.cuda.get_device_capability(device)[0] == SEEN_ON
        and find_spec("triton") is not None
    )
