"""Serialization of small state: plain values and tensors, loaded without running code."""

from __future__ import annotations

import io
from typing import Any

import torch

from muster.train.errors import CheckpointError


def dump(value: Any, what: str) -> bytes:
    """Serializes plain values. Raises for a value that could not be loaded later."""
    buffer = io.BytesIO()
    try:
        torch.save(value, buffer)
        load(buffer.getvalue())
    except Exception as error:
        first = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise CheckpointError(
            f"{what} can't be saved: {first} Put numbers, text, lists, dicts and tensors into it alone."
        ) from error
    return buffer.getvalue()


def load(data: bytes) -> Any:
    return torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
