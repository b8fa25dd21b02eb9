"""The stacks of a rank: by py-spy where it may look into a process, else by the handler of `rank_site` in the process
itself, else what the kernel knows of its threads. Nothing here needs the GIL of the process, nor stops it.

A document of the type "stacks" has `order`, `world`, `problem`, and `processes`: each with `pid`, `name`, `source`
(py-spy, signal, kernel), `problem`, and `threads` with `name`, `main`, `state`, `wait` and `frames`. They have names of
functions and files, and no values. The innermost frame of a main thread has `call` where its line makes the host wait
for its device: the name of the method, as `item`.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import threading
import time
from itertools import islice
from pathlib import Path
from typing import Any, Final

from muster import wire
from muster.runtime import processes, rank_site
from muster.runtime.stack_text import THREADS, PythonThread, from_faulthandler, from_py_spy
from muster.runtime.untrusted import open_plain

PROCESSES: Final = 32  # of a rank
DOC_BYTES: Final = 256 << 10  # of a rank
DUMP_BYTES: Final = 1 << 20
SPY_SECONDS: Final = 2.0
HANDLER_SECONDS: Final = 1.0
_QUIET: Final = 0.04  # seconds without growth after which a dump is complete
_STATES: Final = {
    "R": "running", "S": "sleeping", "D": "uninterruptible", "T": "stopped (SIGSTOP)", "t": "traced", "Z": "ended",
    "I": "idle", "X": "ended",
}  # fmt: skip
_BLOCKING: Final = re.compile(rb"\.(item|tolist|cpu|nonzero|synchronize)\(")
_SPIES: Final = threading.BoundedSemaphore(max(2, os.cpu_count() or 2))  # py-spy's processes at once

Doc = dict[str, Any]


def collect(root: int, folder: Path, spy: str, until: float) -> list[Doc]:
    """The processes of a rank with their threads. `folder` is the rank's own, `spy` a path or "", `until` monotonic."""
    found: list[Doc] = []
    for pid in [root, *processes.descendants(root)][:PROCESSES]:
        name = _read(f"/proc/{pid}/comm")
        if not name:
            continue  # it has ended meanwhile
        threads = _kernel_threads(pid)
        seen, source, problem = _python(pid, folder, spy, until, threads)
        found.append(
            {
                "pid": pid,
                "name": name,
                "source": source,
                "problem": problem,
                "threads": _joined(pid, threads, seen) if seen else threads,
            }
        )
    return _bounded(found)


def find_spy(path: str = "") -> str:
    """py-spy as the launcher's MUSTER_PY_SPY has it (a path, or "off"), beside this Python, or on a search path; "" if
    there is none."""
    if named := os.environ.get(wire.PY_SPY):
        return "" if named == "off" else named
    folders = [str(Path(sys.executable).parent), path, os.environ.get("PATH", "")]
    return shutil.which("py-spy", path=os.pathsep.join(filter(None, folders))) or ""


def _python(pid: int, folder: Path, spy: str, until: float, threads: list[Doc]) -> tuple[list[PythonThread], str, str]:
    """The Python threads of a process, where they come from, and why there are none."""
    handled = _handles(pid)
    program = os.path.basename(_link(f"/proc/{pid}/exe"))  # noqa: PTH119
    if not handled and not program.startswith(("python", "pypy")):
        return [], "kernel", "no Python"
    if time.monotonic() >= until:
        return [], "kernel", "no time was left to look at its Python stack"
    problem = "py-spy is not on the node"
    if spy:
        seen, problem = _by_spy(pid, spy, until)
        if seen:
            return seen, "py-spy", ""
    if threads and threads[0]["state"] in (_STATES["T"], _STATES["t"]):
        return [], "kernel", f"a stopped process can't answer; {problem}"
    if not handled:
        return [], "kernel", f"its Python has no handler for stacks; {problem}"
    seen = _by_handler(pid, folder, min(until, time.monotonic() + HANDLER_SECONDS))
    return (seen, "signal", "") if seen else ([], "kernel", f"it did not answer; {problem}")


def _by_spy(pid: int, spy: str, until: float) -> tuple[list[PythonThread], str]:
    """Never with local variables: they have values."""
    with _SPIES:
        seconds = min(SPY_SECONDS, until - time.monotonic())
        try:
            done = subprocess.run(
                [spy, "dump", "--json", "--nonblocking", "--full-filenames", "--pid", str(pid)],
                stdin=subprocess.DEVNULL, capture_output=True, timeout=max(0.1, seconds), env={}, cwd="/", check=False,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            return [], f"py-spy: {error}"[:200]
    try:
        return from_py_spy(done.stdout[: 8 * DUMP_BYTES], pid), ""
    except (ValueError, LookupError, TypeError, AttributeError):
        why = done.stderr.decode(errors="replace").strip().splitlines()
        return [], f"py-spy: {why[0] if why else f'status {done.returncode}'}"[:200]


def _handles(pid: int) -> bool:
    """Whether the process has a handler for the signal, by the kernel."""
    for line in _read(f"/proc/{pid}/status").splitlines():
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) >> (rank_site.SIGNAL - 1) & 1)
    return False


