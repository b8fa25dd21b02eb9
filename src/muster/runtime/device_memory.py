"""Recognises in a program's last output that an accelerator had no memory left: what was asked for, and what was free.

The texts are PyTorch's: `torch.OutOfMemoryError: CUDA out of memory. Tried to allocate ...`. Old versions raise a
RuntimeError, and list the figures in brackets. A context, cuBLAS, cuDNN and Triton say it in words of their own.
"""

from __future__ import annotations

import re
from typing import Final

# The line of an uncaught exception, which torch.distributed marks with its rank. A line that a program printed about an
# error that it caught does not begin with the name of an exception.
_RAISED: Final = re.compile(
    r"^(?:\[rank\d+\]: ?)?(?:[\w.]*OutOfMemoryError|[\w.]*AcceleratorError|RuntimeError): "
    r"(?P<told>(?:CUDA|HIP|XPU|MPS|NPU|cuDNN|Triton Error)\b.*(?:\bout of memory\b|STATUS_ALLOC_FAILED\b).*)$",
    re.MULTILINE,
)
_SIZE: Final = r"(\d[\d.]* (?:bytes|[KMGT]i?B))"
_ASKED: Final = re.compile(rf"Tried to allocate {_SIZE}")
_DEVICE: Final = re.compile(r"\bGPU (\d+)\b")
_FREE: Final = re.compile(rf"of which {_SIZE} is free|; {_SIZE} free")
_TOTAL: Final = re.compile(rf"total capacity of {_SIZE}|; {_SIZE} total capacity")
_OWN: Final = re.compile(rf"this process has {_SIZE} memory in use|; {_SIZE} already allocated")


def shortage(output: str) -> str:
    """What was missing on the device, in a sentence without an end; empty if the program died of something else."""
    raised = list(_RAISED.finditer(output))
    if not raised:
        return ""
    told = raised[-1]["told"]
    asked, free, total, own = (_first(pattern, told) for pattern in (_ASKED, _FREE, _TOTAL, _OWN))
    device = _first(_DEVICE, told)
    words = f"asked for {asked or 'more memory'}" + (f" on GPU {device}" if device else "")
    if free:
        words += f"; {free}" + (f" of {total}" if total else "") + " was free"
    return words + (f", and it held {own}" if own else "")


def _first(pattern: re.Pattern[str], text: str) -> str:
    found = pattern.search(text)
    return next((group for group in found.groups() if group), "") if found else ""
