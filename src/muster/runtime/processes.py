"""The launcher's process functions: identity, descendants, marks and memory, from the kernel."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

from muster import wire

FAULT: Final = "MUSTER_FAULT_LAUNCHER"  # tests name a point here, and the launcher kills itself at that point
PAGE: Final = os.sysconf("SC_PAGE_SIZE")
PART: Final = 1 << 15  # bytes that are read at once

_PR_SET_PDEATHSIG: Final = 1
_PR_SET_NAME: Final = 15
_PR_SET_CHILD_SUBREAPER: Final = 36
_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_CHILDREN_LISTED: Final = os.path.exists(f"/proc/self/task/{os.getpid()}/children")  # noqa: PTH110


class Stat(NamedTuple):
    """The used fields of /proc/PID/stat; `start_ticks` distinguishes a process from a later one with the same id."""

    state: str
    parent: int
    start_ticks: int


def fault(point: str) -> None:
    """Dies here, as by SIGKILL, if a test asks for it."""
    if os.environ.get(FAULT) == point:
        os.kill(os.getpid(), signal.SIGKILL)


def log_line(text: str) -> None:
    """Writes a line to stderr, which is the launcher's log; a full disk must not end the launcher."""
    with contextlib.suppress(OSError):
        os.write(2, f"{time.strftime('%F %T')} {text}\n".encode(errors="replace"))


def set_process_name(name: str) -> None:
    """Sets the name that `ps` and `top` show, at most 15 bytes; a forked launcher would look like its parent."""
    _LIBC.prctl(_PR_SET_NAME, name.encode(), 0, 0, 0)


def adopt_orphans() -> None:
    """Makes descendants whose parent ends children of this process, so that none can escape."""
    _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def die_with_parent() -> None:
    """Makes the kernel kill this process when the thread that forked it ends."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)


def boot_id() -> str:
    """An id that changes at every boot, so that an old process id can't be taken for a live one."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def stat(pid: int) -> Stat | None:
    """None when there is no such process."""
    raw = read(f"/proc/{pid}/stat")
    if not raw:
        return None
    fields = raw[raw.rindex(b")") + 2 :].split()  # the command's name, in brackets, may contain anything
    return Stat(fields[0].decode(), int(fields[1]), int(fields[19]))


def group(pid: int) -> int:
    """Its process group; 0 when it has ended."""
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return 0


def descendants(root: int) -> list[int]:
    """Every process below `root`. A process that starts or ends meanwhile may be missed."""
    children = _children if _CHILDREN_LISTED else _children_by_parent().get
    below: list[int] = []
    queue = [root]
    while queue:
        found = children(queue.pop()) or ()
        below += found
        queue += found
    return below


def marked(value: str, name: str = wire.GANG) -> list[int]:
    """Every live process, except this one, that was started with this mark in its environment: by default a gang's."""
    mark = f"{name}={value}".encode()
    found, own = [], os.getpid()
    for pid in _all_pids():
        # Most processes of a machine have no such text: it is looked for before the variables are told apart.
        if pid != own and mark in (told := read(f"/proc/{pid}/environ")) and mark in told.split(b"\0"):
            found.append(pid)
    return found


def kill(pids: Iterable[int]) -> None:
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            pass


def private_memory(pids: Iterable[int]) -> int:
    """Resident bytes of these processes that are not shared with files or other processes."""
    pages = 0
    for pid in pids:
        if fields := read(f"/proc/{pid}/statm").split():
            pages += int(fields[1]) - int(fields[2])
    return pages * PAGE


def oom_kills() -> int:
    """How many processes the kernel has killed for lack of memory since boot; 0 when it does not say."""
    _, _, found = read("/proc/vmstat").partition(b"\noom_kill ")
    return int(found.split(None, 1)[0]) if found else 0


def machine_memory() -> tuple[int, int]:
    """Bytes of the machine's memory: the whole, and what is available. 0 and 0 when the kernel does not say."""
    try:
        lines = (line.split() for line in read("/proc/meminfo").splitlines())
        found = {words[0]: int(words[1]) << 10 for words in lines}
        return found[b"MemTotal:"], found[b"MemAvailable:"]
    except (ValueError, LookupError):
        return 0, 0


def _children(pid: int) -> list[int]:
    """The children of all threads, from the kernel's lists:
    the cost is proportional to the worker, not to the machine."""
    try:
        threads = os.listdir(f"/proc/{pid}/task")  # noqa: PTH208
    except OSError:
        return []
    return [int(word) for thread in threads for word in read(f"/proc/{pid}/task/{thread}/children").split()]


def _children_by_parent() -> dict[int, list[int]]:
    """The children of all processes of the machine, for kernels that are built without such lists."""
    children: dict[int, list[int]] = {}
    for pid in _all_pids():
        if found := stat(pid):
            children.setdefault(found.parent, []).append(pid)
    return children


def _all_pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]  # noqa: PTH208  (names alone, thousands of them)


def read(path: str) -> bytes:
    """The file's content; empty when the process has ended, or belongs to another user."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)  # thousands at a time: file objects take twice as long
    except OSError:
        return b""
    try:
        whole = part = os.read(file, PART)
        while part:  # the kernel may give less than there is
            part = os.read(file, PART)
            whole += part
        return whole
    except OSError:
        return b""
    finally:
        os.close(file)
