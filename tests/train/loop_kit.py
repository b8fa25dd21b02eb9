"""Real runs of the training loop for tests: forked from a process that has torch already, killed, continued, compared.

A scenario is a function that runs inside one fresh process (`gang_kit.gang(1, scenario, ..., group=False)`), which has
imported everything and started no thread. It starts runs of any number of ranks; each rank is a process of its own.
"""

from __future__ import annotations

import hashlib
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from gang_kit import free_port
from muster import wire
from muster.control.decode import decode
from muster.data.formats import tokens
from muster.runtime import reporter
from muster.runtime.spool import SpoolReader
from muster.train.config import read_config
from muster.train.errors import TrainError
from muster.train.loop import train

PATIENCE = 120.0  # seconds until a run counts as hung
PAUSE = 0.001  # seconds between two looks at a run: the core is for its ranks, and a save takes longer
STOPPED = 75  # exit codes of `python -m muster.train`
FAILED = 1

SMALL: dict[str, Any] = {
    "task": "language",
    "model": {"shape": "tiny-llama", "layers": 1, "dim": 32, "ffn": 48, "sequence": 16, "dropout": 0.1},
    "optimizer": {"lr": 3e-3},
    "schedule": {"warmup": 5},
    "print_every": 1,
    "device": "cpu",
}


def make_tokens(folder: Path, count: int = 4000, seed: int = 0) -> Path:
    """A made-up row of tokens with something to learn in it: each depends on the one before."""
    rng = np.random.default_rng(seed)
    following = rng.integers(0, 256, (256, 4))
    row = [0]
    for choice in rng.integers(0, 4, count - 1):
        row.append(int(following[row[-1], choice]))
    tokens.write(folder, [{"tokens": np.array(row)}], vocab=256)
    return folder


def settings(root: Path, data: Path, /, **more: Any) -> dict[str, Any]:
    """The small configuration with its checkpoints in `root`; sections given are joined with those of SMALL."""
    found = {**SMALL, "data": {"batch": 8, "sources": [{"path": str(data), "name": "made-up"}]}}
    found["checkpoint"] = {"where": str(root / "checkpoints"), "every": 10, "keep": 2}
    for name, value in more.items():
        found[name] = {**found[name], **value} if isinstance(found.get(name), dict) else value
    return found


@dataclass
class Run:
    """One start of a run: `world` ranks, with what they printed and reported."""

    root: Path
    config: dict[str, Any]
    world: int = 1
    envs: dict[str, str] = field(default_factory=dict)
    pids: list[int] = field(default_factory=list)
    codes: list[int] = field(default_factory=list)

    def start(self) -> Run:
        self.root.mkdir(parents=True, exist_ok=True)
        self.number = len(list(self.root.glob("start-*")))
        self.folder = self.root / f"start-{self.number}"
        port = free_port() if self.world > 1 else 0
        for rank in range(self.world):
            (self.folder / f"rank-{rank}").mkdir(parents=True)
            pid = os.fork()
            if pid == 0:
                os._exit(self._rank(rank, port))
            self.pids.append(pid)
        return self

    def end(self) -> Run:
        """Waits for every rank; a rank that hangs is killed and fails the test."""
        until = time.monotonic() + PATIENCE
        try:
            for pid in self.pids[len(self.codes) :]:
                self.codes.append(_wait(pid, until))
        finally:
            self.kill()
        return self

    def kill(self) -> None:
        """SIGKILL to every rank that is still there."""
        left = self.pids[len(self.codes) :]
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        self.codes += [_wait(pid, time.monotonic() + PATIENCE) for pid in left]

    def kill_when(self, look: Callable[[], bool]) -> bool:
        """Kills all ranks once `look` is true; False when the run ended before."""
        until = time.monotonic() + PATIENCE
        while not look():
            if os.waitpid(self.pids[0], os.WNOHANG) != (0, 0):
                self.codes.append(0)
                self.end()
                return False
            assert time.monotonic() < until, self.printed()
            time.sleep(PAUSE)
        self.kill()
        return True

    def printed(self, rank: int = 0) -> str:
        """Nothing before the rank has opened its output."""
        path = self.folder / f"out-{rank}"
        return path.read_text() if path.exists() else ""

    def reached(self, step: int) -> bool:
        return f"step {step}/" in self.printed()

    def lines(self) -> int:
        """Steps that this start has told of."""
        return self.printed().count("  loss ")

    def docs(self, kind: str, rank: int = 0) -> list[dict[str, Any]]:
        return [doc for doc in self._decoded(rank).docs if doc["type"] == kind]

    def notes(self) -> list[str]:
        return [doc["text"] for doc in self.docs("note")]

    def metric(self, name: str) -> dict[int, float]:
        """By step, as reported: every bit of it."""
        column = self._decoded(0).columns.get(name)
        return dict(zip(column.steps, column.values, strict=True)) if column else {}

    def _decoded(self, rank: int) -> Any:
        return decode(SpoolReader(self.folder / f"rank-{rank}").read(0, 1 << 30, final=True), {})

    def _rank(self, rank: int, port: int) -> int:
        """In the child: a rank as a launcher would start it."""
        try:
            self._enter(rank, port)
            return STOPPED if train(read_config(self.config)).stopped else 0
        except TrainError as error:
            sys.stdout.write(f"{type(error).__name__}: {error}\n")
            return FAILED
        except BaseException:
            traceback.print_exc()
            return 99
        finally:
            reporter.flush()
            sys.stdout.flush()

    def _enter(self, rank: int, port: int) -> None:
        out = os.open(self.folder / f"out-{rank}", os.O_WRONLY | os.O_CREAT, 0o600)
        os.dup2(out, 1)
        os.dup2(out, 2)
        reporter.PROCESS = os.getpid()  # this is the rank, not a data loader that a rank forked
        os.environ.update(self.envs)
        os.environ[wire.RANK_DIR] = str(self.folder / f"rank-{rank}")
        os.environ[wire.ATTEMPT] = str(self.number + 1)
        places = {
            wire.RANK: rank,
            wire.WORLD_SIZE: self.world,
            wire.LOCAL_RANK: rank,
            wire.LOCAL_WORLD_SIZE: self.world,
        }
        os.environ.update({name: str(value) for name, value in places.items()})
        os.environ.update({wire.MASTER_ADDR: "127.0.0.1", wire.MASTER_PORT: str(port)})


def states(root: Path, step: int) -> dict[str, str]:
    """A digest of every tensor file of a checkpoint, and of what says which tensors those are."""
    (folder,) = (root / "checkpoints").glob(f"step-{step:09d}*")
    files = [*folder.glob("*.bin"), folder / "index.json"]
    assert len(files) > 1
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(files)}


def _wait(pid: int, until: float) -> int:
    end = os.pidfd_open(pid)
    try:
        if not select.select([end], [], [], max(0.0, until - time.monotonic()))[0]:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise AssertionError(f"a rank did not end in {PATIENCE:g} s")
    finally:
        os.close(end)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
