"""Exports a model: writes the weights of a checkpoint to a single safetensors file."""

from __future__ import annotations

from pathlib import Path

import torch

from muster.train.checkpoint.load import Found
from muster.train.checkpoint.restore import restore
from muster.train.checkpoint.snapshot import MODEL, Snapshot
from muster.train.errors import CheckpointError
from muster.train.models import safetensors


def export(found: Found, file: str | Path, *, dtype: torch.dtype | None = None) -> Path:
    """Writes the model's full tensors under their full names. Runs in one process, without a process group.

    `dtype` converts floating-point weights. The file appears when it is complete.
    """
    if found.gang.world > 1:
        raise CheckpointError(
            f"export(): {found.gang.world} ranks; expected one process. Call it without a process group."
        )
    entries = {key: entry for key, entry in found.index().entries.items() if key.startswith(MODEL)}
    if not entries:
        raise CheckpointError(f"{found.path} has no model to export.")
    state = {
        key.removeprefix(MODEL): torch.empty(
            entry.shape, dtype=dtype if dtype is not None and entry.dtype.is_floating_point else entry.dtype
        )
        for key, entry in entries.items()
    }
    restore(found, Snapshot(state), optim=False)
    path = Path(file)
    draft = path.with_name(f".{path.name}.writing")
    try:
        safetensors.write(draft, state, {"format": "pt", "step": str(found.step)})
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    return path
