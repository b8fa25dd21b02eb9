"""Small snapshots for the tests of checkpoints, and processes that are killed while they save them."""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path

import torch

from muster.train.checkpoint import Found, Saver, Snapshot, newest, restore


def snapshot(step: int, rows: int = 6) -> Snapshot:
    """Every value depends on the step, so that no checkpoint is taken for another."""
    numbers = torch.Generator().manual_seed(step)
    model = {
        "embed.weight": torch.randn(rows, 5, generator=numbers),
        "norm.weight": torch.randn(5, generator=numbers).bfloat16(),
        "steps": torch.tensor(step),
        "mask": torch.rand(3, generator=numbers) > 0.5,
        "empty": torch.empty(0, 4),
    }
    optim = {"embed.weight.exp_avg": torch.randn(rows, 5, generator=numbers), "embed.weight.lr": step / 7}
    extra = {"torch": torch.Generator().manual_seed(step).get_state()}
    return Snapshot(model, optim, extra, {"step": step, "ledger": 2**64 - 1 - step, "layout": {"dp": 1}})


def blank(rows: int = 6) -> Snapshot:
    """The same names with other values."""
    return snapshot(10**6, rows)


def save(where: Path | str, *steps: int, keep: int = 3, keep_every: int = 0) -> None:
    with Saver(where, keep=keep, keep_every=keep_every) as saver:
        for step in steps:
            saver.save(snapshot(step), wait=True)


def check_loads(found: Found, step: int, rows: int = 6) -> None:
    """Everything in it is what was saved at the step, bit for bit."""
    state, expected = blank(rows), snapshot(step, rows)
    restored = restore(found, state)
    assert (restored.step, restored.shared, restored.world) == (step, expected.shared, 1)
    for name, value in expected.model.items():
        assert torch.equal(state.model[name], value), name
    assert torch.equal(state.optim["embed.weight.exp_avg"], expected.optim["embed.weight.exp_avg"])
    assert state.optim["embed.weight.lr"] == step / 7
    assert torch.equal(restored.extra["torch"], expected.extra["torch"])


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name not in (".lock", ".owner"))


def steps(where: Path | str) -> list[int]:
    found = newest(where)
    return [found.step] if found else []


def in_child(work: Callable[[], None]) -> int:
    """The exit status of a fork that does it; -9 when it was killed."""
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


CALLS = ("open", "write", "fsync", "mkdir", "rename", "unlink", "rmdir", "ftruncate", "pwrite")


def kill_at(number: int) -> None:
    """From now on, this process dies at its so-many-th call that changes a disk; a write is left half done."""
    count = 0
    lock = threading.Lock()

    def watch(name: str, real: Callable) -> Callable:
        def call(*args, **options):
            nonlocal count
            with lock:
                changes = name != "open" or (len(args) > 1 and args[1] & os.O_CREAT)
                count += bool(changes)
                if changes and count == number:
                    if name == "write":
                        real(args[0], args[1][: len(args[1]) // 2])
                    os.kill(os.getpid(), signal.SIGKILL)
            return real(*args, **options)

        return call

    for name in CALLS:
        setattr(os, name, watch(name, getattr(os, name)))
