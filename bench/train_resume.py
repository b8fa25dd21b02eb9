"""A run that is SIGKILLed a hundred times, at random instants and in the middle of saves, beside one left alone.

Every checkpoint of the killed run (weights, optimizer, random numbers, the ledger) has to be that of the straight run,
bit for bit. Ranks are forked from a process that has imported torch already, so that a start costs little.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import random
import signal
import socket
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from _machine import write
from muster import wire
from muster.data.formats import tokens
from muster.train.checkpoint import newest
from muster.train.config import read_config
from muster.train.loop import train

STEPS = 4000
EVERY = 5  # steps between saves
KEPT = 60  # checkpoints, the newest, that are compared
LONGEST = 1.0  # seconds until a kill, from the start of the processes: drawn evenly from 0
SEED = 11


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--world", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        _make_tokens(root / "data")
        began = time.perf_counter()
        assert _run(root, "straight", given.world, None) == [0] * given.world
        straight = time.perf_counter() - began
        found = _torment(root, given.kills, given.world)
        same, different = _compare(root)
    write("train_resume", {
        "world": given.world, "steps": STEPS, "save_every_steps": EVERY, **found,
        "straight_s": round(straight, 1), "checkpoints_equal": same, "checkpoints_different": different,
    })  # fmt: skip
    sys.exit(1 if different or not same else 0)


def _torment(root: Path, kills: int, world: int) -> dict[str, Any]:
    """Starts the run again and again, until it has been killed often enough, and then lets it end."""
    dice, done, cut_off, ended = random.Random(SEED), 0, 0, False
    where, began = root / "killed", time.perf_counter()
    while done < kills and not ended:
        codes = _run(root, "killed", world, dice.uniform(0.0, LONGEST))
        ended = codes == [0] * world
        done += not ended
        cut_off += any(where.glob(".saving-*"))
        sys.stderr.write(f"\r{done} of {kills} kills, {cut_off} in the middle of a save ")
    assert ended or _run(root, "killed", world, None) == [0] * world
    sys.stderr.write("\n")
    seconds = round(time.perf_counter() - began, 1)
    return {"kills": done, "in_the_middle_of_a_save": cut_off, "killed_run_s": seconds}


def _compare(root: Path) -> tuple[int, list[str]]:
    """How many checkpoints of the killed run are those of the straight one, and the names of those that are not."""
    found = {path.name for path in (root / "killed").glob("step-*")}
    last = [newest(root / each) for each in ("straight", "killed")]
    assert all(each is not None and each.step == STEPS for each in last)
    different = [name for name in sorted(found) if _digest(root / "straight" / name) != _digest(root / "killed" / name)]
    return len(found) - len(different), different


def _digest(folder: Path) -> list[str]:
    """Of all that was saved but the manifest, which holds the time."""
    files = [path for path in sorted(folder.iterdir()) if path.name != "manifest.json"]
    return [f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}" for path in files]


def _run(root: Path, name: str, world: int, seconds: float | None) -> list[int]:
    """Exit codes of the ranks; after so many seconds they are killed."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ranks = []
    for rank in range(world):
        pid = os.fork()
        if pid == 0:
            os._exit(_rank(root, name, rank, world, port))
        ranks.append(pid)
    if seconds is not None:
        until = time.monotonic() + seconds
        while time.monotonic() < until and os.waitid(os.P_PID, ranks[0], os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            time.sleep(0.001)
        for pid in ranks:
            os.kill(pid, signal.SIGKILL)
    return [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in ranks]


def _rank(root: Path, name: str, rank: int, world: int, port: int) -> int:
    """In the child."""
    out = os.open(root / f"{name}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(out, 1)
    os.dup2(out, 2)
    os.environ.update({
        wire.RANK: str(rank), wire.WORLD_SIZE: str(world), wire.LOCAL_RANK: str(rank),
        wire.LOCAL_WORLD_SIZE: str(world), wire.MASTER_ADDR: "127.0.0.1", wire.MASTER_PORT: str(port),
    })  # fmt: skip
    torch.set_num_threads(1)
    train(read_config({
        "task": "language", "steps": STEPS, "device": "cpu", "print_every": 100,
        "model": {"shape": "tiny-llama", "layers": 1, "dim": 32, "ffn": 48, "sequence": 16, "dropout": 0.1},
        "data": {"batch": 8, "sources": [{"path": str(root / "data"), "name": "made-up"}]},
        "checkpoint": {"where": str(root / name), "every": EVERY, "keep": KEPT},
    }))  # fmt: skip
    return 0


def _make_tokens(folder: Path) -> None:
    tokens.write(folder, [{"tokens": np.random.default_rng(0).integers(0, 256, 100_000)}], vocab=256)


if __name__ == "__main__":
    main()
