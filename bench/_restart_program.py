"""A small model over two ranks, for `restart.py`: each step is saved, and then written to a file with its time.

Under Muster the last step is kept in the machine's memory; under torchrun, which has nothing for it, in a file.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from muster import runtime

STEP_SECONDS = 0.05


def main() -> None:
    folder = Path(sys.argv[1])
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 8))
    model = DistributedDataParallel(net)
    optimizer = torch.optim.AdamW(net.parameters())
    done = 0
    if place := _last(folder):
        state = torch.load(place / "state.pt", weights_only=True)
        net.load_state_dict(state["net"])
        optimizer.load_state_dict(state["optimizer"])
        done = state["step"]
    (folder / f"pid-{rank}").write_text(str(os.getpid()))
    with (folder / "steps").open("a", buffering=1) as steps:
        while True:
            done += 1
            loss = model(torch.randn(32, 64)).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            time.sleep(STEP_SECONDS)
            if rank == 0:
                steps.write(f"{done} {time.time()}\n")
                _save(folder, done, {"net": net.state_dict(), "optimizer": optimizer.state_dict(), "step": done})
            runtime.report(step=done, loss=loss.item())


def _save(folder: Path, step: int, state: dict[str, Any]) -> None:
    if runtime.active():
        assert runtime.checkpoint_in_memory(step, lambda place: torch.save(state, place / "state.pt"))
    else:
        torch.save(state, folder / "draft.pt")
        (folder / "draft.pt").replace(folder / "state.pt")


def _last(folder: Path) -> Path | None:
    if runtime.active():
        return runtime.last_checkpoint()
    return folder if (folder / "state.pt").exists() else None


if __name__ == "__main__":
    main()