def by_handler(pid: int, folder: Path, until: float) -> list[PythonThread]:
    """The threads of a process that has the handler, and runs."""
    known = processes.stat(pid)
    return _by_handler(pid, folder, until) if known and known.state not in ("T", "t") and _handles(pid) else []


def _by_handler(pid: int, folder: Path, until: float) -> list[PythonThread]:
    """Sends the signal, and reads what the handler appends to the rank's file."""
    try:
        fd = open_plain(folder, rank_site.FILE)
    except OSError:
        return []
    try:
        start = os.fstat(fd).st_size
        if not _has_open(pid, fd):
            return []  # the handler is not ours, or writes to another file by now
        os.kill(pid, rank_site.SIGNAL)
        size, grown_at = start, time.monotonic()
        while (now := time.monotonic()) < until and not (size > start and now - grown_at >= _QUIET):
            time.sleep(0.01)
            if (new := os.fstat(fd).st_size) != size:
                size, grown_at = new, now
        return from_faulthandler(os.pread(fd, DUMP_BYTES, start).decode(errors="replace"))
    except OSError:
        return []
    finally:
        os.close(fd)


def _has_open(pid: int, fd: int) -> bool:
    """Whether a process has the file of our descriptor open, where `rank_site` opens it."""
    own = os.fstat(fd)
    for name in os.listdir(f"/proc/{pid}/fd"):  # noqa: PTH208
        if int(name) >= rank_site.DESCRIPTOR:
            with contextlib.suppress(OSError):
                if os.path.samestat(os.stat(f"/proc/{pid}/fd/{name}"), own):  # noqa: PTH116
                    return True
    return False


def _kernel_threads(pid: int) -> list[Doc]:
    """The threads of a process as the kernel sees them, the main thread first."""
    try:
        tids = sorted(int(name) for name in os.listdir(f"/proc/{pid}/task"))  # noqa: PTH208
    except OSError:
        return []
    tids.sort(key=lambda tid: tid != pid)
    return [_kernel_thread(pid, tid) for tid in tids[:THREADS]]


def _kernel_thread(pid: int, tid: int) -> Doc:
    place = f"/proc/{pid}/task/{tid}"
    raw = processes.read(f"{place}/stat")
    letter = raw[raw.rindex(b")") + 2 :][:1].decode() if b")" in raw else "X"
    wait = _read(f"{place}/wchan")
    return {
        "name": _read(f"{place}/comm"),
        "main": tid == pid,
        "state": _STATES.get(letter, letter),
        "wait": wait if wait != "0" else "",
        "frames": [],
    }


def _joined(pid: int, threads: list[Doc], seen: list[PythonThread]) -> list[Doc]:
    """The Python threads with the kernel's states; the main thread first."""
    first = next((one for one in threads if one["main"]), {})
    found = []
    for one in sorted(seen, key=lambda one: not one.main):
        known = first if one.main else {} if one.tid is None else _kernel_thread(pid, one.tid)
        if one.main and one.frames and (call := _blocking_call(**one.frames[0])):
            one.frames[0]["call"] = call
        state, wait = known.get("state", ""), known.get("wait", "")
        name = one.name or known.get("name", "")
        found.append({"name": name, "main": one.main, "state": state, "wait": wait, "frames": one.frames})
    return found


def _blocking_call(file: str, line: int, **_: str) -> str:
    """The name of the call in this line of source that waits for a device; such methods have no frame of their own."""
    with contextlib.suppress(OSError, ValueError):
        fd = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(fd, "rb") as source:
            if stat.S_ISREG(os.fstat(fd).st_mode) and (
                named := _BLOCKING.search(b"".join(islice(source, line - 1, line)))
            ):
                return named[1].decode()
    return ""


def _bounded(found: list[Doc]) -> list[Doc]:
    """Leaves out other threads than the main one, then the last processes, until the document has its size."""
    if len(json.dumps(found)) <= DOC_BYTES:
        return found
    found = [{**one, "threads": [each for each in one["threads"] if each["main"]]} for one in found]
    while len(found) > 1 and len(json.dumps(found)) > DOC_BYTES:
        found.pop()
    return found


def _link(path: str) -> str:
    with contextlib.suppress(OSError):
        return os.readlink(path)  # noqa: PTH115
    return ""


def _read(path: str) -> str:
    """Empty when the kernel does not say."""
    return processes.read(path).decode(errors="replace").strip()
