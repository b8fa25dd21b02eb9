"""Injects one fault on a node: a program that is sent to `muster exec`, beside the ranks and with their rights.

Standard library only, and nothing of Muster's: it is sent as text, with `beside_memory` and `beside_network`, which add
to its actions. Its argument is a JSON object with "do", the name of an action, and that function's arguments. It prints
one line, {"time", ...} or {"refused"}, before it acts.
"""

from __future__ import annotations

import json
import os
import re
import resource
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

SHELLS = ("sh", "bash", "dash", "zsh")
LEAD = 0.3  # seconds between the line and the act: a session that dies with its launcher has sent the line by then


def main(argument: str) -> None:
    asked = json.loads(argument)
    try:
        ACTIONS[asked.pop("do")](**asked)
    except (OSError, ValueError) as error:
        tell(refused=str(error))


def kill(
    ranks: Sequence[int],
    number: int = int(signal.SIGKILL),
    whole: bool = False,
    launcher: bool = False,
    at: float = 0.0,
) -> None:
    """Sends a signal `at` a time to the main process of these ranks, or to the `whole` of them, and to the launcher."""
    found = [pid for rank in ranks for pid in processes(rank)[: None if whole else 1]]
    if launcher:
        found.insert(0, the_launcher())
        os.kill(found[0], 0)  # whether we may
    if not found:
        raise ValueError(f"no process of rank {ranks} was found")
    tell_and_wait(at, pids=found)
    signal_all(found, number)


def slow(rank: int, seconds: float, share: float) -> None:
    """Lets a rank run for this share of the time only, by stopping and continuing it."""
    found = processes(rank)
    if not found:
        raise ValueError(f"no process of rank {rank} was found")
    tell_and_wait(pids=found)
    until = time.monotonic() + seconds
    try:
        while time.monotonic() < until:
            signal_all(found, signal.SIGSTOP)
            time.sleep(0.2 * (1 - share))
            signal_all(found, signal.SIGCONT)
            time.sleep(0.2 * share)
    finally:
        signal_all(found, signal.SIGCONT)


def limit(rank: int, what: str, value: int = 0) -> None:
    """Lowers a limit of a rank's processes: "files" to those that it has open, "file_bytes" to `value`."""
    found = processes(rank)
    if not found:
        raise ValueError(f"no process of rank {rank} was found")
    tell_and_wait(pids=found)
    for pid in found:
        kind = resource.RLIMIT_NOFILE if what == "files" else resource.RLIMIT_FSIZE
        _, hard = resource.prlimit(pid, kind)
        used = {int(fd.name) for fd in Path(f"/proc/{pid}/fd").iterdir()}
        free = next(number for number in range(len(used) + 1) if number not in used)  # what the next file would get
        resource.prlimit(pid, kind, (free if what == "files" else value, hard))


def damage(rank: int) -> None:
    """Stops the rank, changes one byte in the largest file of its newest checkpoint, and kills it. What is kept in
    memory is removed, or it would be newer."""
    folder = Path(os.environ["MUSTER_CHECKPOINT_DIR"])
    found = processes(rank)
    if "://" in str(folder) or not folder.is_dir() or not found:
        raise ValueError(f"{folder} is no folder of checkpoints, or rank {rank} is gone")
    signal_all(found, signal.SIGSTOP)
    try:
        committed = [one for one in folder.iterdir() if re.fullmatch(r"step-\d{9,}(\.\d+)?", one.name)]
        newest = max(committed, key=lambda one: one.stat().st_mtime_ns)
        files = [file for file in newest.rglob("*") if file.is_file() and file.name != "manifest.json"]
        largest = max(files, key=lambda file: file.stat().st_size)
        with largest.open("r+b") as file:
            file.seek(largest.stat().st_size // 2)
            byte = file.read(1) or b"\0"
            file.seek(largest.stat().st_size // 2)
            file.write(bytes([byte[0] ^ 0xFF]))
    except (OSError, ValueError):
        signal_all(found, signal.SIGCONT)
        raise
    tell_and_wait(pids=found, path=str(newest))
    if memory := os.environ.get("MUSTER_CHECKPOINT_MEMORY"):
        shutil.rmtree(memory, ignore_errors=True)
    signal_all(found, signal.SIGKILL)


def clock(seconds: float) -> None:
    """Writes the file by which the clock of the ranks' Python jumps; see `clock.py`."""
    file = Path(os.environ["MUSTER_CHECKPOINT_DIR"], ".drill", "jump")
    if not file.parent.is_dir():
        raise ValueError(f"{file.parent} is not there: the command did not get to start its Python")
    tell_and_wait(pids=[])
    file.with_suffix(".new").write_text(str(seconds))
    file.with_suffix(".new").replace(file)


def processes(rank: int) -> list[int]:
    """The processes of a rank, its main one first: below the shell that runs the command, if that is still there."""
    marks = {f"MUSTER_JOB={os.environ['MUSTER_JOB']}".encode(), f"RANK={rank}".encode()}
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        try:
            told = set((entry / "environ").read_bytes().split(b"\0"))
            if marks <= told and not any(one.startswith(b"MUSTER_EXEC=") for one in told):
                parents[int(entry.name)] = parent_of(int(entry.name))
        except (OSError, ValueError, IndexError):  # ended meanwhile, another user's, or no process
            continue
    shells = {pid for pid in parents if name_of(pid) in SHELLS and pid in parents.values()}
    others = parents.keys() - shells
    return sorted(others, key=lambda pid: (parents[pid] in others, pid))


def the_launcher() -> int:
    """The launcher of this worker: the parent of the process that started this one for `muster exec`."""
    pid = os.getppid()
    while pid > 1 and name_of(pid) != "muster-exec":
        pid = parent_of(pid)
    found = parent_of(pid) if pid > 1 else 0
    if found <= 1:
        raise ValueError("the launcher can't be seen from the ranks: they are isolated from it")
    return found


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])


def name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""


def signal_all(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass


def tell(**values: Any) -> None:
    sys.stdout.write(json.dumps(values) + "\n")
    sys.stdout.flush()


def tell_and_wait(at: float = 0.0, **values: Any) -> None:
    at = max(at, time.time() + LEAD)
    tell(time=at, **values)
    time.sleep(max(0.0, at - time.time()))


ACTIONS: dict[str, Callable[..., None]] = {
    "kill": kill, "slow": slow, "limit": limit, "damage": damage, "clock": clock,
}  # fmt: skip
