"""Checkpoints in the memory of this machine, beside those on disk: cheap enough for every step, gone with the machine.

They have the layout and the checksums of those on disk (`checkpoints`), in a folder of /dev/shm that only its owner can
read, and `last_checkpoint()` takes the newest of both that is whole. The engine names the folder for gangs on one node
that may start again there, and removes it when the job is over.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from operator import index
from pathlib import Path
from typing import Final, SupportsIndex

from muster.runtime import checkpoints, manifest, processes, rank_info
from muster.runtime.checkpoint_search import COMMITTED
from muster.runtime.phases import phase

LARGEST_PART: Final = 4  # a checkpoint takes at most one part in this many of the machine's memory
LEFT_LEAST: Final = 1 << 30  # bytes that stay available to others, and
LEFT_PART: Final = 10  # one part in this many of the machine's memory


def checkpoint_in_memory(step: SupportsIndex, save: Callable[[Path], object]) -> bool:
    """Keeps the state of a step in this machine's memory, so that a restart here goes on from it:

        checkpoint_in_memory(step, lambda folder: torch.save(state, folder / "state.pt"))

    `save` writes into an empty folder. Only the newest is kept; it does not replace `checkpoint`, which survives the
    machine. False if nothing was kept: not in a job that may restart, a gang of several nodes, or too little memory.
    Raises what `save` raises.
    """
    number = index(step)
    if number < 0:
        raise ValueError(f"checkpoint_in_memory(): step got {number}; expected 0 or more.")
    if rank_info.rank() != 0:
        raise ValueError(
            f"checkpoint_in_memory(step={number}): rank {rank_info.rank()} of {rank_info.world_size()} would replace "
            "what rank 0 saves. Call it on rank 0 alone."
        )
    parent = checkpoints.memory_dir(create=True) if has_room(0) else None
    if parent is None:
        return False
    with phase("saving"), checkpoints.saving(parent, number) as folder:
        save(folder)
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        if not has_room(size):
            checkpoints.remove(folder)
            return False
        manifest.seal(folder, number, checkpoints.run_serial(), time.time(), rank_info.attempt())
        final = checkpoints.commit(parent, folder, number)
    for other in parent.iterdir():
        if other != final and COMMITTED.fullmatch(other.name):
            checkpoints.remove(other)
    return True


def has_room(size: int, more: int = 0) -> bool:
    """Whether a checkpoint of this many bytes may stay in memory, and `more` bytes be taken for it."""
    whole, free = processes.machine_memory()
    return size <= whole // LARGEST_PART and free - more >= max(LEFT_LEAST, whole // LEFT_PART)
