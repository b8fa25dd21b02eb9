"""Checkpoints of training: written in the background, committed atomically, loaded into any layout.

    from muster.train import checkpoint

    with checkpoint.Saver("checkpoints", keep=3) as saver:              # on every rank; also s3://, gs://, az://
        found = saver.newest()                                         # the newest that verifies, or None
        if found is not None:
            restored = checkpoint.restore(found, snapshot)             # tensors in place; restored.shared, .extra
        ...
        saver.save(snapshot)                                           # blocks the caller only for the copy
        saver.save(snapshot, wait=True)                                # blocks until it is committed
    checkpoint.export(checkpoint.newest("checkpoints"), "model.safetensors")   # one process, no process group

A checkpoint is a folder (a prefix in S3) with these files:

    manifest.json      written last: step, serial, size and CRC-32 of every other file
    index.json         every tensor: its dtype, shape, and the position of each of its chunks
    shared.pt          what all ranks share: step, schedule, ledger, layout
    rank-00000.pt      the state of one rank: its random number generators
    rank-00000-0.bin   tensors that this rank wrote, byte for byte
"""

from __future__ import annotations

from muster.train.checkpoint.export import export
from muster.train.checkpoint.interval import Choice, choose, failures_per_second
from muster.train.checkpoint.load import Found, newest
from muster.train.checkpoint.restore import Restored, restore
from muster.train.checkpoint.rng import rng_state, set_rng_state
from muster.train.checkpoint.saver import Saver
from muster.train.checkpoint.saving import Saving
from muster.train.checkpoint.snapshot import Snapshot

__all__ = [
    "Choice",
    "Found",
    "Restored",
    "Saver",
    "Saving",
    "Snapshot",
    "choose",
    "export",
    "failures_per_second",
    "newest",
    "restore",
    "rng_state",
    "set_rng_state",
]
