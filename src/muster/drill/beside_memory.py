"""Takes memory away from a rank, beside it: that of its devices, or that of the host. Sent with `beside`.

The host's memory ends in one of two ways. With `resources.memory` the launcher kills a worker that goes past it: this
process is a part of the worker, and takes that much. Without it the kernel has to run out of memory, so the rank and a
child of this process are put into a small control group of their own, and the child fills it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from muster.drill.beside import ACTIONS, processes, tell_and_wait

LEFT_FREE = 16 << 20  # bytes of a device that are not worth taking: PyTorch asks for 2 MiB, or for 20 MiB and more
PIECE = 4 << 20  # bytes of the host's memory that are taken at once
SPARE = 1 << 30  # bytes that the machine keeps when a limit is passed
HELD = 10.0  # seconds for which a limit that was passed stays passed: a launcher looks every second
GROUP = 32 << 20  # bytes that the control group gets
GROUPS = Path("/sys/fs/cgroup")
FIRST_VERSION = GROUPS / "memory"  # of control groups, where it is mounted; else the second
LIMITS = ("memory.limit_in_bytes", "memory.swappiness")
OURS = "muster-drill-"


def device_memory(rank: int, seconds: float) -> None:
    """Takes nearly all free memory of the rank's devices for a while."""
    import torch  # noqa: PLC0415  (the job's own)

    if not torch.cuda.is_available():
        raise ValueError("PyTorch sees no device here")
    devices, held = range(torch.cuda.device_count()), list[Any]()
    try:
        for device in devices:  # a context of its own takes some hundred MB, and may be refused already
            torch.empty(1, device=f"cuda:{device}")
    except RuntimeError as error:
        raise ValueError(f"the devices have no room for another process: {error}") from error
    tell_and_wait(pids=processes(rank))
    until = time.monotonic() + seconds
    while time.monotonic() < until:  # what the rank gives back is taken too
        for device in devices:
            free, _ = torch.cuda.mem_get_info(device)
            try:
                if free > LEFT_FREE:
                    held.append(torch.empty(free - LEFT_FREE // 2, dtype=torch.uint8, device=f"cuda:{device}"))
            except torch.cuda.OutOfMemoryError:  # the rank was first
                pass
        time.sleep(0.02)


def host_memory(rank: int, most: int) -> None:
    """Takes memory until the launcher or the kernel kills the rank. `most`: bytes that the worker may have; 0: any."""
    found = processes(rank)
    if not found:
        raise ValueError(f"no process of rank {rank} was found")
    if most:
        _pass_limit(found, most)
    else:
        _run_out(found)


def _pass_limit(pids: Sequence[int], most: int) -> None:
    free = available()
    if free < most + SPARE:
        raise ValueError(f"the machine has {free >> 20:,} MiB left; to pass a limit of {most >> 20:,} MiB is too much")
    tell_and_wait(pids=pids)
    held = [b"\xff" * PIECE for _ in range(most // PIECE + 1)]
    time.sleep(HELD * bool(held))


def _run_out(pids: Sequence[int]) -> None:
    with control_group(pids) as group:
        told, tell = os.pipe()
        child = os.fork()
        if not child:
            _fill(told)
        try:
            join(group, child)
            Path(f"/proc/{pids[0]}/oom_score_adj").write_text("1000")  # of the group's processes the kernel takes it
            tell_and_wait(pids=pids, group=str(group))
            limit(group)
            os.write(tell, b"x")
            until = time.monotonic() + HELD
            while alive(pids[0]) and time.monotonic() < until:
                time.sleep(0.005)
        finally:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def _fill(told: int) -> None:
    """In the child: takes twice what the group may have, once it is told to."""
    try:
        os.read(told, 1)
        held = [b"\xff" * PIECE for _ in range(2 * GROUP // PIECE)]
        time.sleep(HELD * bool(held))
    finally:
        os._exit(0)


@contextlib.contextmanager
def control_group(pids: Sequence[int]) -> Iterator[Path]:
    """A control group with these processes; those that are left go back at the end. Raises ValueError where none can be
    made. This process may be killed with the worker, so the group is also removed by others; see `remove`."""
    parent = home_of("self") if FIRST_VERSION.is_dir() else GROUPS
    if not FIRST_VERSION.is_dir() and "memory" not in (GROUPS / "cgroup.subtree_control").read_text().split():
        raise ValueError("the machine's control groups do not limit memory; give -o resources.memory=2GB")
    for old in parent.glob(f"{OURS}*"):
        remove(old, 0.0)
    group, homes = parent / f"{OURS}{os.getpid()}", {pid: home_of(pid) for pid in pids}
    try:
        group.mkdir()
    except OSError as error:
        what = f"only root may have the kernel run out of memory on purpose ({error.strerror})"
        raise ValueError(f"{what}; give the job a limit: -o resources.memory=2GB") from error
    try:
        for pid in pids:
            join(group, pid)
        yield group
    finally:
        for pid, home in homes.items():
            with contextlib.suppress(OSError):  # it has ended
                join(home, pid)
        remove(group, HELD)


def join(group: Path, pid: int) -> None:
    (group / "cgroup.procs").write_text(str(pid))


def limit(group: Path) -> None:
    size, swap = LIMITS if FIRST_VERSION.is_dir() else ("memory.max", "memory.swap.max")
    with contextlib.suppress(OSError):  # without swap there is no such file
        (group / swap).write_text("0")
    (group / size).write_text(str(GROUP))


def remove(group: Path, seconds: float) -> None:
    """Removes a control group. One that has processes is tried again for so many seconds."""
    until = time.monotonic() + seconds
    while group.is_dir():
        with contextlib.suppress(OSError):
            group.rmdir()
        if time.monotonic() >= until:
            return
        time.sleep(0.01)


def home_of(pid: int | str) -> Path:
    """The memory control group of a process; in a container its path may be one that is not seen from inside."""
    top = FIRST_VERSION if FIRST_VERSION.is_dir() else GROUPS
    lines = [line.split(":", 2) for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines()]
    path = next((path for _, of, path in lines if of == ("memory" if FIRST_VERSION.is_dir() else "")), "/")
    found = top / path.lstrip("/")
    return found if found.is_dir() else top


def available() -> int:
    """Bytes of memory that the machine can still give."""
    lines = (line.split() for line in Path("/proc/meminfo").read_text().splitlines())
    return next((int(words[1]) << 10 for words in lines if words[0] == "MemAvailable:"), 0)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except OSError:
        return False


ACTIONS.update(device_memory=device_memory, host_memory=host_memory)
