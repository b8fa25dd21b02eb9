"""`python -m muster.train` is the command of `muster.train.command`."""

from __future__ import annotations

import gc
import sys
import time
from importlib import import_module


def run() -> int:
    """Imports the command, and PyTorch with it, without garbage collections: they would find nothing, and take an
    eighth of the time. What was imported stays to the end, so later collections pass over it too."""
    began = time.perf_counter()
    gc.disable()
    command = import_module("muster.train.command")
    gc.freeze()
    gc.enable()
    return int(command.main(imports=time.perf_counter() - began))


if __name__ == "__main__":
    sys.exit(run())
