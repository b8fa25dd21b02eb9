"""NCCL's flight record of a rank: PyTorch writes it to a file when a collective times out; it is kept with the run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

from muster.runtime import processes
from muster.runtime.files import keep_bytes
from muster.runtime.untrusted import read_plain

BYTES: Final = 64 << 20
# Either of the first turns the record on; the others name the file, but for the rank at its end. By PyTorch's age.
_ON: Final = ("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE")
_NAMES: Final = ("TORCH_FR_DUMP_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
_USUAL: Final = "/tmp/nccl_trace_rank_"  # noqa: S108  (PyTorch's)


def keep_flight_record(pid: int, rank: int, folder: Path) -> bool:
    """Gives the record of the rank, whose process has this id, to the launcher as a file of the run; False if there is
    none. `folder` is the rank's own."""
    words = processes.read(f"/proc/{pid}/environ").split(b"\0")
    env = dict(os.fsdecode(word).partition("=")[::2] for word in words)
    if not any(env.get(name, "0") not in ("", "0") for name in _ON):
        return False
    prefix = next((env[name] for name in _NAMES if env.get(name)), _USUAL)
    path = Path(f"{prefix}{rank}")
    try:
        data = read_plain(path.parent, path.name, BYTES)
        keep_bytes(folder, data, {"type": "artifact", "path": f"stacks/{path.name}", "kind": "file", "about": {}})
    except OSError:  # most often there is none: no collective has timed out
        return False
    return True
