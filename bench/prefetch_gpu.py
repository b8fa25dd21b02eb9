"""Whether batches that are copied beside a step are its own, on a GPU, however late the step reads them.

    PYTHONPATH=src python bench/prefetch_gpu.py

No times: the tests have no GPU, so what only one can show is here. Writes nothing.
"""

from __future__ import annotations

import sys

import numpy as np
import torch

from muster.data.collate import Arrays
from muster.train.prefetch import Prefetch

ROWS, STEPS = 1 << 18, 200


def main() -> None:
    device = torch.device("cuda", 0)
    prefetch, load, sums, addresses = Prefetch(device), torch.ones(2048, 2048, device=device), [], set()
    arrays: Arrays = {"inputs": np.zeros((ROWS, 4), np.int64)}
    for step in range(STEPS):
        arrays["inputs"][:] = step  # the same memory: it was copied when `send` returned
        prefetch.send([arrays])
        arrays["inputs"][:] = -1
        (batch,) = prefetch.take()
        addresses.add(batch["inputs"].data_ptr())
        for _ in range(step % 5):
            load = (load @ load).clamp(0, 1)
        sums.append(batch["inputs"].sum())
    wrong = sum(int(found) != 4 * ROWS * step for step, found in enumerate(sums))
    sys.stdout.write(f"{wrong} of {STEPS} batches wrong, in {len(addresses)} places of memory\n")
    sys.exit(wrong > 0 or len(addresses) == STEPS)  # memory of steps that have ended is used again


if __name__ == "__main__":
    main()
