"""The platform's requests to a rank, read from a shared page in nanoseconds: no system call, no signal handler.

Each rank of a gang sees a request at its own step. If they must act together, let one decide and broadcast it, or
reduce the flag over the gang.
"""

from __future__ import annotations

import mmap
import os
import struct
from pathlib import Path
from typing import Final

from muster import wire
from muster.runtime import reporter
from muster.runtime.rank_info import warn

_DEADLINE: Final = struct.Struct("=d")  # native: copied as eight bytes at once
_KEEP: Final = struct.Struct(f"<{wire.CONTROL_KEEP_MAX}q")
_NO_REQUESTS: Final = bytes(wire.CONTROL_BYTES)

_block: mmap.mmap | bytes | None = None
_saves_seen = 0  # requests before the first look count: an attempt starts with none
_listens = False


def should_stop() -> bool:
    """True once the platform wants the rank to save and exit. Call it every step. Always False standalone."""
    return (_block or _open())[wire.CONTROL_STOP_AT] != 0


def stop_deadline() -> float | None:
    """The wall-clock time (as `time.time()`) after which a rank that still runs is killed; None when there is none."""
    (deadline,) = _DEADLINE.unpack_from(_block or _open(), wire.CONTROL_DEADLINE_AT)
    return float(deadline) or None


def should_save() -> bool:
    """True once for each request to save now (requests between two calls count as one). Always False standalone.

    The first call tells the platform that this program can: `muster save` is refused for one that never asks.
    """
    global _saves_seen
    asked = (_block or _open())[wire.CONTROL_SAVE_AT]
    if not _listens:
        _tell()
    changed = asked != _saves_seen
    _saves_seen = asked
    return changed


def kept_steps() -> frozenset[int]:
    """Steps of checkpoints that are not to be pruned, because jobs have yet to start from them."""
    told = _KEEP.unpack_from(_block or _open(), wire.CONTROL_KEEP_AT)
    return frozenset(step - 1 for step in told if step > 0)


def _tell() -> None:
    global _listens
    _listens = True
    if _block is not _NO_REQUESTS:
        reporter.document("listens")


def _open() -> mmap.mmap | bytes:
    global _block
    path = os.environ.get(wire.CONTROL)
    block: mmap.mmap | bytes = _NO_REQUESTS
    if path is not None:
        reporter.start()  # its spool shows the launcher that this rank reads the block
        try:
            with Path(path).open("rb") as file:
                block = mmap.mmap(file.fileno(), wire.CONTROL_BYTES, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:  # ValueError: shorter than a block
            warn(f"requests to stop or save will not be seen: {wire.CONTROL}={path!r} cannot be mapped: {error}.")
    _block = block
    return block
