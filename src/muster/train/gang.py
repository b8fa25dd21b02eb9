"""The processes of a run: joining them, collecting requests to any of them, and one small all-reduce per step.

Requests reach ranks at different times, but all ranks must stop or save after the same step. So each step has one
all-reduce of 64 bytes over the host's network: the number of items, the sum of the sample hashes, and the requests. It
is started while the device still runs the step before, so training doesn't wait for it.
"""

from __future__ import annotations

import math
import os
import signal
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Final, Literal

import torch
import torch.distributed as dist

from muster import runtime, wire
from muster.train.errors import MeshError

SPOT_SECONDS: Final = 120.0  # seconds until the node is lost, if the file contains no Unix time
LOOK_SECONDS: Final = 1.0  # seconds between two checks for that file and the profile request

Device = Literal["auto", "cpu", "cuda"]


@dataclass(frozen=True, slots=True)
class Gang:
    """This process and its process group."""

    device: torch.device
    rank: int
    world: int
    talk: dist.ProcessGroup | None  # on the host, for agreements; None for a single process

    @property
    def leads(self) -> bool:
        return self.rank == 0

    def soonest(self, deadline: float | None) -> float | None:
        """The earliest deadline of any rank: a notice may have reached only one. All ranks call it together."""
        found = torch.tensor(deadline if deadline is not None else math.inf, dtype=torch.float64)
        if self.talk is not None:
            dist.all_reduce(found, dist.ReduceOp.MIN, group=self.talk)
        return None if math.isinf(found) else float(found)


def join(device: Device) -> Gang:
    """Joins the process group: NCCL on GPUs, gloo on CPUs. Does nothing for a single process, or if already joined.

    Raises MeshError if `cuda` is requested and the machine has fewer GPUs than ranks.
    """
    where = choose_device(device)
    cuda = where.type == "cuda"
    if cuda:
        torch.cuda.set_device(where)
    elif local_world() > 1 and "OMP_NUM_THREADS" not in os.environ:
        torch.set_num_threads(1)  # more threads would compete with the other ranks for the cores
    if runtime.world_size() > 1 and not dist.is_initialized():
        dist.init_process_group("cpu:gloo,cuda:nccl" if cuda else "gloo", device_id=where if cuda else None)
    if not dist.is_initialized():
        return Gang(where, 0, 1, None)
    return Gang(where, dist.get_rank(), dist.get_world_size(), dist.new_group(backend="gloo"))


def leave() -> None:
    """Leaves the process group, after a barrier. After an error, the end of the process informs the others."""
    if dist.is_initialized():
        dist.barrier()  # with gloo, leaving while another rank still communicates can abort both
        dist.destroy_process_group()


def choose_device(device: Device) -> torch.device:
    """A separate GPU for each rank of this machine, or the CPU for all."""
    gpus, ranks = torch.cuda.device_count(), local_world()
    if device == "cuda" and gpus < ranks:
        raise MeshError(f"device: cuda, but this machine shows {gpus} GPUs to its {ranks} processes. Give one to each.")
    if device == "cpu" or gpus < ranks:
        return torch.device("cpu")
    return torch.device("cuda", runtime.local_rank())


def local_world() -> int:
    """The number of the run's processes on this machine."""
    return int(os.environ.get(wire.LOCAL_WORLD_SIZE, runtime.world_size()))


@dataclass(slots=True)
class PendingRequests:
    """Requests to one rank, or to any rank after the all-reduce."""

    stop: int = 0  # by the platform
    term: int = 0  # by SIGTERM
    spot: int = 0  # by a spot notice
    save: int = 0
    profile: int = 0
    keep: int = 0  # in memory

    def leaving(self) -> str | None:
        """The reason to stop the run; None if there is none."""
        words = ((self.stop, "the platform asked to stop"), (self.term, "SIGTERM"), (self.spot, "a spot notice"))
        return next((why for count, why in words if count), None)


@dataclass(slots=True)
class Requests:
    """Collects requests to this rank from signals, files and the platform. For the main thread."""

    folder: Path  # a file `profile` in this folder requests a trace
    grace: float  # seconds from SIGTERM to SIGKILL, if not known otherwise
    deadline: float | None = None  # Unix time at which the process must have exited
    _term: bool = False
    _usr2: bool = False
    _looked: float = float("-inf")
    _files: PendingRequests = field(default_factory=PendingRequests)
    _before: dict[int, Any] = field(default_factory=dict)

    def __enter__(self) -> Requests:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._heard) for number in (signal.SIGTERM, signal.SIGUSR2)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def look(self) -> PendingRequests:
        """The current requests. Takes nanoseconds; checks two files once per second."""
        now = time.monotonic()
        if now - self._looked >= LOOK_SECONDS:
            self._looked, self._files = now, self._look_at_files()
        stop = runtime.should_stop()
        if stop and self.deadline is None:
            self.deadline = runtime.stop_deadline()
        profile, self._usr2, self._files.profile = self._usr2 or self._files.profile, False, 0
        return PendingRequests(stop, self._term, self._files.spot, runtime.should_save(), profile)

    def _heard(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGUSR2:
            self._usr2 = True
        else:
            self._term = True
            self.deadline = self.deadline or time.time() + self.grace

    def _look_at_files(self) -> PendingRequests:
        found = PendingRequests(spot=self._files.spot)
        notice = os.environ.get(wire.SPOT_NOTICE)
        if notice and not found.spot and Path(notice).exists():
            found.spot = 1
            self.deadline = self.deadline or _spot_deadline(Path(notice))
        marker = self.folder / "profile"
        if marker.is_file():
            found.profile = 1
            marker.unlink(missing_ok=True)
        return found


@dataclass(slots=True)
class Agreement:
    """Sums a few integers over the ranks, one round at a time. A single process gets its own values."""

    talk: dist.ProcessGroup | None
    _sum: torch.Tensor | None = None
    _work: Any = None

    def start(self, numbers: Sequence[int]) -> None:
        self._sum = torch.tensor(numbers, dtype=torch.int64)
        self._work = dist.all_reduce(self._sum, group=self.talk, async_op=True) if self.talk else None

    def result(self) -> list[int]:
        assert self._sum is not None, "nothing was asked"
        if self._work is not None:
            self._work.wait()
        found: list[int] = self._sum.tolist()
        return found


def _spot_deadline(notice: Path) -> float:
    try:
        return float(notice.read_text().strip())
    except (OSError, ValueError):  # empty, or in a format of the cloud: the notice counts anyway
        return time.time() + SPOT_SECONDS
